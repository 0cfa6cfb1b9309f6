//! Whether a reload's routes admit the clients that the former routes have admitted, and that have no backend yet.
//!
//! A client is admitted once, by its address, its ClientHello and its certificate. Its handshake may end after the
//! reload, and with `backend_connect = "first-data"` its backend may be chosen much later. The number of its route may
//! have another route by then, and its backends must not get a client that this route would have refused, nor the PROXY
//! header of the former one.

use crate::client::Client;
use crate::door::admission;
use dormouse_routes::route::Route;
use std::mem::discriminant;

/// The former routes, each with its next one.
pub(crate) struct Readmission<'a>(Vec<Change<'a>>);

struct Change<'a> {
    former: &'a Route,
    /// `None`: the reload removes the route.
    next: Option<&'a Route>,
    /// Whether both ask the same of a client, apart from its address.
    is_same: bool,
    has_same_networks: bool,
}

impl<'a> Readmission<'a> {
    /// `former`: indexed by number. `next`: with their numbers. `has_same_trust`: whether the rules for client certificates
    /// stay the same for a number.
    pub(crate) fn new<'b: 'a>(
        former: &'a [Route],
        next: impl Iterator<Item = (u16, &'b Route)>,
        has_same_trust: impl Fn(u16) -> bool,
    ) -> Readmission<'a> {
        let change = |former| Change {
            former,
            next: None,
            is_same: false,
            has_same_networks: false,
        };
        let mut changes: Vec<Change<'a>> = former.iter().map(change).collect();
        for (number, next) in next {
            if let Some(change) = changes.get_mut(usize::from(number)) {
                let (one, other) = (&change.former.access, &next.access);
                change.is_same = ask_the_same(change.former, next) && has_same_trust(number);
                change.has_same_networks = one.allow == other.allow && one.deny == other.deny;
                change.next = Some(next);
            }
        }
        Readmission(changes)
    }

    fn change(&self, number: u16) -> Option<&Change<'a>> {
        self.0.get(usize::from(number))
    }

    /// Whether all clients of all routes stay admitted.
    pub(crate) fn admits_all(&self) -> bool {
        let admits_all = |change: &Change<'_>| {
            change.former.is_removed() || change.is_same && change.has_same_networks
        };
        self.0.iter().all(admits_all)
    }

    /// Whether a handshake that has begun with a route may end with the next one.
    pub(crate) fn is_same(&self, number: u16) -> bool {
        self.change(number).is_some_and(|change| change.is_same)
    }

    /// Whether the same proxies are trusted.
    pub(crate) fn trusts_same_proxies(&self, number: u16) -> bool {
        self.change(number).is_some_and(|change| {
            let next = change.next.map(|next| &next.access.accept_proxy_from);
            next == Some(&change.former.access.accept_proxy_from)
        })
    }

    /// Whether the next route allows the address of a client that the former one has allowed.
    pub(crate) fn allows(&self, number: u16, client: &Client) -> bool {
        let change = self.change(number);
        let change = change.filter(|change| !change.has_same_networks);
        let Some(next) = change.and_then(|change| change.next) else {
            return true;
        };
        client.ip().is_none_or(|ip| admission::is_allowed(next, ip))
    }

    /// Whether a client that waits for a backend stays admitted. `peer`: the client, as its socket names it. The address of
    /// one that came through a proxy is not known any more.
    pub(crate) fn keeps_waiting(&self, number: u16, peer: impl FnOnce() -> Client) -> bool {
        let Some(change) = self.change(number).filter(|change| change.is_same) else {
            return false;
        };
        change.has_same_networks || {
            let peer = peer();
            !peer.is_proxy(&change.former.access.accept_proxy_from) && self.allows(number, &peer)
        }
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
