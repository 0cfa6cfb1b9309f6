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

/// What one slot counts as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    phase: Phase,
    at_rest: bool,
    half_ended: bool,
}

impl Tally {
    #[inline]
    pub(crate) fn of(slot: &Slot) -> Tally {
        Tally {
            phase: slot.phase(),
            at_rest: slot.at_rest(),
            half_ended: close::is_half_ended(slot),
        }
    }

    /// Whether it waits for a backend.
    pub(super) fn is_connecting(self) -> bool {
        self.phase == Phase::Connecting
    }

    fn is_draining(self) -> bool {
        self.phase == Phase::Draining
    }
}

impl Tallies {
    pub(crate) fn add(&mut self, one: Tally) {
        self.at_rest += u32::from(one.at_rest);
        self.draining += u32::from(one.is_draining());
        self.half_ended += u32::from(one.half_ended);
    }

    pub(crate) fn remove(&mut self, one: Tally) {
        self.at_rest = self.at_rest.saturating_sub(one.at_rest.into());
        self.draining = self.draining.saturating_sub(one.is_draining().into());
        self.half_ended = self.half_ended.saturating_sub(one.half_ended.into());
    }

    /// Counts a slot as what it is now.
    pub(crate) fn update(&mut self, former: Tally, now: Tally) {
        self.remove(former);
        self.add(now);
    }
}
