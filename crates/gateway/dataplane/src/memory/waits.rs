//! Waits: connections that are looked at again at a certain time, in order of these times.

use crate::token::Id;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Number of waits that ended early and may remain in the queue.
const GONE_MAX: usize = 64;

/// Waiting connections, each with a value of the caller.
pub(crate) struct Waits<T> {
    /// Ends of the waits. Generations are used again after 2^28 connections, and an old connection may still wait.
    waits: HashMap<Id, (u64, T)>,
    /// The same in order, and waits that ended early.
    due: BinaryHeap<Reverse<(u64, Id)>>,
}

impl<T> Default for Waits<T> {
    fn default() -> Waits<T> {
        Waits {
            waits: HashMap::new(),
            due: BinaryHeap::new(),
        }
    }
}

impl<T> Waits<T> {
    /// Adds a connection, or replaces its wait.
    pub(crate) fn push(&mut self, id: Id, due_ms: u64, value: T) {
        self.waits.insert(id, (due_ms, value));
        self.due.push(Reverse((due_ms, id)));
        self.drop_gone();
    }

    /// Ends the wait of a connection early. Returns its time and value, if it waited.
    pub(crate) fn forget(&mut self, id: Id) -> Option<(u64, T)> {
        if self.waits.is_empty() {
            return None;
        }
        let wait = self.waits.remove(&id)?;
        self.drop_gone();
        Some(wait)
    }

    /// Updates the index of a moved slot.
    pub(crate) fn moved(&mut self, from: u32, to: u32, generation: u32) {
        if let Some((due_ms, value)) = self.forget((from, generation)) {
            self.push((to, generation), due_ms, value);
        }
    }

    /// Takes the next connection whose wait is over.
    pub(crate) fn next_due(&mut self, now_ms: u64) -> Option<(Id, T)> {
        while let Some(&Reverse((due_ms, id))) = self.due.peek() {
            if due_ms > now_ms {
                return None;
            }
            self.due.pop();
            let is_current = self.waits.get(&id).is_some_and(|wait| wait.0 == due_ms);
            if is_current && let Some((_, value)) = self.waits.remove(&id) {
                return Some((id, value));
            }
        }
        None
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    pub(crate) fn len(&self) -> usize {
        self.waits.len()
    }

    /// Ends all waits at this time.
    pub(crate) fn end_all(&mut self, due_ms: u64) {
        self.waits.values_mut().for_each(|wait| wait.0 = due_ms);
        let all = self.waits.keys().map(|&id| (due_ms, id));
        self.due = all.map(Reverse).collect();
    }

    /// Without a limit, a client that keeps connecting and disconnecting would fill the queue with waits that are far
    /// in the future.
    fn drop_gone(&mut self) {
        if self.due.len() > 2 * self.waits.len() + GONE_MAX {
            let waits = &self.waits;
            self.due.retain(|Reverse((due_ms, id))| {
                waits.get(id).is_some_and(|wait| wait.0 == *due_ms)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that close before their wait is over, and waits that are replaced, do not make the queue grow.
    #[test]
    fn ended_waits_do_not_accumulate() {
        let mut waits = Waits::default();
        waits.push((1, 1), 1_000_000, ());
        for generation in 2..10_000 {
            waits.push((2, generation), u64::from(generation) * 1_000, ());
            waits.forget((2, generation));
            waits.push((1, 1), 1_000_000 + u64::from(generation), ());
        }
        assert!(waits.due.len() <= 2 + GONE_MAX, "{}", waits.due.len());
        assert_eq!(waits.next_due(1_000_001), None, "replaced by a later wait");
        assert_eq!(waits.next_due(1_009_999), Some(((1, 1), ())));
        assert_eq!(waits.next_due(u64::MAX), None);
    }

    #[test]
    fn each_wait_ends_once_with_the_current_index() {
        let mut waits = Waits::default();
        waits.push((1, 11), 100, 'a');
        waits.push((2, 12), 50, 'b');
        waits.push((3, 13), 60, 'c');
        waits.moved(1, 9, 11);
        assert_eq!(waits.forget((3, 13)), Some((60, 'c')));
        assert_eq!(waits.next_deadline_ms(), Some(50));
        assert_eq!(waits.next_due(49), None);
        assert_eq!(waits.next_due(80), Some(((2, 12), 'b')));
        assert_eq!(waits.next_due(80), None);
        waits.end_all(0);
        assert_eq!(waits.next_due(80), Some(((9, 11), 'a')));
        assert_eq!((waits.next_due(999), waits.len()), (None, 0));
        assert_eq!(waits.next_deadline_ms(), None);
    }

    /// After 2^28 connections, one gets the generation of an old connection that waits.
    #[test]
    fn a_generation_may_be_used_again() {
        let mut waits = Waits::default();
        waits.push((1, 7), 100, ());
        waits.push((2, 7), 50, ());
        waits.forget((3, 7));
        waits.forget((2, 7));
        assert_eq!(waits.next_due(100), Some(((1, 7), ())));
        waits.push((1, 7), 100, ());
        waits.push((2, 7), 50, ());
        assert_eq!(waits.next_due(100), Some(((2, 7), ())));
        assert_eq!(waits.next_due(100), Some(((1, 7), ())));
    }
}
