//! A reload that changes `idle_timeout`, `total_timeout` or `rest_after`: the timers of quiet connections are armed again, some per turn.
//!
//! Otherwise a connection would keep its old deadline, and one without a timer would get none before its next event.

use crate::established::Connections;
use crate::settings::Settings;
use dormouse_handover::slot::TimerPurpose;

/// Connections visited per turn.
const VISITED_PER_TURN: u32 = 1024;

impl Connections {
    /// Begins to arm the timers of quiet connections again.
    pub(crate) fn follow_new_timeouts(&mut self) {
        self.rearm_from = Some(0);
    }

    /// Whether timers are left to arm again. Until then no slot may move: it could be missed.
    pub(crate) fn follows_new_timeouts(&self) -> bool {
        self.rearm_from.is_some()
    }

    /// Arms the timers of the next connections again.
    pub(super) fn rearm_some(&mut self, settings: &Settings, now_ms: u64) {
        for _ in 0..VISITED_PER_TURN {
            let next = self.rearm_from.and_then(|from| self.slots.next_live(from));
            self.rearm_from = next.map(|index| index + 1);
            match next {
                Some(index) => self.rearm(index, settings, now_ms),
                None => return,
            }
        }
    }

    /// Arms the timer of a quiet connection again, also that of one that is to rest: it may end before that now. A timer of
    /// another purpose stays, and so does that of a connection that waits to be woken: the next one has the new timeouts.
    fn rearm(&mut self, index: u32, settings: &Settings, now_ms: u64) {
        let slot = self.slots.at_mut(index);
        let is_quiet = match slot.timer_purpose() {
            TimerPurpose::Idle | TimerPurpose::None => true,
            TimerPurpose::Rest => !slot.is_wanted(),
            _ => false,
        };
        if is_quiet {
            slot.set_timer_purpose(TimerPurpose::None);
            self.wheel.cancel(&mut self.slots, index);
            self.set_timer(index, settings, now_ms);
        }
    }
}
