//! Whose turn it is among the handshakes that are ready.
//!
//! 1. Those which have had our answer: what is left of them is cheap, and the costly part is spent.
//! 2. Those who come back with a session: no signature. One turn in eight is left to the others, so
//!    that somebody who offers what is no session can't keep everybody out.
//! 3. Full handshakes.
//!
//! Within a class the first comes first, as long as they are served in time. When the one at the
//! front has waited for longer than clients like to, there are too many: then the newest comes
//! first, since the others are the likeliest to have given up (and whoever has is not answered).

use std::collections::VecDeque;

/// Who waits longer than this is passed by those who came later.
const PATIENCE_MS: u64 = 1_000;

/// So many turns, and one is for the class that is next in line.
const TURNS: u32 = 8;

/// When there are too many, one turn in so many is for the oldest.
const OLDEST_TURNS: u32 = 4;

/// A handshake in flight: its index and generation.
pub(crate) type Name = (u32, u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiting {
    name: Name,
    since_ms: u64,
}

/// Who waits for a turn.
#[derive(Default)]
pub(crate) struct Queue {
    known: VecDeque<Name>,
    /// Not looked at yet.
    new: VecDeque<Waiting>,
    resuming: VecDeque<Waiting>,
    full: VecDeque<Waiting>,
    turns: u32,
}

impl Queue {
    /// Somebody waits who has not begun.
    pub(crate) fn has_newcomers(&self) -> bool {
        !(self.new.is_empty() && self.resuming.is_empty() && self.full.is_empty())
    }

    /// Somebody can have a turn; `may_begin`: there is a place for one who has not begun.
    pub(crate) fn is_ready(&self, may_begin: bool) -> bool {
        !self.known.is_empty() || !self.new.is_empty() || (may_begin && self.has_newcomers())
    }

    /// One which has had our answer is ready for more.
    pub(crate) fn push_known(&mut self, index: u32, generation: u32) {
        self.known.push_back((index, generation));
    }

    /// One whose hello may have come.
    pub(crate) fn push_new(&mut self, index: u32, generation: u32, now_ms: u64) {
        self.new.push_back(Waiting {
            name: (index, generation),
            since_ms: now_ms,
        });
    }

    /// Sorts the new ones by what `resumes` says. A single one needs no order.
    pub(crate) fn sort(&mut self, mut resumes: impl FnMut(Name) -> bool) {
        let alone = self.new.len() == 1 && self.full.is_empty() && self.resuming.is_empty();
        while let Some(waiting) = self.new.pop_front() {
            if !alone && resumes(waiting.name) {
                self.resuming.push_back(waiting);
            } else {
                self.full.push_back(waiting);
            }
        }
    }

    /// The next one, and whether it had to wait for its turn.
    pub(crate) fn next(&mut self, now_ms: u64, may_begin: bool) -> Option<(Name, bool)> {
        if let Some(name) = self.known.pop_front() {
            return Some((name, true));
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
        // So that those who are passed by have an end of it, too.
        let oldest = self.turns.is_multiple_of(OLDEST_TURNS);
        let waiting = take(first, now_ms, oldest).or_else(|| take(second, now_ms, oldest))?;
        Some((waiting.name, waiting.since_ms < now_ms))
    }
}

fn take(queue: &mut VecDeque<Waiting>, now_ms: u64, oldest: bool) -> Option<Waiting> {
    let front = queue.front()?;
    if !oldest && front.since_ms + PATIENCE_MS < now_ms {
        queue.pop_back()
    } else {
        queue.pop_front()
    }
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
    fn answered_ones_then_sessions_then_the_rest() {
        let mut queue = Queue::default();
        for index in 0..6 {
            queue.push_new(index, 1, 10);
        }
        queue.push_known(7, 1);
        queue.sort(|(index, _)| index % 2 == 0);
        assert_eq!(order(&mut queue, 10), [7, 0, 2, 4, 1, 3, 5]);
        assert!(!queue.is_ready(true));
    }

    #[test]
    fn the_others_have_a_turn_now_and_then() {
        let mut queue = Queue::default();
        for index in 0..40 {
            queue.push_new(index, 1, 10);
        }
        queue.sort(|(index, _)| index != 0);
        let at = order(&mut queue, 10).iter().position(|&index| index == 0);
        assert!(at.is_some_and(|at| at < TURNS as usize), "{at:?}");
    }

    #[test]
    fn when_there_are_too_many_the_newest_is_first() {
        let mut queue = Queue::default();
        for index in 0..4 {
            queue.push_new(index, 1, u64::from(index) * 400);
        }
        queue.sort(|_| false);
        assert_eq!(queue.next(1_000, true), Some(((0, 1), true)), "in time");
        // The front one came at 400 and is too old at 1,401.
        assert_eq!(queue.next(1_401, true), Some(((3, 1), true)));
        assert_eq!(queue.next(1_401, true), Some(((2, 1), true)));
        assert_eq!(queue.next(1_401, true), Some(((1, 1), true)));
    }

    #[test]
    fn one_alone_is_not_looked_at() {
        let mut queue = Queue::default();
        queue.push_new(3, 1, 10);
        queue.sort(|_| panic!("looked at"));
        assert_eq!(queue.next(10, false), None, "no place");
        assert_eq!(queue.next(10, true), Some(((3, 1), false)));
    }
}
