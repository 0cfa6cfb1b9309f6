//! The configuration of one worker: routes and limits. A reload replaces them; a step only reads
//! them.

use dormouse_handover::share::Limits;
use dormouse_routes::route::Route;

/// Routes and limits.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    /// Indexed by route number: see [`dormouse_routes::route::by_number`].
    pub(crate) routes: Vec<Route>,
}

impl Settings {
    /// Returns the route with this number.
    pub(crate) fn route(&self, number: u16) -> Option<&Route> {
        self.routes.get(usize::from(number))
    }
}
