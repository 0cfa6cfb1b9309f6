//! The queue of handshakes that are ready for a step.
//!
//! 1. Handshakes that we have already answered: the costly part is done, the rest is cheap.
//! 2. Handshakes that resume a session: they need no signature. One turn in eight goes to the third
//!    class, so that clients which offer false sessions can't starve the others.
//! 3. Full handshakes.
//!
//! Within a class, the oldest handshake comes first while handshakes are served in time. When the
//! oldest has waited for more than a second, there are too many. Then the newest comes first, since
//! the clients of older ones have probably given up. (A client that has given up gets no answer.)
//!
//! A few handshakes need no order: the last of them waits for a few milliseconds in any order. So their hellos are not
//! looked at.

use crate::token::Id;
use std::collections::VecDeque;

/// Wait after which later handshakes overtake a handshake.
const PATIENCE_MS: u64 = 1_000;

/// One turn in this many goes to the third class.
const TURNS: u32 = 8;

/// One turn in this many goes to the oldest handshake, so that overtaken handshakes also end.
const OLDEST_TURNS: u32 = 4;

/// Number of queued handshakes that need no order.
const FEW: usize = 8;

/// A client may have given up after this wait.
const GIVEN_UP_MS: u64 = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiting {
    id: Id,
    since_ms: u64,
}

/// Handshakes that wait for a step.
#[derive(Default)]
pub(crate) struct Queue {
    answered: VecDeque<Id>,
    /// Not sorted yet.
    new: VecDeque<Waiting>,
    resuming: VecDeque<Waiting>,
    full: VecDeque<Waiting>,
    turns: u32,
}

impl Queue {
    /// Whether a handshake that has not begun is queued.
    pub(crate) fn has_queued(&self) -> bool {
        !(self.new.is_empty() && self.resuming.is_empty() && self.full.is_empty())
    }

    /// Whether the queue has work. `may_begin`: another handshake may begin.
    pub(crate) fn is_ready(&self, may_begin: bool) -> bool {
        !self.answered.is_empty() || !self.new.is_empty() || (may_begin && self.has_queued())
    }

    /// Queues a handshake that we have already answered.
    pub(crate) fn push_answered(&mut self, id: Id) {
        self.answered.push_back(id);
    }

    /// Queues a handshake whose hello may have arrived.
    pub(crate) fn push_new(&mut self, id: Id, now_ms: u64) {
        let since_ms = now_ms;
        self.new.push_back(Waiting { id, since_ms });
    }

    /// Sorts new handshakes into classes by `resumes`, if they are more than a few.
    pub(crate) fn sort(&mut self, mut resumes: impl FnMut(Id) -> bool) {
        let are_few = self.new.len() + self.full.len() + self.resuming.len() <= FEW;
        while let Some(waiting) = self.new.pop_front() {
            if !are_few && resumes(waiting.id) {
                self.resuming.push_back(waiting);
            } else {
                self.full.push_back(waiting);
            }
        }
    }

    /// Returns the handshakes in the order in which they will probably be next, if no other one arrives.
    pub(crate) fn upcoming(&self, now_ms: u64) -> impl Iterator<Item = Id> {
        let classes = [&self.resuming, &self.full];
        let upcoming = classes.into_iter().flat_map(move |class| {
            let newest_first = class.front().is_some_and(|front| is_late(front, now_ms));
            let at = move |nth: usize| match newest_first {
                true => class.len() - 1 - nth,
                false => nth,
            };
            (0..class.len()).filter_map(move |nth| class.get(at(nth)))
        });
        upcoming.map(|waiting| waiting.id)
    }

    /// Returns the next handshake, and whether its client may have given up.
    pub(crate) fn next(&mut self, now_ms: u64, may_begin: bool) -> Option<(Id, bool)> {
        if let Some(id) = self.answered.pop_front() {
            return Some((id, true));
        }
        if !may_begin {
            return None;
        }
        self.turns = self.turns.wrapping_add(1);
        let (first, second) = if self.turns.is_multiple_of(TURNS) {
            (&mut self.full, &mut self.resuming)
        } else {
            (&mut self.resuming, &mut self.full)
        };
        let oldest = self.turns.is_multiple_of(OLDEST_TURNS);
        let waiting = take(first, now_ms, oldest).or_else(|| take(second, now_ms, oldest))?;
        Some((waiting.id, waiting.since_ms + GIVEN_UP_MS <= now_ms))
    }
}

fn take(queue: &mut VecDeque<Waiting>, now_ms: u64, oldest: bool) -> Option<Waiting> {
    let front = queue.front()?;
    if !oldest && is_late(front, now_ms) {
        queue.pop_back()
    } else {
        queue.pop_front()
    }
}

/// Whether later handshakes overtake this one.
fn is_late(waiting: &Waiting, now_ms: u64) -> bool {
    waiting.since_ms + PATIENCE_MS < now_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &mut Queue, now_ms: u64) -> Vec<u32> {
        std::iter::from_fn(|| queue.next(now_ms, true))
            .map(|((index, _), _)| index)
            .collect()
    }

    #[test]
    fn serves_answered_then_resuming_then_full_handshakes() {
        let mut queue = Queue::default();
        for index in 0..10 {
            queue.push_new((index, 1), 10);
        }
        queue.push_answered((17, 1));
        queue.sort(|(index, _)| index % 3 == 0);
        assert_eq!(order(&mut queue, 10), [17, 0, 3, 6, 9, 1, 2, 4, 5, 7, 8]);
        assert!(!queue.is_ready(true));
    }

    #[test]
    fn full_handshakes_are_not_starved_by_resuming_ones() {
        let mut queue = Queue::default();
        for index in 0..40 {
            queue.push_new((index, 1), 10);
        }
        queue.sort(|(index, _)| index != 0);
        let at = order(&mut queue, 10).iter().position(|&index| index == 0);
        assert!(at.is_some_and(|at| at < TURNS as usize), "{at:?}");
    }

    #[test]
    fn serves_the_newest_first_under_overload() {
        let mut queue = Queue::default();
        for index in 0..4 {
            queue.push_new((index, 1), u64::from(index) * 400);
        }
        queue.sort(|_| false);
        assert_eq!(queue.next(1_000, true), Some(((0, 1), true)), "in time");
        // The front handshake was queued at 400 and is too old at 1,401.
        assert_eq!(queue.next(1_401, true), Some(((3, 1), true)));
        assert_eq!(queue.next(1_401, true), Some(((2, 1), true)));
        assert_eq!(queue.next(1_401, true), Some(((1, 1), true)));
    }

    #[test]
    fn upcoming_handshakes_are_those_that_come_next() {
        let mut queue = Queue::default();
        for index in 0..20 {
            queue.push_new((index, 1), 10);
        }
        queue.sort(|(index, _)| index % 5 == 0);
        for now_ms in [10, 2_000] {
            // The turns of other classes and of the oldest handshake are no matter here.
            queue.turns = 0;
            let expected: Vec<Id> = queue.upcoming(now_ms).take(3).collect();
            let next: Vec<Id> = (0..3)
                .map(|_| queue.next(now_ms, true).unwrap().0)
                .collect();
            assert_eq!(next, expected, "at {now_ms}");
        }
        assert_eq!(queue.upcoming(2_000).count(), 14);
    }

    #[test]
    fn a_few_handshakes_are_not_sorted() {
        let mut queue = Queue::default();
        for index in 0..FEW as u32 {
            queue.push_new((index, 1), 10);
        }
        queue.sort(|_| panic!("sorted"));
        assert_eq!(queue.next(10, false), None, "must not begin");
        assert_eq!(queue.next(10, true), Some(((0, 1), false)));
        assert_eq!(queue.next(9 + GIVEN_UP_MS, true), Some(((1, 1), false)));
        assert_eq!(queue.next(10 + GIVEN_UP_MS, true), Some(((2, 1), true)));
        for index in 10..10 + FEW as u32 {
            queue.push_new((index, 1), 20);
        }
        queue.sort(|(index, _)| index == 12);
        assert_eq!(queue.next(20, true), Some(((12, 1), false)));
    }
}
