//! Numbers of connections by state, which every step keeps up to date.

use crate::established::close;
use dormouse_handover::slot::{Phase, Slot};

/// Numbers of slots by state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tallies {
    /// Connections at rest.
    pub(crate) at_rest: u32,
    /// Connections that only deliver their last bytes.
    pub(crate) draining: u32,
    /// Halves of connections with TLS to their backend, after the backend's end or ours.
    pub(crate) half_ended: u32,
}

impl Tallies {
    /// The numbers of this slot alone.
    pub(crate) fn of(slot: &Slot) -> Tallies {
        Tallies {
            at_rest: slot.at_rest().into(),
            draining: (slot.phase() == Phase::Draining).into(),
            half_ended: close::is_half_ended(slot).into(),
        }
    }

    pub(crate) fn add(&mut self, one: Tallies) {
        self.at_rest += one.at_rest;
        self.draining += one.draining;
        self.half_ended += one.half_ended;
    }

    pub(crate) fn remove(&mut self, one: Tallies) {
        self.at_rest = self.at_rest.saturating_sub(one.at_rest);
        self.draining = self.draining.saturating_sub(one.draining);
        self.half_ended = self.half_ended.saturating_sub(one.half_ended);
    }
}
