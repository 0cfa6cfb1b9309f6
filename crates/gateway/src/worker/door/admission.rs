//! Who may come in: networks that are allowed or denied, and what one client address may have.
//!
//! Asked once the client's address is known, which is at accept, or when a trusted proxy has said
//! whom it speaks for; a proxy itself is not asked. Whoever may not is closed without a word,
//! counted, and logged as one line per burst.

use crate::clients::Exceeded;
use crate::counters::Count;
use crate::route::Route;
use crate::worker::Worker;
use crate::worker::bursts::Subject;
use crate::worker::door::client::Client;
use crate::worker::io::Io;
use std::net::IpAddr;

/// Why a client is not let in.
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

    fn in_words(self) -> &'static str {
        match self {
            Refusal::Network => "its network may not connect here (allow, deny)",
            Refusal::Exceeded(Exceeded::Connections) => {
                "it has as many connections as one client may have (connections_per_client)"
            }
            Refusal::Exceeded(Exceeded::Rate) => {
                "it has begun as many handshakes as one client may per minute (handshakes_per_client)"
            }
        }
    }
}

/// Is the client in a network that may connect? `deny` wins; an empty `allow` allows all.
fn network_may(route: &Route, ip: IpAddr) -> bool {
    let within =
        |networks: &[crate::config::Network]| networks.iter().any(|network| network.contains(ip));
    !within(&route.access.deny) && (route.access.allow.is_empty() || within(&route.access.allow))
}

impl<I: Io> Worker<I> {
    /// May this client begin a handshake?
    pub(crate) fn admit(&mut self, route: u16, client: &Client) -> bool {
        self.admit_network(route, client) && self.admit_rate(client)
    }

    /// Is it in a network from where this route may be come to?
    pub(crate) fn admit_network(&mut self, route: u16, client: &Client) -> bool {
        let (Some(ip), Some(route)) = (client.ip(), self.routes.get(usize::from(route))) else {
            return true;
        };
        let may = network_may(route, ip);
        if !may {
            self.refuse(Refusal::Network, client);
        }
        may
    }

    /// May it begin another handshake so soon?
    pub(crate) fn admit_rate(&mut self, client: &Client) -> bool {
        let Some(ip) = client.ip().filter(|_| self.limits.per_client.any()) else {
            return true;
        };
        match self.clients.knock(ip, self.limits.per_client, self.now_ms) {
            Ok(_) => true,
            Err(exceeded) => {
                self.refuse(Refusal::Exceeded(exceeded), client);
                false
            }
        }
    }

    /// Counts a connection whose handshake is done. `false`: it is one too many.
    pub(crate) fn enter(&mut self, index: u32, client: &Client) -> bool {
        let ip = client.ip().filter(|_| self.limits.per_client.any());
        let (Some(ip), Some(slot)) = (ip, self.slots.get_mut(index)) else {
            return true;
        };
        let Some(place) = self.clients.place(ip, self.now_ms) else {
            self.tools.count.add(Count::ClientsUncounted, 1);
            return true;
        };
        // Noted before it is counted: who dies in between makes the count one too low at worst.
        slot.set_client(place);
        match self.clients.enter(place, self.limits.per_client) {
            Ok(()) => true,
            Err(exceeded) => {
                slot.set_client(0);
                self.refuse(Refusal::Exceeded(exceeded), client);
                false
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal, client: &Client) {
        self.tools.count.add(refusal.count(), 1);
        self.bursts.note(Subject::Denied, self.now_ms, |more| {
            tracing::info!(%client, more, "connection refused: {}", refusal.in_words());
        });
    }
}
