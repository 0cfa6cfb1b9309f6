//! Routes in `/status` and `/metrics`.

use super::exposition::Page;
use super::selection::Selection;
use super::view::View;
use dormouse_config::share_of;
use dormouse_handover::control::Route;
use dormouse_handover::status::{
    AgeFigures, RouteHandshakes, RouteMemory, RouteStatus, TrafficFigures,
};
use dormouse_tables::traffic::{Row, Tally};
use std::collections::BTreeMap;

/// Reasons for a close, as metrics and `status` name them.
pub(super) const ENDS: [(&str, Tally); 11] = [
    ("clean", Tally::ClosedClean),
    ("tls_truncated", Tally::ClosedTlsTruncated),
    ("tls_failed", Tally::ClosedTlsFailed),
    ("refused", Tally::ClosedRefused),
    ("plain_failed", Tally::ClosedPlainFailed),
    ("backend_down", Tally::ClosedBackendDown),
    ("limit", Tally::ClosedLimit),
    ("stopping", Tally::ClosedStopping),
    ("drained", Tally::ClosedDrained),
    ("admin", Tally::ClosedByAdmin),
    ("crash", Tally::ClosedByCrash),
];

/// Refusals by a limit of the route.
const REFUSALS: [(&str, Tally); 3] = [
    ("connections", Tally::RefusedConnections),
    ("handshakes", Tally::RefusedRate),
    ("memory_share", Tally::RefusedMemory),
];

const HANDSHAKES: [(&str, Tally); 3] = [
    ("full", Tally::HandshakesFull),
    ("resumed", Tally::HandshakesResumed),
    ("failed", Tally::Failed),
];

const DIRECTIONS: [(&str, Tally); 4] = [
    ("tls_in", Tally::TlsBytesIn),
    ("plain_out", Tally::PlainBytesOut),
    ("plain_in", Tally::PlainBytesIn),
    ("tls_out", Tally::TlsBytesOut),
];

/// The routes of `GET /status`.
pub(super) fn document(view: &View, selection: &Selection) -> Vec<RouteStatus> {
    let one = |route: &Route| {
        let row = Row::of_route(route.number);
        let sum = |tally| view.traffic.sum(row, tally);
        RouteStatus {
            name: route.name.clone(),
            listen: route.listen.clone(),
            connections: sum(Tally::Connections),
            ages: view.ages.of_route(route.number),
            opened: sum(Tally::Opened),
            handshakes: RouteHandshakes {
                full: sum(Tally::HandshakesFull),
                resumed: sum(Tally::HandshakesResumed),
                failed: sum(Tally::Failed),
            },
            plain_bytes: plain_bytes(view, row),
            closed: ends(view, row),
            refused: counted(view, row, &REFUSALS),
            paced: sum(Tally::Paced),
            memory: memory(view, route),
        }
    };
    selection.routes(view).map(one).collect()
}

/// The route's share of the memory for connections.
fn memory(view: &View, route: &Route) -> Option<RouteMemory> {
    let percent = route.memory_share?;
    let row = Row::of_route(route.number);
    let bounds = view.state().map(|state| &state.bounds);
    let of = |limit: u64| share_of(limit, percent);
    Some(RouteMemory {
        share_percent: percent,
        connections_max: bounds.map(|bounds| of(bounds.connections)),
        held_bytes: view.traffic.sum(row, Tally::HeldBytes),
        bound_bytes: bounds.map(|bounds| of(bounds.kernel_bytes) + of(bounds.pending_bytes)),
        waits: view.traffic.sum(row, Tally::MemoryWaits),
    })
}

/// Plaintext bytes of a row.
pub(super) fn plain_bytes(view: &View, row: Option<Row>) -> TrafficFigures {
    TrafficFigures {
        sent: view.traffic.sum(row, Tally::PlainBytesOut),
        received: view.traffic.sum(row, Tally::PlainBytesIn),
    }
}

/// Closed connections of a row by reason; reasons with a count of 0 are left out.
pub(super) fn ends(view: &View, row: Option<Row>) -> BTreeMap<String, u64> {
    counted(view, row, &ENDS)
}

fn counted(view: &View, row: Option<Row>, of: &[(&str, Tally)]) -> BTreeMap<String, u64> {
    let all = of
        .iter()
        .map(|&(name, tally)| (name.to_owned(), view.traffic.sum(row, tally)));
    all.filter(|(_, n)| *n > 0).collect()
}

/// Samples of a metric of connections by age; none before the first count.
pub(super) fn by_age(page: &mut Page, labels: &[(&str, &str)], ages: Option<AgeFigures>) {
    let Some(ages) = ages else {
        return;
    };
    for (age, connections) in [
        ("under_1h", ages.under_1h),
        ("under_1d", ages.under_1d),
        ("under_7d", ages.under_7d),
        ("older", ages.older),
    ] {
        page.sample(&[labels, &[("age", age)]].concat(), connections);
    }
}

/// The routes of `GET /metrics`.
pub(super) fn metrics(view: &View, selection: &Selection, page: &mut Page) {
    let routes: Vec<&Route> = selection.routes(view).collect();
    if routes.is_empty() {
        return;
    }
    let by_label = |page: &mut Page, label: &str, of: &[(&str, Tally)]| {
        for route in &routes {
            let row = Row::of_route(route.number);
            for (value, tally) in of {
                let labels = [("route", route.name.as_str()), (label, *value)];
                page.sample(&labels, view.traffic.sum(row, *tally));
            }
        }
    };
    let alone = |page: &mut Page, tally: Tally| {
        for route in &routes {
            let row = Row::of_route(route.number);
            page.sample(&[("route", &*route.name)], view.traffic.sum(row, tally));
        }
    };
    page.family(
        "route_connections",
        "Established connections of a route: with clients, or with servers for a `connect` route.",
    );
    alone(page, Tally::Connections);
    page.family(
        "route_connections_by_age",
        "Connections of a route, by age, as of the last count: when `/status` or `/metrics` was asked for.",
    );
    for route in &routes {
        by_age(
            page,
            &[("route", &*route.name)],
            view.ages.of_route(route.number),
        );
    }
    page.family(
        "route_connections_opened_total",
        "Connections of a route that were established.",
    );
    alone(page, Tally::Opened);
    page.family(
        "route_handshakes_total",
        "Handshakes of a route, by result. A handshake that fails before a route is chosen is \
         not included.",
    );
    by_label(page, "result", &HANDSHAKES);
    page.family(
        "route_connections_closed_total",
        "Closed connections of a route, by reason.",
    );
    by_label(page, "reason", &ENDS);
    page.family(
        "route_connections_refused_total",
        "Connections refused because of a limit of the route, by limit.",
    );
    by_label(page, "limit", &REFUSALS);
    page.family(
        "route_paced_total",
        "Waits of a route's connections because of `route_bytes_per_second`.",
    );
    alone(page, Tally::Paced);
    shares(view, &routes, page);
    page.family(
        "route_bytes_total",
        "Bytes of a route's connections, by direction.",
    );
    by_label(page, "direction", &DIRECTIONS);
}

/// The families of routes with a share of the memory.
fn shares(view: &View, routes: &[&Route], page: &mut Page) {
    let all = routes.iter();
    let all = all.filter_map(|route| Some((&*route.name, memory(view, route)?)));
    let all: Vec<_> = all.collect();
    if all.is_empty() {
        return;
    }
    type Value = fn(&RouteMemory) -> Option<u64>;
    let families: [(&str, &str, Value); 3] = [
        (
            "route_memory_held_bytes",
            "Bytes that wait for slow peers of a route with `route_memory_share`.",
            |memory| Some(memory.held_bytes),
        ),
        (
            "route_memory_bound_bytes",
            "Limit of these bytes: the route's share of `kernel_memory` and `pending_memory`.",
            |memory| memory.bound_bytes,
        ),
        (
            "route_memory_waits_total",
            "Waits of a route's connections because its share was held.",
            |memory| Some(memory.waits),
        ),
    ];
    for (name, help, value) in families {
        page.family(name, help);
        for (route, memory) in &all {
            if let Some(value) = value(memory) {
                page.sample(&[("route", *route)], value);
            }
        }
    }
}
