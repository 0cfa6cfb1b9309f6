//! The queue of handshakes that are ready for a step.
//!
//! 1. Handshakes that have had our answer: the rest is cheap, and the costly part is spent.
//! 2. Handshakes that resume a session: they need no signature. One turn in eight goes to the third
//!    class, so that a client that offers a false session can't keep all others out.
//! 3. Full handshakes.
//!
//! Within a class the oldest comes first, as long as handshakes are served in time. When the oldest
//! has waited for longer than clients like to, there are too many: then the newest comes first,
//! since the clients of the others have most likely given up (and a client that has given up gets no
//! answer).

use crate::token::Id;
use std::collections::VecDeque;

/// A handshake that waits longer than this is overtaken by later ones.
const PATIENCE_MS: u64 = 1_000;

/// One turn in this many is for the third class.
const TURNS: u32 = 8;

/// When there are too many, one turn in this many is for the oldest.
const OLDEST_TURNS: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiting {
    id: Id,
    since_ms: u64,
}

/// Handshakes that wait for a turn.
#[derive(Default)]
pub(crate) struct Queue {
    known: VecDeque<Id>,
    /// Not looked at yet.
    new: VecDeque<Waiting>,
    resuming: VecDeque<Waiting>,
    full: VecDeque<Waiting>,
    turns: u32,
}

impl Queue {
    /// Does a handshake wait that has not begun?
    pub(crate) fn has_newcomers(&self) -> bool {
        !(self.new.is_empty() && self.resuming.is_empty() && self.full.is_empty())
    }

    /// Can a handshake have a turn? `may_begin`: there is a place for one that has not begun.
    pub(crate) fn is_ready(&self, may_begin: bool) -> bool {
        !self.known.is_empty() || !self.new.is_empty() || (may_begin && self.has_newcomers())
    }

    /// One which has had our answer is ready for more.
    pub(crate) fn push_known(&mut self, id: Id) {
        self.known.push_back(id);
    }

    /// One whose hello may have come.
    pub(crate) fn push_new(&mut self, id: Id, now_ms: u64) {
        let since_ms = now_ms;
        self.new.push_back(Waiting { id, since_ms });
    }

    /// Sorts the new ones by what `resumes` says. A single one needs no order.
    pub(crate) fn sort(&mut self, mut resumes: impl FnMut(Id) -> bool) {
        let alone = self.new.len() == 1 && self.full.is_empty() && self.resuming.is_empty();
        while let Some(waiting) = self.new.pop_front() {
            if !alone && resumes(waiting.id) {
                self.resuming.push_back(waiting);
            } else {
                self.full.push_back(waiting);
            }
        }
    }

    /// The next one, and whether it had to wait for its turn.
    pub(crate) fn next(&mut self, now_ms: u64, may_begin: bool) -> Option<(Id, bool)> {
        if let Some(id) = self.known.pop_front() {
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
        // So that handshakes that were overtaken end, too.
        let oldest = self.turns.is_multiple_of(OLDEST_TURNS);
        let waiting = take(first, now_ms, oldest).or_else(|| take(second, now_ms, oldest))?;
        Some((waiting.id, waiting.since_ms < now_ms))
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
            queue.push_new((index, 1), 10);
        }
        queue.push_known((7, 1));
        queue.sort(|(index, _)| index % 2 == 0);
        assert_eq!(order(&mut queue, 10), [7, 0, 2, 4, 1, 3, 5]);
        assert!(!queue.is_ready(true));
    }

    #[test]
    fn the_others_have_a_turn_now_and_then() {
        let mut queue = Queue::default();
        for index in 0..40 {
            queue.push_new((index, 1), 10);
        }
        queue.sort(|(index, _)| index != 0);
        let at = order(&mut queue, 10).iter().position(|&index| index == 0);
        assert!(at.is_some_and(|at| at < TURNS as usize), "{at:?}");
    }

    #[test]
    fn when_there_are_too_many_the_newest_is_first() {
        let mut queue = Queue::default();
        for index in 0..4 {
            queue.push_new((index, 1), u64::from(index) * 400);
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
        queue.push_new((3, 1), 10);
        queue.sort(|_| panic!("looked at"));
        assert_eq!(queue.next(10, false), None, "no place");
        assert_eq!(queue.next(10, true), Some(((3, 1), false)));
    }
}
