//! The first moments of a worker that found connections: these are served before certificates are
//! parsed.

use dormouse_routes::contexts::LateContexts;
use dormouse_routes::identities::Identities;
use dormouse_routes::route::Route;

/// Turns of the loop that go before the next certificate is parsed, as long as there is something
/// to do in each.
const TURNS_FIRST: u32 = 8;

/// Contexts of routes that are still to be made.
pub(crate) struct Startup {
    late: Option<LateContexts>,
    turns: u32,
}

/// How far the startup is after a turn.
pub(crate) enum Progress {
    /// There is more to be made.
    Continues,
    /// The last context was made.
    Done,
    /// A certificate can't be used.
    Failed(String),
}

impl Startup {
    /// Makes these contexts, if there are any to make.
    pub(crate) fn new(late: Option<LateContexts>) -> Startup {
        Startup { late, turns: 0 }
    }

    /// Are all contexts made?
    pub(crate) fn is_done(&self) -> bool {
        self.late.is_none()
    }

    /// Ends before its time: a reload has made all contexts. `true`: there were some left.
    pub(crate) fn finish(&mut self) -> bool {
        self.late.take().is_some()
    }

    /// Ticket keys that came from main meanwhile are newer than those of the handover.
    pub(crate) fn set_ticket_keys(&mut self, exported: &[u8]) {
        if let Some(late) = &mut self.late {
            late.set_ticket_keys(exported);
        }
    }

    /// Makes a context, now and then. `is_idle`: the turn had nothing to do.
    pub(crate) fn turn(
        &mut self,
        is_idle: bool,
        routes: &mut [Route],
        identities: &mut Identities,
    ) -> Progress {
        self.turns = self.turns.saturating_add(1);
        if !is_idle && self.turns < TURNS_FIRST {
            return Progress::Continues;
        }
        self.turns = 0;
        let Some(late) = &mut self.late else {
            return Progress::Continues;
        };
        match late.load_next(routes, identities) {
            Ok(true) => Progress::Continues,
            Ok(false) => {
                self.late = None;
                Progress::Done
            }
            Err(error) => {
                self.late = None;
                Progress::Failed(error)
            }
        }
    }
}
