//! What a step on a connection works with besides its slot.

use crate::established::close_reason::CloseReason;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_config::Truncation;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::Slot;
use dormouse_record::Role;
use dormouse_routes::route::Route;

/// The workspace, and what the configuration says of the connection.
pub(crate) struct Context<'a, I> {
    pub(crate) work: &'a mut Workspace<I>,
    pub(crate) route: &'a Route,
    pub(crate) limits: &'a Limits,
}

impl<I> Context<'_, I> {
    /// CLOCK_BOOTTIME in seconds: what a slot notes.
    pub(crate) fn now_s(&self) -> u32 {
        (self.work.now_ms / 1000) as u32
    }

    /// Counts why the connection closes; from now on it only drains.
    pub(crate) fn note_close(&mut self, slot: &mut Slot, reason: CloseReason) {
        traffic::count_close(slot, reason, self.work);
        slot.active_s = self.now_s();
        self.work.closing = Some(reason);
    }

    /// What an end without close_notify means: by a client, or by a backend.
    pub(crate) fn truncation(&self, slot: &Slot) -> Truncation {
        match &self.route.backend_tls {
            Some(tls) if slot.tls.role() == Role::Client => tls.truncation,
            _ => self.route.truncation,
        }
    }
}
