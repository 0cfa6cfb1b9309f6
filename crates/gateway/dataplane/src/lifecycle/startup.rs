//! Startup of a worker with connections: it serves them before it parses certificates.

use dormouse_routes::loader::{Loaded, RouteLoader};
use dormouse_routes::parsed::Parsed;
use dormouse_routes::table::Routes;
use dormouse_tables::backends::Backends;

/// Busy turns of the loop between two steps of the startup.
const TURNS_FIRST: u32 = 8;

/// TLS contexts that are still to be built.
pub(crate) struct Startup {
    late: Option<RouteLoader>,
    turns: u32,
    /// Whether a certificate was invalid.
    has_failed: bool,
}

/// State of the startup after a turn.
pub(crate) enum StartupProgress {
    /// More contexts are left.
    Continues,
    /// The last context was built.
    Done,
    /// A certificate is invalid.
    Failed(String),
}

impl Startup {
    /// Creates a startup that builds these contexts, if there are any.
    pub(crate) fn new(late: Option<RouteLoader>) -> Startup {
        Startup {
            late,
            turns: 0,
            has_failed: false,
        }
    }

    /// Whether all contexts are built.
    pub(crate) fn is_done(&self) -> bool {
        self.late.is_none()
    }

    /// Whether a certificate was invalid: the worker accepts no connections before a reload.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Ends the startup, because a reload has built all contexts. Returns `true` if some were left or invalid.
    pub(crate) fn finish(&mut self) -> bool {
        let had_failed = std::mem::take(&mut self.has_failed);
        self.late.take().is_some() || had_failed
    }

    /// Parses some certificates, and builds a context from the last ones, in an idle turn, or after some busy ones.
    pub(crate) fn turn(
        &mut self,
        is_idle: bool,
        routes: &mut Routes,
        parsed: &mut Parsed,
        backends: &Backends,
    ) -> StartupProgress {
        self.turns = self.turns.saturating_add(1);
        if !is_idle && self.turns < TURNS_FIRST {
            return StartupProgress::Continues;
        }
        self.turns = 0;
        // Without them, only sockets are left to verify.
        let Some(late) = &mut self.late else {
            return StartupProgress::Continues;
        };
        // The routes are there. Their backends may have other addresses than in the handover.
        let take_contexts = |number, loaded| {
            if let (Loaded::New(built), Some(route)) = (loaded, routes.get_mut(number)) {
                route.take_contexts(*built);
            }
        };
        match late.load_some(parsed, backends, |_| None, take_contexts) {
            Ok(true) => StartupProgress::Continues,
            Ok(false) => {
                self.late = None;
                StartupProgress::Done
            }
            Err(error) => {
                self.late = None;
                self.has_failed = true;
                StartupProgress::Failed(error)
            }
        }
    }
}
