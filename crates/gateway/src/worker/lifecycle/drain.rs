//! Many ends at once: a drain, which spreads them over a time, and the stop.
//!
//! A drain closes as many connections as it takes for their number to fall in a straight line to
//! nothing. Those that leave by themselves count, so that what comes back is an even trickle. It
//! keeps nothing but the line: after a crash main says how much of it is left. Whom to close is
//! found by looking through all slots, for many at once: one look a second or less.

use crate::control::talk::DrainOrder;
use crate::slot::Phase;
use crate::worker::Worker;
use crate::worker::established::close::Ending;
use crate::worker::io::Io;
use std::collections::BinaryHeap;

/// How often a drain looks how many should be left.
const STEP_MS: u64 = 100;
/// Connections closed by one step, so that the others are not kept waiting.
const CLOSED_PER_STEP_MAX: usize = 4096;
/// Found by one look through the slots: at least this many, and one in so many of all.
const FOUND_MIN: usize = 1024;
const FOUND_PART: usize = 64;
/// After the grace of a stop, for what is said last to be heard.
const LAST_WORDS_MS: u64 = 1_000;

/// The ends that go on.
#[derive(Default)]
pub(crate) struct Ends {
    drain: Option<Drain>,
    stop: Option<Stop>,
}

struct Stop {
    /// Until then what is pending may finish.
    grace_until_ms: u64,
}

/// A line from all connections to none.
struct Drain {
    begun_ms: u64,
    over_ms: u64,
    at_beginning: u32,
    order: DrainOrder,
    next_ms: u64,
    /// Whom to close next, the last first.
    found: Vec<Found>,
}

/// A connection, by how soon it is to be closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Found {
    /// The smallest is closed first.
    rank: u32,
    index: u32,
    generation: u32,
}

impl Ends {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    pub(crate) fn next_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        let drain_ms = self.drain.as_ref().map(|drain| drain.next_ms);
        let stop_ms = self.stop.as_ref().map(|stop| match stop.grace_until_ms {
            until_ms if until_ms > now_ms => until_ms,
            until_ms => until_ms + LAST_WORDS_MS,
        });
        drain_ms.into_iter().chain(stop_ms).min()
    }
}

impl Drain {
    /// How many may be left now.
    fn may_be_left(&self, now_ms: u64) -> u32 {
        let left_ms = (self.begun_ms + self.over_ms).saturating_sub(now_ms);
        let share = u64::from(self.at_beginning) * left_ms;
        share.div_ceil(self.over_ms.max(1)) as u32
    }

    /// When a connection that was active then is to be closed.
    fn rank(&self, active_s: u32) -> u32 {
        match self.order {
            DrainOrder::Longest => active_s,
            DrainOrder::Shortest => u32::MAX - active_s,
        }
    }
}

impl<I: Io> Worker<I> {
    // ---- drain ----

    /// Accepts nothing more, and begins to close.
    pub(crate) fn begin_to_drain(&mut self, over_ms: u64, order: DrainOrder) {
        self.listeners.stop();
        self.end_originations();
        self.ending.drain = Some(Drain {
            begun_ms: self.now_ms,
            over_ms,
            at_beginning: self.slots.live() + self.handshakes.live() as u32,
            order,
            next_ms: self.now_ms,
            found: Vec::new(),
        });
    }

    /// Closes no more, and accepts again.
    pub(crate) fn stop_draining(&mut self) {
        self.ending.drain = None;
        if !self.ending.is_stopping() {
            self.listeners.go_on();
        }
    }

    fn drain(&mut self) {
        let now_ms = self.now_ms;
        let Some(drain) = self.ending.drain.as_mut().filter(|d| d.next_ms <= now_ms) else {
            return;
        };
        drain.next_ms = now_ms + STEP_MS;
        let may_be_left = drain.may_be_left(now_ms);
        let staying = self.slots.live().saturating_sub(self.leaving);
        let excess = staying.saturating_sub(may_be_left) as usize;
        for _ in 0..excess.min(CLOSED_PER_STEP_MAX) {
            let Some(index) = self.next_to_close() else {
                break;
            };
            self.close(index, Ending::Drained);
        }
    }

    /// Who is closed next. Once the time is up those with pending bytes are, too: what they have
    /// is delivered, within `drain_timeout`.
    fn next_to_close(&mut self) -> Option<u32> {
        if let Some(index) = self.next_found() {
            return Some(index);
        }
        self.find();
        self.next_found()
    }

    fn next_found(&mut self) -> Option<u32> {
        let drain = self.ending.drain.as_mut()?;
        while let Some(found) = drain.found.pop() {
            let Some(slot) = self.slots.get(found.index) else {
                continue;
            };
            // One that has been active since is not the one that has been quiet longest.
            let is_still_it =
                slot.generation == found.generation && drain.rank(slot.active_s) == found.rank;
            if is_still_it && slot.phase() != Phase::Draining {
                return Some(found.index);
            }
        }
        None
    }

    /// Looks through all slots for those who are to be closed first.
    fn find(&mut self) {
        let Some(drain) = &mut self.ending.drain else {
            return;
        };
        let is_over = drain.may_be_left(self.now_ms) == 0;
        let most = FOUND_MIN.max(self.slots.live() as usize / FOUND_PART);
        // The one that is closed last is on top: it gives way to a better one.
        let mut best = BinaryHeap::with_capacity(most + 1);
        for index in self.slots.indices() {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            let may_be_closed = match slot.phase() {
                Phase::Established => slot.at_rest() || is_over,
                Phase::Warm => true,
                Phase::Connecting => is_over,
                Phase::Draining | Phase::Free => false,
            };
            if may_be_closed {
                best.push(Found {
                    rank: drain.rank(slot.active_s),
                    index,
                    generation: slot.generation,
                });
                if best.len() > most {
                    best.pop();
                }
            }
        }
        drain.found = best.into_sorted_vec();
        drain.found.reverse();
    }

    /// Closes a connection properly: the client gets close_notify, the backend a FIN, after what
    /// was on its way to them.
    fn close(&mut self, index: u32, ending: Ending) {
        if !self.is_beyond_doubt(index) {
            return;
        }
        self.slots.header().mark_busy(index);
        let over = self.work(index, |work, slot| work.close(slot, ending));
        self.finish_work(index, over);
    }

    // ---- stop ----

    /// Accepts nothing more; what is pending may finish for a time.
    pub(crate) fn begin_to_stop(&mut self) {
        self.listeners.stop();
        self.end_originations();
        self.ending.drain = None;
        let grace_until_ms = self.now_ms + self.limits.shutdown_grace_ms;
        self.ending.stop.get_or_insert(Stop { grace_until_ms });
    }

    /// Closes who is at rest at once, and everybody when the grace is over.
    fn close_for_the_stop(&mut self) {
        let Some(stop) = &self.ending.stop else {
            return;
        };
        let late = stop.grace_until_ms <= self.now_ms;
        if self.slots.live() == self.leaving {
            return;
        }
        let live: Vec<u32> = self.slots.indices().collect();
        for index in live {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            let unused = matches!(slot.phase(), Phase::Connecting | Phase::Warm);
            if slot.phase() != Phase::Draining && (slot.at_rest() || unused || late) {
                self.close(index, Ending::Stopping);
            }
        }
    }

    /// Is there nothing left to do?
    pub(crate) fn is_finished(&self) -> bool {
        let Some(stop) = &self.ending.stop else {
            return false;
        };
        let nobody_is_left = self.slots.live() == 0 && self.handshakes.live() == 0;
        nobody_is_left || stop.grace_until_ms + LAST_WORDS_MS <= self.now_ms
    }

    // ---- both ----

    /// Called once a turn.
    pub(crate) fn attend_to_ends(&mut self) {
        self.drain();
        self.close_for_the_stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(order: DrainOrder) -> Drain {
        Drain {
            begun_ms: 1_000,
            over_ms: 600_000,
            at_beginning: 6_000,
            order,
            next_ms: 0,
            found: Vec::new(),
        }
    }

    #[test]
    fn connections_become_fewer_in_a_straight_line() {
        let drain = drain(DrainOrder::Longest);
        assert_eq!(drain.may_be_left(1_000), 6_000);
        let mut closed_by_step = Vec::new();
        for step in 0..600 {
            let now_ms = 1_000 + step * 1_000;
            closed_by_step.push(drain.may_be_left(now_ms) - drain.may_be_left(now_ms + 1_000));
        }
        assert_eq!(closed_by_step, vec![10; 600]);
        assert_eq!(drain.may_be_left(601_000), 0);
        assert_eq!(drain.may_be_left(u64::MAX), 0);
    }

    #[test]
    fn a_few_connections_are_spread_as_well() {
        let few = Drain {
            at_beginning: 3,
            ..drain(DrainOrder::Longest)
        };
        let left: Vec<u32> = [0, 199_999, 200_000, 399_999, 400_000, 599_999, 600_000]
            .map(|passed_ms| few.may_be_left(1_000 + passed_ms))
            .to_vec();
        assert_eq!(left, [3, 3, 2, 2, 1, 1, 0]);
    }

    #[test]
    fn the_order_is_by_how_long_they_were_quiet() {
        let longest = drain(DrainOrder::Longest);
        assert!(longest.rank(10) < longest.rank(20));
        let shortest = drain(DrainOrder::Shortest);
        assert!(shortest.rank(20) < shortest.rank(10));
    }
}
