//! The state that a step on a connection uses besides its slot.

use crate::close_reason::CloseReason;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_config::Truncation;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::{Flag, Slot};
use dormouse_record::Role;
use dormouse_routes::route::Route;

/// The workspace, and the configuration of the connection's route.
pub(crate) struct Context<'a, I> {
    pub(crate) work: &'a mut Workspace<I>,
    pub(crate) route: &'a Route,
    pub(crate) limits: &'a Limits,
}

impl<I> Context<'_, I> {
    /// CLOCK_BOOTTIME in seconds, the clock of the times in a slot.
    pub(crate) fn now_s(&self) -> u32 {
        (self.work.now_ms / 1000) as u32
    }

    /// Counts the reason for which the connection closes. The connection only drains afterwards.
    pub(crate) fn note_close(&mut self, slot: &mut Slot, reason: CloseReason) {
        traffic::count_close(slot, reason, self.work);
        slot.active_s = self.now_s();
        self.work.closing = Some(reason);
    }

    /// How to treat a TLS side that closes without close_notify.
    pub(crate) fn truncation(&self, slot: &Slot) -> Truncation {
        // A reload may have changed the kind of the route: then its options are about other peers.
        let is_server = slot.tls.role() == Role::Client;
        if is_server && slot.has(Flag::Joined) {
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
