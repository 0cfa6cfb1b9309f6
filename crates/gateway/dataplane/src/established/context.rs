//! What a step on a connection uses besides its slot, and what it adds to.

use crate::close_reason::CloseReason;
use crate::io::Io;
use crate::memory::allowance::StarvedFlow;
use crate::memory::starved::LATER_MS;
use crate::outcome::Outcome;
use crate::settings::Times;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_config::Truncation;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::{Flag, Slot};
use dormouse_record::Role;
use dormouse_routes::route::Route;

/// The workspace, the configuration of the connection's route, and the outcome of the step so far.
pub(crate) struct Context<'a, I> {
    pub(crate) work: &'a mut Workspace<I>,
    pub(crate) route: &'a Route,
    pub(crate) limits: &'a Limits,
    pub(crate) outcome: Outcome,
}

impl<'a, I> Context<'a, I> {
    /// The context of a step that has done nothing yet.
    pub(crate) fn new(
        work: &'a mut Workspace<I>,
        route: &'a Route,
        limits: &'a Limits,
    ) -> Context<'a, I> {
        Context {
            work,
            route,
            limits,
            outcome: Outcome::default(),
        }
    }

    /// What decides how long the connection may last.
    pub(crate) fn times(&self) -> Times<'_> {
        Times {
            limits: self.limits,
            lifetime: self.route.lifetime,
        }
    }

    /// CLOCK_BOOTTIME in seconds, the clock of the times in a slot.
    pub(crate) fn now_s(&self) -> u32 {
        (self.work.now_ms / 1000) as u32
    }

    /// Counts the reason for which the connection closes. The connection only drains afterwards.
    pub(crate) fn note_close(&mut self, slot: &mut Slot, reason: CloseReason)
    where
        I: Io,
    {
        traffic::count_close(slot, reason, self.work);
        slot.active_s = self.now_s();
        self.outcome.closing = Some(reason);
    }

    /// Stops a flow until there is memory, or until its destination has drained, if it doesn't move.
    pub(crate) fn starve(&mut self, slot: &mut Slot, flow: &StarvedFlow, moves: bool)
    where
        I: Io,
    {
        self.outcome.wait_ms = Some(self.work.starve(slot, flow, moves));
    }

    /// Stops the opening flow until more of its record arrives, or until there is memory for the beginning.
    pub(crate) fn await_record(&mut self, slot: &mut Slot) {
        slot.set(Flag::AwaitsRecord);
        self.outcome.wait_ms = Some(LATER_MS);
    }

    /// How to treat a TLS side that closes without close_notify.
    pub(crate) fn truncation(&self, slot: &Slot) -> Truncation {
        // A reload may have changed the kind of the route: then its options are about other peers.
        let is_server = slot.tls.role() == Role::Client;
        if is_server && slot.is_joined() {
            let tls = self.route.backend_tls.as_ref();
            return tls.map_or(Truncation::Abort, |tls| tls.truncation);
        }
        let originates = self.route.origin().is_some();
        match is_server == originates && !slot.has(Flag::PassThrough) {
            true => self.route.truncation,
            false => Truncation::Abort,
        }
    }
}
