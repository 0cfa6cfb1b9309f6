//! Compaction of slots, so that memory is returned even if connections close in random order.
//!
//! A page of slots goes back to the system when all its slots are free. If nine in ten connections
//! close at random, hardly any page is empty. So the worker moves slots from the end of the slab to
//! free places at its beginning, a few per turn, while no new connection waits.
//!
//! Four parts refer to a slot by its index and are updated: epoll (in its tokens), the timer wheel, the
//! lists of connections that wait for memory or a rate limit, and the pools of warm connections. A
//! chunk of pending memory refers to its connection by generation and needs no update. A worker that
//! dies during a move leaves a note in the slab's header; its successor adds the sockets to epoll again
//! (`recover`), and nothing is lost.

use crate::established::Connections;
use crate::io::Io;
use crate::outbound::Outbound;
use crate::workspace::Workspace;
use dormouse_handover::slot::Slot;
use dormouse_reactor::slab::Slab;

/// Slots moved per turn, which takes some hundred microseconds.
const MOVES_PER_TURN: u32 = 32;

/// Time between a close and the check whether slots should be moved.
const CHECK_MS: u64 = 500;

/// Time between two turns of moving.
const PAUSE_MS: u64 = 5;

/// Number of free places that is not worth compaction, in addition to a quarter of the used ones.
const SLACK: u32 = 256;

/// When to move.
#[derive(Default)]
pub(crate) struct Compaction {
    due_ms: Option<u64>,
    moving: bool,
    /// Number of slots that had become free at the last turn.
    freed_before: u64,
}

impl Compaction {
    /// Time of the next check.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Schedules a check for the next turn.
    #[cfg(test)]
    pub(crate) fn check_now(&mut self) {
        self.due_ms = Some(0);
    }

    /// Moves some slots, if it is time and the slab is sparse. `is_quiet`: no new connection waits (new
    /// connections fill the lowest places anyway), and all sockets are verified (unverified sockets are
    /// remembered by index).
    pub(crate) fn turn<I: Io>(
        &mut self,
        is_quiet: bool,
        connections: &mut Connections,
        outbound: &mut Outbound,
        work: &mut Workspace<I>,
    ) {
        if connections.freed() != self.freed_before {
            self.freed_before = connections.freed();
            self.due_ms.get_or_insert(work.now_ms + CHECK_MS);
        }
        if self.due_ms.is_none_or(|due_ms| due_ms > work.now_ms) {
            return;
        }
        if !is_quiet {
            self.due_ms = Some(work.now_ms + CHECK_MS);
            return;
        }
        if !self.moving && !is_sparse(connections.slots()) {
            self.due_ms = None;
            return;
        }
        self.moving = true;
        self.due_ms = Some(work.now_ms + PAUSE_MS);
        for _ in 0..MOVES_PER_TURN {
            let last = connections.slots().highest_live();
            let moved = last.and_then(|last| connections.relocate(last, work));
            let Some(moved) = moved else {
                self.due_ms = None;
                self.moving = false;
                connections.trim();
                return;
            };
            outbound.note_moved(&moved, connections);
        }
    }
}

/// Whether many places up to the last used slot are free.
fn is_sparse(slots: &Slab<Slot>) -> bool {
    let live = slots.live();
    let places = slots.highest_live().map_or(0, |last| last + 1);
    places > live + live / 4 + SLACK
}
