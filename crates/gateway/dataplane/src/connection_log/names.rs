//! What the connection log shows of routes and backends.

use dormouse_routes::route::Route;
use std::collections::BTreeMap;

/// Names of routes, servers and backends.
pub(crate) struct LogNames {
    /// By number.
    routes: Vec<Option<LogRoute>>,
    /// That of removed routes.
    removed: LogRoute,
    /// By their places in the table of backends.
    backends: BTreeMap<u16, String>,
}

struct LogRoute {
    name: String,
    /// One of its connections in this many gets a line. 0: none.
    one_in: u32,
    /// The servers of an origination.
    servers: Option<String>,
}

impl LogRoute {
    fn of(route: &Route) -> LogRoute {
        LogRoute {
            name: route.name.clone(),
            one_in: route.log_one_in,
            servers: route.origin().map(|_| route.backend_name.clone()),
        }
    }
}

impl LogNames {
    /// Those of no route.
    pub(crate) fn new(removed: &Route) -> LogNames {
        LogNames {
            routes: Vec::new(),
            removed: LogRoute::of(removed),
            backends: BTreeMap::new(),
        }
    }

    /// Adds those of a route, or replaces them.
    pub(crate) fn add(&mut self, number: u16, route: &Route) {
        let at = usize::from(number);
        if at >= self.routes.len() {
            self.routes.resize_with(at + 1, || None);
        }
        if let Some(place) = self.routes.get_mut(at) {
            *place = Some(LogRoute::of(route));
        }
        let targets = route.targets().map(|targets| &targets.all);
        for target in targets.into_iter().flatten().filter(|one| one.place != 0) {
            let known = self.backends.entry(target.place);
            known.or_insert_with(|| target.name.clone());
        }
    }

    fn of(&self, number: u16) -> &LogRoute {
        let found = self.routes.get(usize::from(number));
        found.and_then(Option::as_ref).unwrap_or(&self.removed)
    }

    /// The name of a route.
    pub(super) fn route(&self, number: u16) -> &str {
        &self.of(number).name
    }

    /// One of a route's connections in this many gets a line. 0: none.
    pub(super) fn one_in(&self, number: u16) -> u32 {
        self.of(number).one_in
    }

    /// The servers of an origination.
    pub(super) fn servers(&self, number: u16) -> Option<&str> {
        self.of(number).servers.as_deref()
    }

    /// The name of the backend at this place.
    pub(super) fn backend(&self, place: u16) -> Option<&str> {
        self.backends.get(&place).map(String::as_str)
    }

    /// Whether the same connections get lines.
    pub(super) fn covers_same(&self, other: &LogNames) -> bool {
        let len = self.routes.len().max(other.routes.len());
        let mut all = (0..).take(len);
        self.removed.one_in == other.removed.one_in
            && all.all(|number| self.one_in(number) == other.one_in(number))
    }

    /// Drops those of some routes. Returns whether none are left.
    pub(crate) fn release(&mut self, count: usize) -> bool {
        let left = self.routes.len().saturating_sub(count);
        self.routes.truncate(left);
        self.routes.is_empty()
    }
}
