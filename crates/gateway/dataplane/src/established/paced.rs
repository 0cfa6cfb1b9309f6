//! Paced connections: rate-limited by `bytes_per_client`, `route_bytes_per_second` or `max_bytes_per_second`.
//!
//! The worker reads neither side of a paced connection, so both senders have to wait. It drops no
//! received bytes, and notices closed sockets after the wait. The end of a wait is known, so the
//! worker does not serve the connection before. Both directions count, and they count for the
//! connection that moved the bytes, so a connection with little traffic is not slowed down by others.

use crate::bursts::{Place, Subject};
use crate::client::ConnectionId;
use crate::io::{Io, PeerName};
use crate::memory::waits::Waits;
use crate::settings::Settings;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Flag, Phase, Slot};
use dormouse_record::Role;
use dormouse_routes::route::Route;
use dormouse_tables::counters::Count;
use dormouse_tables::traffic::Row;

/// The paced connections.
pub(crate) type Paced = Waits<()>;

/// The limit that makes a connection wait.
#[derive(Clone, Copy)]
pub(crate) enum PaceLimit {
    /// `bytes_per_client`.
    Client,
    /// `route_bytes_per_second`.
    Route,
    /// `max_bytes_per_second`.
    All,
}

/// Charges the bytes that the step on this slot has received. `Some`: the connection must wait for
/// this many milliseconds, because of this limit.
pub(crate) fn pay<I>(
    slot: &mut Slot,
    received: u64,
    route: &Route,
    settings: &Settings,
    work: &Workspace<I>,
) -> Option<(u64, PaceLimit)> {
    let (limits, clients, now_ms) = (settings.limits.per_client, &work.clients, work.now_ms);
    let of_route = route.limits.bytes;
    // Of two slots with a joint between them, only the client's is charged.
    let is_client_side = slot.has(Flag::PassThrough) || slot.tls.role() == Role::Server;
    let is_charged = is_client_side || !slot.is_joined();
    let is_limited = limits.any_bytes() || of_route.is_some();
    if !is_limited || received == 0 || !is_charged || slot.phase() != Phase::Established {
        return None;
    }
    let [own_ms, all_ms] = match is_client_side {
        true => [
            clients.pay(slot.client(), limits, received, now_ms),
            clients.pay_for_all(limits, received, now_ms),
        ],
        false => [0, 0],
    };
    let route_ms = of_route.map_or(0, |pace| {
        let (traffic, row) = (&work.traffic, Row::of_route(slot.route));
        let payers = settings.limits.connections_max;
        let payers = payers.saturating_mul(traffic.workers());
        traffic.pay_bytes(row, pace, received, now_ms, payers)
    });
    let waits = [
        (own_ms, PaceLimit::Client),
        (route_ms, PaceLimit::Route),
        (all_ms, PaceLimit::All),
    ];
    let (wait_ms, limit) = waits
        .into_iter()
        .rev()
        .max_by_key(|(wait_ms, _)| *wait_ms)?;
    if wait_ms == 0 || slot.has(Flag::Paced) {
        return None;
    }
    slot.set(Flag::Paced);
    Some((wait_ms, limit))
}

/// Counts a wait, and logs the first one of a burst.
pub(crate) fn note<I: Io>(slot: &Slot, limit: PaceLimit, route: &Route, work: &mut Workspace<I>) {
    let peer = PeerName::new(&work.io, slot.tls_fd());
    let place = match limit {
        PaceLimit::Route => {
            traffic::count_paced(slot, &work.traffic);
            Place::Route(slot.route)
        }
        PaceLimit::Client | PaceLimit::All => Place::Program,
    };
    let (subject, count, limit) = match limit {
        PaceLimit::Client => (Subject::PacedClient, Count::PacedClient, "bytes_per_client"),
        PaceLimit::Route => (
            Subject::PacedRoute,
            Count::PacedRoute,
            "route_bytes_per_second",
        ),
        PaceLimit::All => (Subject::PacedAll, Count::PacedAll, "max_bytes_per_second"),
    };
    work.count.add(count, 1);
    let id = ConnectionId::of(slot, work.id_seed);
    let route = route.name.as_str();
    work.bursts.note(subject, place, work.now_ms, |more| {
        tracing::info!(route, %id, %peer, limit, more, "connection rate-limited");
    });
}
