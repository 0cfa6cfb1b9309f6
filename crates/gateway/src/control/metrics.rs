//! `GET /metrics`: the counters in the text format of Prometheus (version 0.0.4).
//!
//! The names are those of the counters, so there is a bounded number of series, whatever clients
//! do. Gauges and totals are sums over all workers; what concerns one process is in `status`.

use super::backends;
use super::view::View;
use crate::counters::{Count, Kind};
use std::fmt::Write as _;

/// The whole page.
pub(super) fn page(view: &View) -> String {
    let mut page = String::new();
    for &count in Count::ALL {
        let (suffix, kind) = match count.kind() {
            Kind::Total => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
            Kind::Note => continue,
        };
        let name = format!("{}{suffix}", count.name());
        sample(&mut page, &name, kind, count.help(), view.sum(count));
    }
    let alive = view.workers_alive() as u64;
    let more = [
        ("workers_alive", "Workers that live.", alive),
        (
            "main_alive",
            "Whether the main process lives.",
            u64::from(view.main_alive()),
        ),
        (
            "accepting",
            "Whether new connections are accepted.",
            u64::from(view.is_accepting()),
        ),
        (
            "start_time_boot_seconds",
            "When the main process was started, in seconds after the machine's start.",
            view.state().map_or(0, |state| state.born_ms / 1000),
        ),
    ];
    for (name, help, value) in more {
        sample(&mut page, name, "gauge", help, value);
    }
    backends::metrics(view, &mut page);
    page
}

fn sample(page: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    // Writing into a String can't fail.
    let _ = write!(
        page,
        "# HELP dormouse_{name} {help}\n# TYPE dormouse_{name} {kind}\ndormouse_{name} {value}\n"
    );
}
