//! Whether a reload's routes admit the clients that the former routes have admitted, and that have no backend yet.
//!
//! A client is admitted once, by its address, its ClientHello and its certificate. Its handshake may end after the
//! reload, and with `backend_connect = "first-data"` its backend may be chosen much later. The number of its route may
//! have another route by then, and its backends must not get a client that this route would have refused, nor the PROXY
//! header of the former one.

use crate::client::Client;
use crate::door::admission;
use dormouse_routes::route::Route;
use std::collections::HashMap;
use std::mem::discriminant;

/// How the next route with a number treats clients of the former one.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    /// Whether both ask the same of a client, apart from its address.
    is_same: bool,
    has_same_networks: bool,
    trusts_same_proxies: bool,
}

impl Change {
    /// The reload removes the route.
    pub(crate) const REMOVED: Change = Change {
        is_same: false,
        has_same_networks: false,
        trusts_same_proxies: false,
    };

    /// Compares both routes.
    pub(crate) fn of(former: &Route, next: &Route) -> Change {
        let (one, other) = (&former.access, &next.access);
        Change {
            is_same: ask_the_same(former, next) && former.has_same_client_rules(next),
            has_same_networks: one.allow == other.allow && one.deny == other.deny,
            trusts_same_proxies: one.accept_proxy_from == other.accept_proxy_from,
        }
    }
}

/// The former routes, each with its next one.
pub(crate) struct Readmission<'a> {
    /// By number; those that are missing stay the same.
    changes: &'a HashMap<u16, Change>,
    former: &'a dyn Fn(u16) -> Option<&'a Route>,
    next: &'a dyn Fn(u16) -> Option<&'a Route>,
}

impl<'a> Readmission<'a> {
    /// `former`, `next`: the routes of a number whose route changes.
    pub(crate) fn new(
        changes: &'a HashMap<u16, Change>,
        former: &'a dyn Fn(u16) -> Option<&'a Route>,
        next: &'a dyn Fn(u16) -> Option<&'a Route>,
    ) -> Readmission<'a> {
        Readmission {
            changes,
            former,
            next,
        }
    }

    /// Whether all clients of all routes stay admitted.
    pub(crate) fn admits_all(&self) -> bool {
        let mut all = self.changes.values();
        all.all(|change| change.is_same && change.has_same_networks)
    }

    /// Whether a handshake that has begun with a route may end with the next one.
    pub(crate) fn is_same(&self, number: u16) -> bool {
        (self.changes.get(&number)).is_none_or(|change| change.is_same)
    }

    /// Whether the same proxies are trusted.
    pub(crate) fn trusts_same_proxies(&self, number: u16) -> bool {
        (self.changes.get(&number)).is_none_or(|change| change.trusts_same_proxies)
    }

    /// Whether the next route allows the address of a client that the former one has allowed.
    pub(crate) fn allows(&self, number: u16, client: &Client) -> bool {
        let change = self.changes.get(&number);
        if change.is_none_or(|change| change.has_same_networks) {
            return true;
        }
        let ip = client.ip();
        ip.zip((self.next)(number))
            .is_none_or(|(ip, next)| admission::is_allowed(next, ip))
    }

    /// Whether a client that waits for a backend stays admitted. `peer`: the client, as its socket names it. The address of
    /// one that came through a proxy is not known any more.
    pub(crate) fn keeps_waiting(&self, number: u16, peer: impl FnOnce() -> Client) -> bool {
        let Some(change) = self.changes.get(&number) else {
            return true;
        };
        let has_same_address = || {
            let peer = peer();
            let former = (self.former)(number);
            let proxies = former.map_or(&[][..], |former| &former.access.accept_proxy_from);
            !peer.is_proxy(proxies) && self.allows(number, &peer)
        };
        change.is_same && (change.has_same_networks || has_same_address())
    }
}

/// Whether both ask the same of a client, and tell their backends the same. Additional names and protocols are no
/// difference: the former clients have one of the others.
fn ask_the_same(former: &Route, next: &Route) -> bool {
    let (one, other) = (&former.access, &next.access);
    discriminant(&former.direction) == discriminant(&next.direction)
        && one.proxy_protocol == other.proxy_protocol
        && one.accept_proxy_from == other.accept_proxy_from
        && former.filter.meets(&next.filter)
}
