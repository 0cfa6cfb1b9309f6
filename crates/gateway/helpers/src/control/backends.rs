//! Backends in `/status` and `/metrics`.

use super::exposition::Page;
use super::routes::{self, ENDS};
use super::selection::Selection;
use super::view::View;
use dormouse_handover::control::Backend;
use dormouse_handover::status::{BackendStatus, CheckStatus};
use dormouse_reactor::process;
use dormouse_tables::backends::CheckedHealth;
use dormouse_tables::traffic::{Row, Tally};

/// A backend and its figures.
struct BackendFigures<'a> {
    backend: &'a Backend,
    connections: u64,
    failures: u64,
    is_up: bool,
    checked: CheckedHealth,
}

impl BackendFigures<'_> {
    fn row(&self) -> Option<Row> {
        Row::of_backend(self.backend.place)
    }
}

fn all<'a>(view: &'a View, selection: &'a Selection) -> impl Iterator<Item = BackendFigures<'a>> {
    let now_ms = process::boottime_ms();
    selection.backends(view).map(move |backend| BackendFigures {
        backend,
        connections: view.backends.load(backend.place),
        failures: match backend.place {
            0 => 0,
            place => view.backends.failures(place),
        },
        is_up: !backend.is_unresolved && view.backends.works(backend.place, now_ms),
        checked: match backend.place {
            0 => CheckedHealth::Unknown,
            place => view.backends.checked(place),
        },
    })
}

/// The backends of `GET /status`.
pub(super) fn document(view: &View, selection: &Selection) -> Vec<BackendStatus> {
    let one = |known: BackendFigures<'_>| BackendStatus {
        routes: known.backend.routes.clone(),
        address: known.backend.address.clone(),
        name: known.backend.name.clone(),
        up: known.is_up,
        unresolved: known.backend.is_unresolved,
        out: known.backend.out,
        weight: known.backend.weight,
        differing: known.backend.differing.clone(),
        check: match (known.backend.checked, known.checked) {
            (false, _) => CheckStatus::Off,
            (true, CheckedHealth::Unknown) => CheckStatus::Unknown,
            (true, CheckedHealth::Up) => CheckStatus::Healthy,
            (true, CheckedHealth::Down) => CheckStatus::Unhealthy,
        },
        connections: known.connections,
        ages: view.ages.of_backend(known.backend.place),
        failures_in_a_row: known.failures,
        opened: view.traffic.sum(known.row(), Tally::Opened),
        connects_failed: view.traffic.sum(known.row(), Tally::Failed),
        plain_bytes: routes::plain_bytes(view, known.row()),
        closed: routes::ends(view, known.row()),
    };
    all(view, selection).map(one).collect()
}

/// The backends of `GET /metrics`. A backend shared by several routes is one series; its label lists all
/// of them.
pub(super) fn metrics(view: &View, selection: &Selection, page: &mut Page) {
    type Value<'a> = Box<dyn Fn(&BackendFigures<'_>) -> u64 + 'a>;
    let known: Vec<BackendFigures<'_>> = all(view, selection).collect();
    if known.is_empty() {
        return;
    }
    let counted =
        |tally: Tally| -> Value<'_> { Box::new(move |known| view.traffic.sum(known.row(), tally)) };
    let families: [(&str, &str, Value<'_>); 5] = [
        (
            "backend_up",
            "Whether a backend is up, by the last health checks and connects. One that an administrator has taken out can be up.",
            Box::new(|known| u64::from(known.is_up)),
        ),
        (
            "backend_connections",
            "Open connections to a backend.",
            Box::new(|known| known.connections),
        ),
        (
            "backend_failures_in_a_row",
            "Consecutive failed connects to a backend.",
            Box::new(|known| known.failures),
        ),
        (
            "backend_connections_opened_total",
            "Connections established to a backend.",
            counted(Tally::Opened),
        ),
        (
            "backend_connections_failed_total",
            "Failed connects to a backend.",
            counted(Tally::Failed),
        ),
    ];
    for (name, help, value) in &families {
        page.family(name, help);
        for one in &known {
            let (routes, address) = (label(one.backend), one.backend.address.as_str());
            page.sample(&[("route", &*routes), ("backend", address)], value(one));
        }
    }
    by_age(view, &known, page);
    let directions = [
        ("sent", Tally::PlainBytesOut),
        ("received", Tally::PlainBytesIn),
    ];
    type ByLabel<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, Tally)]);
    let by_label: [ByLabel<'_>; 2] = [
        (
            "backend_bytes_total",
            "Plaintext bytes sent to a backend and received from it.",
            "direction",
            &directions,
        ),
        (
            "backend_connections_closed_total",
            "Closed connections to a backend, by reason.",
            "reason",
            &ENDS,
        ),
    ];
    for (name, help, by, of) in by_label {
        page.family(name, help);
        for one in &known {
            let (routes, address) = (label(one.backend), one.backend.address.as_str());
            for (value, tally) in of {
                let labels = [("route", &*routes), ("backend", address), (by, *value)];
                page.sample(&labels, view.traffic.sum(one.row(), *tally));
            }
        }
    }
}

/// The label of a backend's routes.
fn label(backend: &Backend) -> String {
    backend.routes.join(",")
}

/// The family of connections by age.
fn by_age(view: &View, known: &[BackendFigures<'_>], page: &mut Page) {
    page.family(
        "backend_connections_by_age",
        "Connections to a backend, by age, as of the last count: when `/status` or `/metrics` was asked for.",
    );
    for one in known {
        let (routes, address) = (label(one.backend), one.backend.address.as_str());
        let labels = [("route", &*routes), ("backend", address)];
        routes::by_age(page, &labels, view.ages.of_backend(one.backend.place));
    }
}
