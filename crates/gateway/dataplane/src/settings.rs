//! The configuration of one worker: routes and limits. A reload replaces them; a step only reads
//! them.

use crate::awake::ShareOfPlaces;
use dormouse_config::Lifetime;
use dormouse_handover::share::Limits;
use dormouse_routes::route::Route;
use dormouse_routes::route_filter::RouteNames;

/// Routes and limits.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    /// Indexed by route number: see [`dormouse_routes::route::by_number`].
    pub(crate) routes: Vec<Route>,
    /// The names that they serve.
    pub(crate) names: RouteNames,
}

/// What decides how long a connection may last.
#[derive(Clone, Copy)]
pub(crate) struct Times<'a> {
    pub(crate) limits: &'a Limits,
    /// That of the connection's route.
    pub(crate) lifetime: Lifetime,
}

impl Settings {
    /// Returns the route with this number.
    pub(crate) fn route(&self, number: u16) -> Option<&Route> {
        self.routes.get(usize::from(number))
    }

    /// The numbers of routes with `route_memory_share`, and their shares in percent.
    pub(crate) fn memory_shares(&self) -> impl Iterator<Item = (u16, u32)> {
        let routes = (0..).zip(&self.routes);
        routes.filter_map(|(number, route)| Some((number, route.limits.memory_share?)))
    }

    /// The same of places of connections that are awake.
    pub(crate) fn shares_of_places(&self) -> impl Iterator<Item = ShareOfPlaces> {
        self.memory_shares().map(|(route, percent)| ShareOfPlaces {
            route,
            percent,
            may_rest: self
                .route_or_removed(route)
                .lifetime
                .rest_after_ms
                .is_some(),
        })
    }

    /// Returns the route with this number. A number beyond the list is that of a removed route, as is the last place.
    pub(crate) fn route_or_removed(&self, number: u16) -> &Route {
        let route = self.route(number).or(self.routes.last());
        route.expect("the last place is that of removed routes")
    }
}
