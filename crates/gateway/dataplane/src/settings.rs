//! The configuration of one worker: routes and limits. A reload replaces them; a step only reads
//! them.

use crate::awake::ShareOfPlaces;
use crate::connection_log::LogNames;
use dormouse_config::Lifetime;
use dormouse_handover::share::Limits;
use dormouse_routes::route::Route;
use dormouse_routes::route_filter::RouteNames;
use dormouse_routes::table::Routes;
use std::collections::HashMap;

/// Routes and limits.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) routes: Routes,
    /// What follows from all routes.
    pub(crate) sums: RouteSums,
}

/// What follows from all routes together. There may be thousands, so it is made a few at a time, and no turn asks all of them.
#[derive(Default)]
pub(crate) struct RouteSums {
    /// The names that they serve.
    pub(crate) names: RouteNames,
    /// What the connection log shows, if there is one.
    pub(crate) log: Option<LogNames>,
    /// The numbers of originations, each with its warm connections.
    pub(crate) originations: Vec<(u16, u32)>,
    /// The longest send queue of a socket.
    pub(crate) send_buffer_max: usize,
    /// Whether a route has TLS to its backends.
    pub(crate) has_backend_tls: bool,
    /// Whether a route has backends or servers.
    pub(crate) has_backends: bool,
    /// Whether a route has `route_stall_timeout`.
    pub(crate) has_stall_timeout: bool,
    /// The numbers of routes with `route_memory_share`, and their shares in percent.
    pub(crate) memory_shares: HashMap<u16, u32>,
}

impl RouteSums {
    /// Those of no route. `has_log`: whether there is a connection log.
    pub(crate) fn new(has_log: bool, removed: &Route) -> RouteSums {
        RouteSums {
            log: has_log.then(|| LogNames::new(removed)),
            send_buffer_max: removed.sockets.send_buffer_bytes(),
            ..RouteSums::default()
        }
    }

    /// Those of all these routes.
    pub(crate) fn of(routes: &Routes, has_log: bool) -> RouteSums {
        let mut sums = RouteSums::new(has_log, routes.removed());
        for (number, route) in routes.iter() {
            sums.add(number, route);
        }
        sums
    }

    /// Adds a route.
    pub(crate) fn add(&mut self, number: u16, route: &Route) {
        match route.origin() {
            Some(origin) => self.originations.push((number, origin.warm)),
            None => self.names.add(number, &route.filter),
        }
        if let Some(log) = &mut self.log {
            log.add(number, route);
        }
        self.send_buffer_max = (self.send_buffer_max).max(route.sockets.send_buffer_bytes());
        self.has_backend_tls |= route.backend_tls.is_some();
        self.has_backends |= !route.is_echo();
        self.has_stall_timeout |= route.lifetime.stall_ms.is_some();
        if let Some(share) = route.limits.memory_share {
            self.memory_shares.insert(number, share);
        }
    }
}

/// What decides how long a connection may last.
#[derive(Clone, Copy)]
pub(crate) struct Times<'a> {
    pub(crate) limits: &'a Limits,
    /// That of the connection's route.
    pub(crate) lifetime: Lifetime,
}

impl Settings {
    /// Settings with these routes.
    pub(crate) fn new(limits: Limits, routes: Routes) -> Settings {
        let sums = RouteSums::of(&routes, limits.connection_log.is_some());
        Settings {
            limits,
            routes,
            sums,
        }
    }

    /// Returns the route with this number, unless a reload has removed it.
    pub(crate) fn route(&self, number: u16) -> Option<&Route> {
        self.routes.get(number)
    }

    /// The shares of routes with `route_memory_share` of the places of connections that are awake.
    pub(crate) fn shares_of_places(&self) -> impl Iterator<Item = ShareOfPlaces> {
        let shares = self.sums.memory_shares.iter();
        shares.map(|(&route, &percent)| {
            let lifetime = self.route_or_removed(route).lifetime;
            ShareOfPlaces {
                route,
                percent,
                may_rest: lifetime.rest_after_ms.is_some(),
            }
        })
    }

    /// Returns the route with this number, or the placeholder of removed routes.
    pub(crate) fn route_or_removed(&self, number: u16) -> &Route {
        self.routes.or_removed(number)
    }
}
