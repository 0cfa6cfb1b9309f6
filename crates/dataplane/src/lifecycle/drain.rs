//! A drain: many connections close, spread over a time.
//!
//! A drain closes as many connections as it takes for their number to fall in a straight line to
//! nothing. Those that leave by themselves count, so that what comes back is an even trickle. It
//! keeps nothing but the line: after a crash main says how much of it is left. Which connections to
//! close is found by looking through all slots, for many at once: one look a second or less.

use crate::established::Connections;
use crate::established::close_reason::CloseReason;
use crate::established::step::Event;
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_handover::control::DrainOrder;
use dormouse_handover::slot::Phase;
use std::collections::BinaryHeap;

/// How often a drain looks how many should be left.
const STEP_MS: u64 = 100;
/// Connections closed by one step, so that the others are not kept waiting.
const CLOSED_PER_STEP_MAX: usize = 4096;
/// Found by one look through the slots: at least this many, and at least this part of all.
const FOUND_MIN: usize = 1024;
const FOUND_PART: usize = 64;

/// A line from all connections to none.
pub(crate) struct Drain {
    begun_ms: u64,
    over_ms: u64,
    at_beginning: u32,
    order: DrainOrder,
    next_ms: u64,
    /// Connections to close next, the last first.
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

impl Drain {
    /// A line that begins now; `at_beginning` counts connections and handshakes.
    pub(crate) fn new(now_ms: u64, over_ms: u64, order: DrainOrder, at_beginning: u32) -> Drain {
        Drain {
            begun_ms: now_ms,
            over_ms,
            at_beginning,
            order,
            next_ms: now_ms,
            found: Vec::new(),
        }
    }

    /// When to close next.
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        self.next_ms
    }

    /// Closes as many connections as the line asks for now.
    pub(crate) fn turn<I: Io>(
        &mut self,
        connections: &mut Connections,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        if self.next_ms > work.now_ms {
            return;
        }
        self.next_ms = work.now_ms + STEP_MS;
        let may_be_left = self.may_be_left(work.now_ms);
        let staying = connections.live().saturating_sub(connections.draining());
        let excess = staying.saturating_sub(may_be_left) as usize;
        for _ in 0..excess.min(CLOSED_PER_STEP_MAX) {
            let Some(index) = self.next_to_close(connections, work.now_ms) else {
                break;
            };
            let close = Event::Close(CloseReason::Drained);
            connections.step(index, close, settings, work);
        }
    }

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

    /// The connection to close next. Once the time is up those with pending bytes are closed, too:
    /// what they have is delivered, within `drain_timeout`.
    fn next_to_close(&mut self, connections: &Connections, now_ms: u64) -> Option<u32> {
        if let Some(index) = self.next_found(connections) {
            return Some(index);
        }
        self.find(connections, now_ms);
        self.next_found(connections)
    }

    fn next_found(&mut self, connections: &Connections) -> Option<u32> {
        while let Some(found) = self.found.pop() {
            let Some(slot) = connections.slots().get(found.index) else {
                continue;
            };
            // One that has been active since is not the one that has been quiet longest.
            let is_still_it =
                slot.generation == found.generation && self.rank(slot.active_s) == found.rank;
            if is_still_it && slot.phase() != Phase::Draining {
                return Some(found.index);
            }
        }
        None
    }

    /// Looks through all slots for the connections that are to be closed first.
    fn find(&mut self, connections: &Connections, now_ms: u64) {
        let slots = connections.slots();
        let is_over = self.may_be_left(now_ms) == 0;
        let most = FOUND_MIN.max(slots.live() as usize / FOUND_PART);
        // The one that is closed last is on top: it gives way to a better one.
        let mut best = BinaryHeap::with_capacity(most + 1);
        for index in slots.indices() {
            let Some(slot) = slots.get(index) else {
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
                    rank: self.rank(slot.active_s),
                    index,
                    generation: slot.generation,
                });
                if best.len() > most {
                    best.pop();
                }
            }
        }
        self.found = best.into_sorted_vec();
        self.found.reverse();
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
