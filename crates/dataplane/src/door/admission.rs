//! Who may connect: networks that are allowed or denied, and what one client address may have.
//!
//! A client is judged once its address is known, which is at accept, or when a trusted proxy has
//! said whom it speaks for; a proxy itself is not judged. A refused connection is closed without an
//! answer, counted, and logged once per burst.

use crate::bursts::Subject;
use crate::door::client::Client;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::Slot;
use dormouse_routes::route::Route;
use dormouse_tables::clients::Exceeded;
use dormouse_tables::counters::Count;
use std::net::IpAddr;

/// Why a client is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// Its network is not among those that may.
    Network,
    /// It has, or does, too much.
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

/// Is the client in a network that may connect? `deny` wins; an empty `allow` allows all.
fn network_may(route: &Route, ip: IpAddr) -> bool {
    let within =
        |networks: &[dormouse_config::Network]| networks.iter().any(|network| network.contains(ip));
    !within(&route.access.deny) && (route.access.allow.is_empty() || within(&route.access.allow))
}

/// May this client begin a handshake on this route?
pub(crate) fn admit<I>(
    route: u16,
    client: &Client,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    admit_network(route, client, settings, work) && admit_rate(client, &settings.limits, work)
}

/// Is it in a network that may connect to this route?
pub(crate) fn admit_network<I>(
    route: u16,
    client: &Client,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    let (Some(ip), Some(route)) = (client.ip(), settings.route(route)) else {
        return true;
    };
    let may = network_may(route, ip);
    if !may {
        refuse(Refusal::Network, client, work);
    }
    may
}

/// May it begin another handshake so soon?
pub(crate) fn admit_rate<I>(client: &Client, limits: &Limits, work: &mut Workspace<I>) -> bool {
    let Some(ip) = client.ip().filter(|_| limits.per_client.any()) else {
        return true;
    };
    match work.clients.knock(ip, limits.per_client, work.now_ms) {
        Ok(_) => true,
        Err(exceeded) => {
            refuse(Refusal::Exceeded(exceeded), client, work);
            false
        }
    }
}

/// Counts a connection whose handshake is done. `false`: it is one too many.
pub(crate) fn enter<I>(
    slot: &mut Slot,
    client: &Client,
    limits: &Limits,
    work: &mut Workspace<I>,
) -> bool {
    let Some(ip) = client.ip().filter(|_| limits.per_client.any()) else {
        return true;
    };
    let Some(place) = work.clients.place(ip, work.now_ms) else {
        work.count.add(Count::ClientsUncounted, 1);
        return true;
    };
    // Noted before it is counted: a worker that dies in between makes the count one too low at
    // worst.
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
    work.bursts.note(Subject::Denied, work.now_ms, |more| {
        let reason = refusal.reason();
        tracing::info!(%client, reason, more, "connection refused");
    });
}
