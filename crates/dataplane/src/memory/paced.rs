//! Paced connections: rate-limited by `bytes_per_client` or `max_bytes_per_second`.
//!
//! The worker reads neither side of a paced connection, so both senders have to wait. It drops no
//! received bytes, and notices closed sockets after the wait. The end of a wait is known, so the
//! worker does not serve the connection before. Both directions count, and they count for the
//! connection that moved the bytes, so a connection with little traffic is not slowed down by others.

use crate::token::Id;
use dormouse_handover::slot::{Flag, Phase, Slot};
use dormouse_record::Role;
use dormouse_tables::clients::{ClientLimits, Clients};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Number of waits of closed connections that may remain in the queue.
const GONE_MAX: usize = 64;

/// The paced connections.
#[derive(Default)]
pub(crate) struct Paced {
    /// Ends of the waits. Generations are used again after 2^28 connections, and an old connection may still wait.
    waits: HashMap<Id, u64>,
    /// The same in order, and those of connections that have closed or moved.
    due: BinaryHeap<Reverse<(u64, Id)>>,
}

impl Paced {
    /// Adds a connection that has to wait.
    pub(crate) fn push(&mut self, index: u32, generation: u32, due_ms: u64) {
        self.waits.insert((index, generation), due_ms);
        self.due.push(Reverse((due_ms, (index, generation))));
    }

    /// Removes a closed connection.
    pub(crate) fn forget(&mut self, index: u32, generation: u32) {
        if self.waits.is_empty() || self.waits.remove(&(index, generation)).is_none() {
            return;
        }
        // Without a limit, a client that keeps connecting and disconnecting would fill the queue with
        // waits that are far in the future.
        if self.due.len() > 2 * self.waits.len() + GONE_MAX {
            let waits = &self.waits;
            self.due.retain(|Reverse((_, id))| waits.contains_key(id));
        }
    }

    /// Updates the index of a moved slot.
    pub(crate) fn moved(&mut self, from: u32, to: u32, generation: u32) {
        if let Some(due_ms) = self.waits.remove(&(from, generation)) {
            self.push(to, generation, due_ms);
        }
    }

    /// Takes the next connection whose wait is over: its index and generation.
    pub(crate) fn next_due(&mut self, now_ms: u64) -> Option<Id> {
        while let Some(&Reverse((due_ms, id))) = self.due.peek() {
            if due_ms > now_ms {
                return None;
            }
            self.due.pop();
            if self.waits.remove(&id).is_some() {
                return Some(id);
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

    /// Ends all waits, because the rate limits have changed.
    pub(crate) fn end_all(&mut self) {
        self.waits.values_mut().for_each(|due_ms| *due_ms = 0);
        let all = self.waits.keys().map(|&id| (0, id));
        self.due = all.map(Reverse).collect();
    }
}

/// The limit that makes a connection wait.
#[derive(Clone, Copy)]
pub(crate) enum PaceLimit {
    /// `bytes_per_client`.
    Client,
    /// `max_bytes_per_second`.
    All,
}

/// Charges the bytes that the step on this slot has received. `Some`: the connection must wait for
/// this many milliseconds, because of this limit.
pub(crate) fn pay(
    slot: &mut Slot,
    received: u64,
    limits: ClientLimits,
    clients: &Clients,
    now_ms: u64,
) -> Option<(u64, PaceLimit)> {
    // Of two slots with a joint between them, only the client's is charged.
    let is_client_side = slot.has(Flag::PassThrough) || slot.tls.role() == Role::Server;
    if received == 0 || !is_client_side || slot.phase() != Phase::Established {
        return None;
    }
    let own_ms = clients.pay(slot.client(), limits, received, now_ms);
    let all_ms = clients.pay_for_all(limits, received, now_ms);
    let wait_ms = own_ms.max(all_ms);
    if wait_ms == 0 || slot.has(Flag::Paced) {
        return None;
    }
    slot.set(Flag::Paced);
    let limit = match own_ms >= all_ms {
        true => PaceLimit::Client,
        false => PaceLimit::All,
    };
    Some((wait_ms, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that close before their wait is over do not make the queue grow.
    #[test]
    fn closed_connections_do_not_accumulate() {
        let mut paced = Paced::default();
        paced.push(1, 1, 1_000_000);
        for generation in 2..10_000 {
            paced.push(2, generation, u64::from(generation) * 1_000);
            paced.forget(2, generation);
        }
        assert!(paced.due.len() <= 2 + GONE_MAX, "{}", paced.due.len());
        assert_eq!(paced.next_due(1_000_000), Some((1, 1)));
    }

    #[test]
    fn each_wait_ends_once_with_the_current_index() {
        let mut paced = Paced::default();
        paced.push(1, 11, 100);
        paced.push(2, 12, 50);
        paced.push(3, 13, 60);
        paced.moved(1, 9, 11);
        paced.forget(3, 13);
        assert_eq!(paced.next_deadline_ms(), Some(50));
        assert_eq!(paced.next_due(49), None);
        assert_eq!(paced.next_due(80), Some((2, 12)));
        assert_eq!(paced.next_due(80), None);
        paced.end_all();
        assert_eq!(paced.next_due(80), Some((9, 11)));
        assert_eq!((paced.next_due(999), paced.len()), (None, 0));
        assert_eq!(paced.next_deadline_ms(), None);
    }

    /// After 2^28 connections, one gets the generation of an old connection that waits.
    #[test]
    fn a_generation_may_be_used_again() {
        let mut paced = Paced::default();
        paced.push(1, 7, 100);
        paced.push(2, 7, 50);
        paced.forget(3, 7);
        paced.forget(2, 7);
        assert_eq!(paced.next_due(100), Some((1, 7)));
        paced.push(1, 7, 100);
        paced.push(2, 7, 50);
        assert_eq!(paced.next_due(100), Some((2, 7)));
        assert_eq!(paced.next_due(100), Some((1, 7)));
    }
}
