//! Admission of clients: `allow`, `deny`, and the limits per client address.
//!
//! A client is checked as soon as its address is known: at accept, or when a trusted proxy has sent
//! its PROXY header. The proxy itself is not checked. A refused connection is closed without an
//! answer, counted, and logged once per burst.

use crate::bursts::{Place, Subject};
use crate::client::Client;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_config::share_of;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::Slot;
use dormouse_reactor::socket::Peer;
use dormouse_routes::route::Route;
use dormouse_tables::clients::Exceeded;
use dormouse_tables::counters::Count;
use dormouse_tables::traffic::{Row, Tally};
use std::net::IpAddr;

/// Reason for which a client is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// Its network is denied, or not allowed.
    Network,
    /// It exceeds a limit per client.
    Exceeded(Exceeded),
}

impl Refusal {
    fn count(self) -> Count {
        match self {
            Refusal::Network => Count::DeniedNetwork,
            Refusal::Exceeded(Exceeded::Connections) => Count::DeniedConnections,
            Refusal::Exceeded(Exceeded::Rate) => Count::DeniedRate,
        }
    }

    /// The reason as the log states it.
    fn reason(self) -> &'static str {
        match self {
            Refusal::Network => "address denied (allow, deny)",
            Refusal::Exceeded(Exceeded::Connections) => "connections_per_client reached",
            Refusal::Exceeded(Exceeded::Rate) => "handshakes_per_client reached",
        }
    }
}

/// Whether the route allows this address. `deny` wins; an empty `allow` allows all.
pub(crate) fn is_allowed(route: &Route, ip: IpAddr) -> bool {
    let within =
        |networks: &[dormouse_config::Network]| networks.iter().any(|network| network.contains(ip));
    !within(&route.access.deny) && (route.access.allow.is_empty() || within(&route.access.allow))
}

/// Checks the client's network and its handshake rate. Returns `false` if the client is refused.
pub(crate) fn admit<I>(
    route: u16,
    client: &Client,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    admit_network(route, client, settings, work)
        && admit_rate(client, &settings.limits, work)
        && admit_by_route(route, client, settings, work)
}

/// Checks the limits of the route, and counts the handshake. Returns `false` if the client is refused.
pub(crate) fn admit_by_route<I>(
    number: u16,
    client: &Client,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    let Some(route) = settings.route(number) else {
        return true;
    };
    if !has_room(number, route, (client, 0), settings, work) {
        return false;
    }
    let (row, now_ms) = (Row::of_route(number), work.now_ms);
    let has_begun =
        (route.limits.handshakes).is_none_or(|pace| work.traffic.take_handshake(row, pace, now_ms));
    if !has_begun {
        refuse_by_route(RouteLimit::Handshakes, number, route, client, work);
    }
    has_begun
}

/// Checks `route_max_connections` and `route_memory_share`. Counts and logs a refusal. `own`: the number of awake connections
/// of the route that are this client's.
fn has_room<I>(
    number: u16,
    route: &Route,
    (client, own): (&Client, usize),
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    let exceeded = exceeded_by_another(number, route, own, settings, work);
    if let Some(limit) = exceeded {
        refuse_by_route(limit, number, route, client, work);
    }
    exceeded.is_none()
}

/// The limit that another connection of this route would exceed. Two workers that check it at the same moment may exceed it
/// by one.
fn exceeded_by_another<I>(
    number: u16,
    route: &Route,
    own: usize,
    settings: &Settings,
    work: &Workspace<I>,
) -> Option<RouteLimit> {
    let link = work.repair.as_ref();
    if link.is_some_and(|link| !link.places.has_place_for(number, own)) {
        return Some(RouteLimit::Memory);
    }
    let of_share = route.limits.memory_share.map(|percent| {
        let in_each = u64::from(settings.limits.connections_max);
        let of_program = in_each * u64::from(work.traffic.workers());
        (share_of(of_program, percent), RouteLimit::Memory)
    });
    let of_option = route.limits.connections_max;
    let of_option = of_option.map(|most| (u64::from(most), RouteLimit::Connections));
    let limits = of_option.into_iter().chain(of_share);
    let (most, limit) = limits.min_by_key(|(most, _)| *most)?;
    let connections = work.traffic.sum(Row::of_route(number), Tally::Connections);
    (connections >= most).then_some(limit)
}

/// Checks the client's network. Returns `false` if the client is refused.
pub(crate) fn admit_network<I>(
    route: u16,
    client: &Client,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    let Some(ip) = client.ip() else {
        return true;
    };
    // A route that a reload has removed allows nobody.
    let route = settings.route(route);
    let is_allowed = route.is_some_and(|route| is_allowed(route, ip));
    if !is_allowed {
        refuse(Refusal::Network, client, work);
    }
    is_allowed
}

/// Checks the network of a client whose name none of these routes has. Returns `false` if none allows it.
pub(crate) fn admit_network_of_any<I>(
    routes: &[u16],
    client: &Client,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    let Some(ip) = client.ip() else {
        return true;
    };
    let mut routes = routes.iter().filter_map(|&route| settings.route(route));
    let is_allowed = routes.any(|route| is_allowed(route, ip));
    if !is_allowed {
        refuse(Refusal::Network, client, work);
    }
    is_allowed
}

/// Checks and counts a handshake of the client. Returns `false` if the client is refused.
pub(crate) fn admit_rate<I>(client: &Client, limits: &Limits, work: &mut Workspace<I>) -> bool {
    let Some(ip) = client.ip().filter(|_| limits.per_client.any()) else {
        return true;
    };
    match (work.clients).count_handshake(ip, limits.per_client, work.now_ms) {
        Ok(_) => true,
        Err(exceeded) => {
            refuse(Refusal::Exceeded(exceeded), client, work);
            false
        }
    }
}

/// Counts a connection whose handshake is done. Returns `false` if the route or the client has reached its
/// limit of connections.
pub(crate) fn enter<I>(
    slot: &mut Slot,
    client: &Client,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    let (number, limits) = (slot.route, &settings.limits);
    // Others may have taken the room during the handshake.
    let route = settings.route(number);
    if route.is_some_and(|route| !has_room(number, route, (client, 1), settings, work)) {
        return false;
    }
    let Some(ip) = client.ip().filter(|_| limits.per_client.any()) else {
        return true;
    };
    let Some(place) = work.clients.place(ip, limits.per_client, work.now_ms) else {
        work.count.add(Count::ClientsUncounted, 1);
        return true;
    };
    // Stored in the slot before it is counted: if the worker dies in between, the count is one too
    // low. The other order could leave it too high forever.
    slot.set_client(place);
    match work.clients.enter(place, limits.per_client) {
        Ok(()) => true,
        Err(exceeded) => {
            slot.set_client(0);
            refuse(Refusal::Exceeded(exceeded), client, work);
            false
        }
    }
}

/// Whether an origination takes another local client, for which there is no warm connection. Counts and logs a refusal.
pub(crate) fn admit_local<I>(number: u16, settings: &Settings, work: &mut Workspace<I>) -> bool {
    let local = Client::new(Peer::Unix);
    let route = settings.route(number);
    route.is_none_or(|route| has_room(number, route, (&local, 0), settings, work))
}

/// Whether an origination has room for a connection that no local client waits for.
pub(crate) fn has_room_for_warm<I>(number: u16, settings: &Settings, work: &Workspace<I>) -> bool {
    let route = settings.route(number);
    route.is_none_or(|route| exceeded_by_another(number, route, 0, settings, work).is_none())
}

/// A limit of a route that a client exceeds.
#[derive(Clone, Copy)]
enum RouteLimit {
    Connections,
    Handshakes,
    Memory,
}

fn refuse_by_route<I>(
    limit: RouteLimit,
    number: u16,
    route: &Route,
    client: &Client,
    work: &mut Workspace<I>,
) {
    let (count, tally, subject, reason) = match limit {
        RouteLimit::Connections => (
            Count::DeniedRouteConnections,
            Tally::RefusedConnections,
            Subject::DeniedRouteConnections,
            "route_max_connections reached",
        ),
        RouteLimit::Handshakes => (
            Count::DeniedRouteRate,
            Tally::RefusedRate,
            Subject::DeniedRouteRate,
            "route_handshakes_per_second reached",
        ),
        RouteLimit::Memory => (
            Count::DeniedRouteMemory,
            Tally::RefusedMemory,
            Subject::DeniedRouteMemory,
            "route_memory_share reached",
        ),
    };
    work.count.add(count, 1);
    work.traffic.add(Row::of_route(number), tally, 1);
    let (place, now_ms) = (Place::Route(number), work.now_ms);
    let log = |more| {
        tracing::info!(route = route.name, %client, reason, more, "connection refused by route");
    };
    match work.traces.takes(client.ip(), now_ms) {
        true => log(0),
        false => work.bursts.note(subject, place, now_ms, log),
    }
}

fn refuse<I>(refusal: Refusal, client: &Client, work: &mut Workspace<I>) {
    work.count.add(refusal.count(), 1);
    let (reason, now_ms) = (refusal.reason(), work.now_ms);
    let log = |more| tracing::info!(%client, reason, more, "connection refused");
    match work.traces.takes(client.ip(), now_ms) {
        true => log(0),
        false => (work.bursts).note(Subject::Denied, Place::Program, now_ms, log),
    }
}
