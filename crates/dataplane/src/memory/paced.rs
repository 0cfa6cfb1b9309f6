//! Connections that wait because they have passed as many bytes as they may (`bytes_per_client`,
//! `max_bytes_per_second`).
//!
//! The worker reads neither side of a paced connection, so both senders have to wait; it drops
//! nothing that has come, and sees ends after the wait. The end of a wait is known, so no connection
//! is looked at before. Both directions are paid for together, by the connection that passed the
//! bytes: a connection that passes little is not slowed down by others.

use crate::workspace::Workspace;
use dormouse_handover::slot::{Flag, Phase, Slot};
use dormouse_record::Role;
use dormouse_tables::clients::ClientLimits;
use dormouse_tables::counters::Count;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Waits of connections that are gone are left to end by themselves while there are so few.
const GONE_MAX: usize = 64;

/// All paced connections, by the generation of their slot.
#[derive(Default)]
pub(crate) struct Paced {
    /// Where the slot is.
    indices: HashMap<u32, u32>,
    /// When the wait is over.
    due: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Paced {
    /// A connection has to wait.
    pub(crate) fn push(&mut self, index: u32, generation: u32, due_ms: u64) {
        self.indices.insert(generation, index);
        self.due.push(Reverse((due_ms, generation)));
    }

    /// The connection has ended.
    pub(crate) fn forget(&mut self, generation: u32) {
        if self.indices.is_empty() || self.indices.remove(&generation).is_none() {
            return;
        }
        // A client in debt that connects and disconnects is never due: no more waits are kept of
        // connections that ended than of connections that live.
        if self.due.len() > 2 * self.indices.len() + GONE_MAX {
            let indices = &self.indices;
            self.due
                .retain(|Reverse((_, generation))| indices.contains_key(generation));
        }
    }

    /// Its slot is somewhere else.
    pub(crate) fn moved(&mut self, generation: u32, to: u32) {
        if let Some(index) = self.indices.get_mut(&generation) {
            *index = to;
        }
    }

    /// The next whose wait is over: index and generation.
    pub(crate) fn next_due(&mut self, now_ms: u64) -> Option<(u32, u32)> {
        while let Some(&Reverse((due_ms, generation))) = self.due.peek() {
            if due_ms > now_ms {
                return None;
            }
            self.due.pop();
            if let Some(index) = self.indices.remove(&generation) {
                return Some((index, generation));
            }
        }
        None
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    /// The pace has changed: no connection waits for the former one.
    pub(crate) fn end_all(&mut self) {
        let all = self.indices.keys().map(|&generation| (0, generation));
        self.due = all.map(Reverse).collect();
    }
}

/// Whose limit it was.
#[derive(Clone, Copy)]
pub(crate) enum PaceLimit {
    Client,
    All,
}

/// Pays for the bytes that the step on this slot has received. `Some`: the connection has to wait
/// for this many milliseconds, by this limit.
pub(crate) fn pay<I>(
    slot: &mut Slot,
    limits: ClientLimits,
    work: &Workspace<I>,
) -> Option<(u64, PaceLimit)> {
    // Of two slots with a joint between them the client's pays.
    let is_client_s = slot.has(Flag::PassThrough) || slot.tls.role() == Role::Server;
    if work.bytes.received() == 0 || !is_client_s || slot.phase() != Phase::Established {
        return None;
    }
    let (clients, now_ms) = (&work.clients, work.now_ms);
    let received = work.bytes.received();
    let own_ms = clients.pay(slot.client(), limits, received, now_ms);
    let all_ms = clients.pay_for_all(limits, received, now_ms);
    let wait_ms = own_ms.max(all_ms);
    if wait_ms == 0 || slot.has(Flag::Paced) {
        return None;
    }
    slot.set(Flag::Paced);
    let (limit, count) = match own_ms >= all_ms {
        true => (PaceLimit::Client, Count::PacedClient),
        false => (PaceLimit::All, Count::PacedAll),
    };
    work.count.add(count, 1);
    Some((wait_ms, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that end before their wait is over leave nothing that grows.
    #[test]
    fn those_who_come_and_go_take_no_room() {
        let mut paced = Paced::default();
        paced.push(1, 1, 1_000_000);
        for generation in 2..10_000 {
            paced.push(2, generation, u64::from(generation) * 1_000);
            paced.forget(generation);
        }
        assert!(paced.due.len() <= 2 + GONE_MAX, "{}", paced.due.len());
        assert_eq!(paced.next_due(1_000_000), Some((1, 1)));
    }

    #[test]
    fn each_wait_ends_once_and_where_the_slot_is_then() {
        let mut paced = Paced::default();
        paced.push(1, 11, 100);
        paced.push(2, 12, 50);
        paced.push(3, 13, 60);
        paced.moved(11, 9);
        paced.forget(13);
        assert_eq!(paced.next_deadline_ms(), Some(50));
        assert_eq!(paced.next_due(49), None);
        assert_eq!(paced.next_due(80), Some((2, 12)));
        assert_eq!(paced.next_due(80), None);
        paced.end_all();
        assert_eq!(paced.next_due(80), Some((9, 11)));
        assert_eq!((paced.next_due(999), paced.len()), (None, 0));
        assert_eq!(paced.next_deadline_ms(), None);
    }
}
