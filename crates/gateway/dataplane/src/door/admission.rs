//! Admission of clients: `allow`, `deny`, and the limits per client address.
//!
//! A client is checked as soon as its address is known: at accept, or when a trusted proxy has sent
//! its PROXY header. The proxy itself is not checked. A refused connection is closed without an
//! answer, counted, and logged once per burst.

use crate::bursts::{Place, Subject};
use crate::client::Client;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::Slot;
use dormouse_routes::route::Route;
use dormouse_tables::clients::Exceeded;
use dormouse_tables::counters::Count;
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
    admit_network(route, client, settings, work) && admit_rate(client, &settings.limits, work)
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

/// Counts a connection whose handshake is done. Returns `false` if the client has reached its limit
/// of connections.
pub(crate) fn enter<I>(
    slot: &mut Slot,
    client: &Client,
    limits: &Limits,
    work: &mut Workspace<I>,
) -> bool {
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

fn refuse<I>(refusal: Refusal, client: &Client, work: &mut Workspace<I>) {
    work.count.add(refusal.count(), 1);
    work.bursts
        .note(Subject::Denied, Place::Program, work.now_ms, |more| {
            let reason = refusal.reason();
            tracing::info!(%client, reason, more, "connection refused");
        });
}
