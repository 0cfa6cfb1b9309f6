//! The routes of the next configuration, as far as they are loaded. Routes that stay the same are not in it: the switch leaves
//! them where they are. Whatever is made from all routes is made here, a few at a time, and only put in place by the switch.

use crate::door::readmission::Change;
use crate::lifecycle::retirement::FormerRoutes;
use crate::numbers::Numbers;
use crate::settings::{RouteSums, Settings};
use dormouse_config::Config;
use dormouse_routes::loader::Loaded;
use dormouse_routes::route::Route;
use dormouse_routes::table::Routes;
use std::collections::HashMap;

/// What the next configuration has at a number.
enum Next {
    /// No route.
    Nothing,
    /// The same route as now.
    Same,
    /// A new or a changed one.
    Other(Box<Route>),
}

/// The routes of the next configuration.
pub(crate) struct NextRoutes {
    by_number: Vec<Next>,
    removed: Route,
    /// What follows from all of them.
    pub(crate) sums: RouteSums,
    /// How they treat clients of the present routes. Numbers that are missing stay the same.
    changes: HashMap<u16, Change>,
    /// Originations that only have other options of the program: they keep what is known about their servers.
    same_originations: Vec<u16>,
    /// Whether a route has other timeouts.
    has_other_timeouts: bool,
}

/// What the switch has replaced.
pub(crate) struct Replaced {
    /// The former routes that have changed.
    pub(crate) routes: FormerRoutes,
    /// What followed from the former ones.
    pub(crate) sums: RouteSums,
    /// The numbers of changed routes.
    pub(crate) changed: Numbers,
    /// Whether a route has other timeouts.
    pub(crate) timeouts: bool,
}

impl NextRoutes {
    /// Those of a configuration, before any is loaded.
    pub(crate) fn new(config: &Config, has_log: bool) -> NextRoutes {
        let removed = Route::removed(&config.route_defaults());
        NextRoutes {
            by_number: Vec::new(),
            sums: RouteSums::new(has_log, &removed),
            removed,
            changes: HashMap::new(),
            same_originations: Vec::new(),
            has_other_timeouts: false,
        }
    }

    /// Adds a route that is loaded. `present`: the one with this number now.
    pub(crate) fn add(&mut self, number: u16, loaded: Loaded, present: Option<&Route>) {
        let next = match loaded {
            Loaded::Unchanged => {
                let same = present.expect("a present route is unchanged");
                self.sums.add(number, same);
                Next::Same
            }
            Loaded::New(route) => {
                self.sums.add(number, &route);
                if let Some(present) = present {
                    self.has_other_timeouts |= present.lifetime != route.lifetime;
                    self.changes.insert(number, Change::of(present, &route));
                }
                Next::Other(route)
            }
        };
        let at = usize::from(number);
        if at >= self.by_number.len() {
            self.by_number.resize_with(at + 1, || Next::Nothing);
        }
        self.by_number[at] = next;
    }

    /// Adds an origination. `is_same`: it is the present one, except for options of the program.
    pub(crate) fn add_origination(
        &mut self,
        number: u16,
        route: Route,
        is_same: bool,
        present: Option<&Route>,
    ) {
        if is_same {
            self.same_originations.push(number);
        }
        self.add(number, Loaded::New(Box::new(route)), present);
    }

    /// Notes which routes the next configuration does not have.
    pub(crate) fn note_removed(&mut self, present: &Routes) {
        for number in present.numbers() {
            if matches!(self.at(number), Next::Nothing) {
                self.changes.insert(number, Change::REMOVED);
                self.has_other_timeouts = true;
            }
        }
    }

    /// How the next routes treat clients of the present ones.
    pub(crate) fn changes(&self) -> &HashMap<u16, Change> {
        &self.changes
    }

    /// The next route with this number, if it is another one.
    pub(crate) fn other(&self, number: u16) -> Option<&Route> {
        match self.at(number) {
            Next::Other(route) => Some(route),
            Next::Nothing | Next::Same => None,
        }
    }

    fn at(&self, number: u16) -> &Next {
        let found = self.by_number.get(usize::from(number));
        found.unwrap_or(&Next::Nothing)
    }

    /// Puts the routes in place of the present ones. Takes no more than some moves of pointers for each route that changes.
    pub(crate) fn switch(mut self, settings: &mut Settings) -> Replaced {
        let routes = &mut settings.routes;
        let mut changed = Numbers::default();
        let mut former = Vec::new();
        for number in &self.same_originations {
            let next = self.by_number.get_mut(usize::from(*number));
            if let (Some(Next::Other(next)), Some(present)) = (next, routes.get_mut(*number)) {
                std::mem::swap(&mut next.direction, &mut present.direction);
                self.changes.remove(number);
            }
        }
        for &number in self.changes.keys() {
            changed.add(number);
            former.extend(routes.take(number));
        }
        for (number, next) in (0..).zip(self.by_number) {
            if let Next::Other(route) = next {
                former.extend(routes.place(number, route));
            }
        }
        let other = routes.removed().lifetime != self.removed.lifetime;
        routes.replace_removed(self.removed);
        Replaced {
            routes: former,
            sums: std::mem::replace(&mut settings.sums, self.sums),
            changed,
            timeouts: self.has_other_timeouts || other,
        }
    }

    /// Gives up. Returns the routes and what follows from them.
    pub(crate) fn give_up(self) -> (FormerRoutes, RouteSums) {
        let all = self.by_number.into_iter();
        let routes = all.filter_map(|next| match next {
            Next::Other(route) => Some(route),
            Next::Nothing | Next::Same => None,
        });
        (routes.collect(), self.sums)
    }
}
