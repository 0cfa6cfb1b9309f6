//! What was used before a reload: routes, and certificates with their keys, released a few in each turn, because there may be
//! tens of thousands.

use crate::connection_log::LogNames;
use crate::settings::RouteSums;
use dormouse_engine::RetiredCertificates;
use dormouse_routes::parsed::Unused;
use dormouse_routes::route::Route;
use std::collections::hash_map;

/// What is released in one turn, in units of a certificate.
const RELEASED_AT_ONCE: usize = 256;
/// Cost of a route with its context.
const COST_ROUTE: usize = 8;
/// Turns after which the heap is returned. Only then the allocator joins the blocks that were freed: after thousands of routes
/// that takes 20 ms, and some milliseconds however few they are.
const TURNS_PER_RETURN: u32 = 16;

/// Routes that are moved as pointers.
pub(crate) type FormerRoutes = Vec<Box<Route>>;

/// What no new connection uses.
#[derive(Default)]
pub(crate) struct Retirement {
    routes: FormerRoutes,
    /// Certificates of former contexts.
    contexts: Vec<RetiredCertificates>,
    identities: Unused,
    /// Names that routes served.
    names: Vec<hash_map::IntoIter<String, Vec<u16>>>,
    /// Names in the connection log.
    logs: Vec<LogNames>,
    /// Turns since the heap was last returned.
    turns: u32,
}

impl Retirement {
    /// Adds former routes, and what followed from all of them.
    pub(crate) fn add(&mut self, routes: FormerRoutes, sums: RouteSums) {
        self.routes.extend(routes);
        self.names.push(sums.names.into_names());
        self.logs.extend(sums.log);
    }

    /// Adds the names that the connection log has shown.
    pub(crate) fn add_log(&mut self, names: Option<LogNames>) {
        self.logs.extend(names);
    }

    /// Adds certificates that no route has any more.
    pub(crate) fn add_identities(&mut self, unused: Unused) {
        self.identities.extend(unused);
    }

    /// Whether something can be released now: no handshake in flight uses it.
    pub(crate) fn is_due(&self) -> bool {
        !self.routes.is_empty()
            || !self.names.is_empty()
            || !self.logs.is_empty()
            || !self.identities.is_empty()
            || self.contexts.iter().any(RetiredCertificates::is_unused)
    }

    /// Releases some. Returns whether the heap is to be returned.
    pub(crate) fn release_some(&mut self) -> bool {
        let mut left = RELEASED_AT_ONCE;
        while left > 0
            && let Some(route) = self.routes.pop()
        {
            // Its certificates may be many.
            self.contexts
                .extend(route.context().map(|one| one.retired()));
            left = left.saturating_sub(COST_ROUTE);
        }
        self.contexts.retain_mut(|context| {
            if left == 0 || !context.is_unused() {
                return true;
            }
            let released = context.release(left);
            let is_over = released < left;
            left -= released;
            !is_over
        });
        // Keys are wiped where their last context ends.
        let rest = self.identities.len().saturating_sub(left);
        self.identities.truncate(rest);
        self.names.retain_mut(|names| {
            names.by_ref().take(RELEASED_AT_ONCE).for_each(drop);
            names.len() > 0
        });
        self.logs.retain_mut(|log| !log.release(RELEASED_AT_ONCE));
        self.turns += 1;
        let is_time = self.turns >= TURNS_PER_RETURN || !self.is_due();
        if is_time {
            self.turns = 0;
        }
        is_time
    }
}
