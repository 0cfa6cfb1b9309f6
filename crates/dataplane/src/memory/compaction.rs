//! Compaction: when connections close at random, their pages come back.
//!
//! A page of slots goes back to the system when no slot on it is in use, and of nine in ten slots
//! that close at random hardly any page is empty. So slots are moved from the end of the slab to
//! free places at its beginning, a few per turn, when no newcomer waits.
//!
//! Four know a slot by its index: epoll (in its tokens), the timer wheel, the lists of connections
//! that wait for memory or for their pace, and the pools of warm connections. A chunk of pending
//! memory knows its connection by generation, so it need not be told. A worker that dies in the
//! middle leaves a note in the slab's header; its successor tells epoll again (`recover`), and
//! nothing is lost.

use crate::established::Connections;
use crate::io::Io;
use crate::outbound::Outbound;
use crate::workspace::Workspace;
use dormouse_handover::slot::Slot;
use dormouse_reactor::slab::Slab;

/// Slots moved per turn: some hundred microseconds.
const MOVES_PER_TURN: u32 = 32;

/// How long after a close it is seen whether there is something to move.
const LOOK_MS: u64 = 500;

/// The time between two turns of moving.
const PAUSE_MS: u64 = 5;

/// Free places between slots which are not worth a move: a few pages, and a quarter.
const SLACK: u32 = 256;

/// When to move.
#[derive(Default)]
pub(crate) struct Compaction {
    due_ms: Option<u64>,
    moving: bool,
}

impl Compaction {
    /// When to look next.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Looks in the next turn, whenever that was to be.
    #[cfg(test)]
    pub(crate) fn look_now(&mut self) {
        self.due_ms = Some(0);
    }

    /// A turn of moving, if it is time and there is something to move. `is_quiet`: nobody waits for
    /// a place (newcomers take the lowest ones anyway), and all sockets are verified (those that
    /// are not are known by their index).
    pub(crate) fn turn<I: Io>(
        &mut self,
        is_quiet: bool,
        connections: &mut Connections,
        outbound: &mut Outbound,
        work: &mut Workspace<I>,
    ) {
        if connections.take_freed() {
            self.due_ms.get_or_insert(work.now_ms + LOOK_MS);
        }
        if self.due_ms.is_none_or(|due_ms| due_ms > work.now_ms) {
            return;
        }
        if !is_quiet {
            self.due_ms = Some(work.now_ms + LOOK_MS);
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
                *self = Compaction::default();
                connections.trim();
                return;
            };
            outbound.note_moved(&moved, connections);
        }
    }
}

/// Are there many more places up to the last slot than slots?
fn is_sparse(slots: &Slab<Slot>) -> bool {
    let live = slots.live();
    let places = slots.highest_live().map_or(0, |last| last + 1);
    places > live + live / 4 + SLACK
}
