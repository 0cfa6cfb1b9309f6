//! The first and the last moments of a worker that passes connections on: what is put off until
//! those who are in are served, and how it ends so that another binary can go on.

use super::io::Io;
use super::{End, Worker};
use dormouse_engine::TicketKeys;
use dormouse_handover::orders::Word;

/// Turns of the loop that go before the next certificate is parsed, as long as there is something
/// to do in each.
const TURNS_FIRST: u32 = 8;

/// How far a worker is with passing its connections on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Passing {
    /// It is not asked to.
    #[default]
    No,
    /// Nothing more is accepted; handshakes may end until then.
    Quieting {
        /// On the clock of the loop.
        until_ms: u64,
    },
    /// Main was told that no handshake is in flight any more, or that their time is up.
    Quiet,
    /// The turn ends, and then the worker.
    Over,
}

impl<I: Io> Worker<I> {
    // ---- the first moments ----

    /// What was put off is done in pieces, each after a turn of the loop.
    pub(super) fn catch_up(&mut self, events: usize) {
        self.settle_doubts();
        self.turns = self.turns.saturating_add(1);
        if events > 0 && self.turns < TURNS_FIRST {
            return;
        }
        self.turns = 0;
        let Some(late) = &mut self.late else { return };
        match late.load_next(&mut self.routes, &mut self.identities) {
            Ok(true) => {}
            Ok(false) => {
                self.late = None;
                self.tools.io.say(self.orders, &Word::Ready);
            }
            Err(error) => {
                // The predecessor could read them. Those who are in are served on.
                tracing::error!(%error, "certificates cannot be used; nothing is accepted");
                self.listeners.stop();
                self.late = None;
            }
        }
    }

    /// Whether there is something left of what was put off: then the loop does not sleep.
    pub(super) fn is_behind(&self) -> bool {
        self.late.is_some() || !self.doubts.is_empty()
    }

    pub(super) fn take_ticket_keys(&mut self, exported: &[u8]) {
        if let Some(late) = &mut self.late {
            late.set_ticket_keys(exported);
        }
        let replaced = TicketKeys::import(exported).and_then(|keys| {
            let mut routes = self.routes.iter();
            routes.try_for_each(|route| route.replace_ticket_keys(&keys))
        });
        if let Err(error) = replaced {
            tracing::error!(%error, "ticket keys from the main process are refused");
        }
    }

    // ---- the last moments ----

    /// Accepts nothing more; main will be told when no handshake is in flight.
    pub(super) fn quiesce(&mut self) {
        self.listeners.hold(true);
        let until_ms = self.now_ms + self.limits.handshake_grace_ms;
        self.passing = Passing::Quieting { until_ms };
    }

    /// The upgrade did not come about before this worker ended.
    pub(super) fn resume(&mut self) {
        self.listeners.hold(false);
        self.passing = Passing::No;
    }

    /// Ends after this turn. Everything stays as it is, for another binary or, should that fail,
    /// for the next worker of this one.
    pub(super) fn hand_over(&mut self) {
        self.passing = Passing::Over;
    }

    /// Whether this worker is about to pass its connections on: nothing new is begun.
    pub(super) fn is_passing(&self) -> bool {
        self.passing != Passing::No
    }

    pub(super) fn look_at_passing(&mut self) {
        let Passing::Quieting { until_ms } = self.passing else {
            return;
        };
        let live = self.handshakes.live() + self.originations.live();
        // Its slots are to be beyond doubt, and its certificates known to be good.
        if (live == 0 || until_ms <= self.now_ms) && !self.is_behind() {
            self.passing = Passing::Quiet;
            self.tools.io.say(self.orders, &Word::Quiet);
        }
    }

    pub(super) fn passing_deadline_ms(&self) -> Option<u64> {
        match self.passing {
            Passing::Quieting { until_ms } => Some(until_ms),
            _ => None,
        }
    }

    /// Whether, and how, the worker has come to its end.
    pub(crate) fn end(&self) -> Option<End> {
        if self.passing == Passing::Over {
            // The epoll instance stays, and would go on reporting these.
            for listener in self.listeners.all() {
                let _ = self.tools.io.unwatch(listener.fd);
            }
            let _ = self.tools.io.unwatch(self.orders);
            return Some(End::HandedOver);
        }
        self.is_finished().then_some(End::Stopped)
    }
}
