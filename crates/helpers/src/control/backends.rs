//! Backends, for `status` and for metrics.

use super::view::View;
use dormouse_handover::control::Backend;
use dormouse_handover::status::{BackendStatus, CheckStatus};
use dormouse_reactor::process;
use dormouse_tables::backends::CheckedHealth;
use std::fmt::Write as _;

/// What there is to say of one.
struct Known<'a> {
    backend: &'a Backend,
    connections: u64,
    failures: u64,
    is_up: bool,
    checked: CheckedHealth,
}

fn all(view: &View) -> impl Iterator<Item = Known<'_>> {
    let now_ms = process::boottime_ms();
    let told = view.state().into_iter().flat_map(|state| &state.backends);
    told.map(move |backend| Known {
        backend,
        connections: view.backends.load(backend.place),
        failures: match backend.place {
            0 => 0,
            place => view.backends.failures(place),
        },
        is_up: view.backends.is_up(backend.place, now_ms),
        checked: match backend.place {
            0 => CheckedHealth::Unknown,
            place => view.backends.checked(place),
        },
    })
}

/// The part of `GET /status`.
pub(super) fn document(view: &View) -> Vec<BackendStatus> {
    let one = |known: Known<'_>| BackendStatus {
        route: known.backend.route,
        address: known.backend.address.clone(),
        name: known.backend.name.clone(),
        up: known.is_up,
        out: known.backend.out,
        weight: known.backend.weight,
        check: match (known.backend.checked, known.checked) {
            (false, _) => CheckStatus::Off,
            (true, CheckedHealth::Unknown) => CheckStatus::Unknown,
            (true, CheckedHealth::Up) => CheckStatus::Healthy,
            (true, CheckedHealth::Down) => CheckStatus::Unhealthy,
        },
        connections: known.connections,
        failures_in_a_row: known.failures,
    };
    all(view).map(one).collect()
}

/// The part of `GET /metrics`. There are at most a few hundred backends told of.
pub(super) fn metrics(view: &View, page: &mut String) {
    type Value = fn(&Known<'_>) -> u64;
    let gauges: [(&str, &str, Value); 3] = [
        (
            "backend_up",
            "Whether a backend may be given connections.",
            |known| u64::from(known.is_up),
        ),
        (
            "backend_connections",
            "Connections with a backend.",
            |known| known.connections,
        ),
        (
            "backend_failures_in_a_row",
            "Connects to a backend that have failed in a row.",
            |known| known.failures,
        ),
    ];
    for (name, help, value) in gauges {
        let mut known = all(view).peekable();
        if known.peek().is_none() {
            continue;
        }
        // Writing into a String can't fail.
        let _ = writeln!(
            page,
            "# HELP dormouse_{name} {help}\n# TYPE dormouse_{name} gauge"
        );
        for known in known {
            let (route, address) = (known.backend.route, &known.backend.address);
            let address = address.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(
                page,
                "dormouse_{name}{{route=\"{route}\",backend=\"{address}\"}} {}",
                value(&known)
            );
        }
    }
}
