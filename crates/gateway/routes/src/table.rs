//! The routes of a worker, by number.

use crate::route::Route;

/// Routes by number. The route number in a slot stays valid through reloads, so a number without a route, and each higher one,
/// stands for a placeholder ([`Direction::Removed`](crate::route::Direction::Removed)).
pub struct Routes {
    by_number: Vec<Option<Box<Route>>>,
    removed: Box<Route>,
}

impl Routes {
    /// A table without routes. `removed`: the placeholder of removed routes.
    pub fn new(removed: Route) -> Routes {
        Routes {
            by_number: Vec::new(),
            removed: Box::new(removed),
        }
    }

    /// Places a route. Returns the one that was there.
    pub fn place(&mut self, number: u16, route: Box<Route>) -> Option<Box<Route>> {
        let at = usize::from(number);
        if at >= self.by_number.len() {
            self.by_number.resize_with(at + 1, || None);
        }
        self.by_number.get_mut(at)?.replace(route)
    }

    /// Removes a route.
    pub fn take(&mut self, number: u16) -> Option<Box<Route>> {
        self.by_number.get_mut(usize::from(number))?.take()
    }

    /// Replaces the placeholder of removed routes.
    pub fn replace_removed(&mut self, removed: Route) {
        *self.removed = removed;
    }

    /// Returns the numbers of all routes that are not removed.
    pub fn numbers(&self) -> impl Iterator<Item = u16> {
        let all = (0..).zip(&self.by_number);
        all.filter_map(|(number, route)| route.is_some().then_some(number))
    }

    /// Returns the route with this number, unless it is removed.
    #[inline]
    pub fn get(&self, number: u16) -> Option<&Route> {
        self.by_number.get(usize::from(number))?.as_deref()
    }

    /// As [`Routes::get`].
    pub fn get_mut(&mut self, number: u16) -> Option<&mut Route> {
        self.by_number.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// Returns the placeholder of removed routes.
    pub fn removed(&self) -> &Route {
        &self.removed
    }

    /// Returns the route with this number, or the placeholder.
    #[inline]
    pub fn or_removed(&self, number: u16) -> &Route {
        self.get(number).unwrap_or(&self.removed)
    }

    /// Returns all routes that are not removed, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &Route)> + Clone {
        let all = (0..).zip(&self.by_number);
        all.filter_map(|(number, route)| Some((number, route.as_deref()?)))
    }

    /// As [`Routes::iter`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut Route)> {
        let all = (0..).zip(&mut self.by_number);
        all.filter_map(|(number, route)| Some((number, route.as_deref_mut()?)))
    }
}
