//! Connections recovered from a predecessor: their interest, timers and counts, and the deferred check of their sockets.

use crate::established::Connections;
use crate::established::{interest, unverified};
use crate::io::Io;
use crate::settings::Settings;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_handover::slot::Phase;

/// Connections whose sockets are verified per turn in the background.
const VERIFIED_PER_TURN: usize = 256;

impl Connections {
    /// Sets interest and timers of a predecessor's connections, and counts them by state. There may be millions, so it
    /// looks at each of them once. `same_poller`: the poller is the predecessor's, so it already watches what the slots say.
    /// Returns the warm ones.
    pub(crate) fn restore<I: Io>(
        &mut self,
        same_poller: bool,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) -> Vec<u32> {
        let mut warm = Vec::new();
        let live: Vec<u32> = self.slots.indices().collect();
        for index in live {
            let slot = self.slots.at_mut(index);
            if !same_poller {
                interest::forget(slot);
            }
            interest::distrust_edges(slot);
            if slot.phase() == Phase::Warm {
                warm.push(index);
            }
            self.count(index);
            self.set_timer(index, settings, work.now_ms);
            // Frees the slot if the kernel does not watch its sockets.
            self.apply_interest(index, work);
        }
        self.slots.settle_move();
        self.survey_from = Some(0);
        warm
    }

    /// Whether sockets of a predecessor are not verified yet.
    pub(crate) fn has_unverified(&self) -> bool {
        !self.unverified.is_empty()
    }

    /// Verifies some of the unverified sockets.
    pub(crate) fn verify_some<I: Io>(&mut self, work: &mut Workspace<I>) {
        for _ in 0..VERIFIED_PER_TURN {
            let Some(index) = self.unverified.next() else {
                return;
            };
            self.verify(index, work);
        }
    }

    /// Verifies the sockets of a slot by their cookies, once, before the slot is first used. Returns
    /// `false` if they are other sockets; the slot is then free.
    #[inline]
    pub(crate) fn verify<I: Io>(&mut self, index: u32, work: &mut Workspace<I>) -> bool {
        self.unverified.is_empty() || self.verify_now(index, work)
    }

    fn verify_now<I: Io>(&mut self, index: u32, work: &mut Workspace<I>) -> bool {
        if !self.unverified.take(index) {
            return true;
        }
        // A stop frees connections without a step.
        let Some(slot) = self.slots.get(index) else {
            return false;
        };
        if unverified::are_same_sockets(slot, &work.io) {
            return true;
        }
        self.unlist(index, work);
        unverified::note_unsound(&self.slots, index, work);
        unverified::reset(&mut self.slots, index, work);
        false
    }

    /// Recounts this worker's connections by backend and by route.
    pub(crate) fn recount<I>(&self, work: &Workspace<I>) {
        work.traffic.forget_own();
        let counted = self
            .iter()
            .inspect(|slot| traffic::enter(slot, &work.traffic));
        work.backends.recount(counted.map(|slot| slot.backend));
    }
}
