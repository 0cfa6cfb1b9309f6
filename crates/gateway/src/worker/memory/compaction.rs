//! Compaction: when connections close at random, their pages come back.
//!
//! A page of slots goes back to the system when no slot on it is in use, and of nine in ten slots
//! that close at random hardly any page is empty. So slots are moved from the end of the slab to
//! free places at its beginning, a few per turn, when no newcomer waits.
//!
//! Four know a slot by its index: epoll (in its tokens), the timer wheel, the list of those which
//! wait for pending memory, and the pools of warm connections. A chunk of pending memory knows its connection by generation, so
//! it need not be told. A worker that dies in the middle leaves a note in the slab's header; its
//! successor tells epoll again (`recover`), and nothing is lost.

use crate::counters::Count;
use crate::slot::{Phase, Slot};
use crate::worker::Worker;
use crate::worker::established::interest::{self, Side};
use crate::worker::io::Io;
use crate::worker::memory::starved::SOON_MS;
use crate::worker::token;
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
    /// A slot became free.
    pub(crate) fn note_freed(&mut self, now_ms: u64) {
        self.due_ms.get_or_insert(now_ms + LOOK_MS);
    }

    /// When to look next.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.due_ms
    }
}

impl<I: Io> Worker<I> {
    /// A turn of moving, if it is time and there is something to move.
    pub(crate) fn compact(&mut self) {
        let due = self.compaction.due_ms.is_some_and(|ms| ms <= self.now_ms);
        if !due {
            return;
        }
        if self.handshakes.queue.has_newcomers() || self.is_behind() {
            // Newcomers take the lowest places anyway; doubts go by the index.
            self.compaction.due_ms = Some(self.now_ms + LOOK_MS);
            return;
        }
        if !self.compaction.moving && !is_sparse(&self.slots) {
            self.compaction.due_ms = None;
            return;
        }
        self.compaction.moving = true;
        self.compaction.due_ms = Some(self.now_ms + PAUSE_MS);
        for _ in 0..MOVES_PER_TURN {
            let last = self.slots.highest_live();
            if !last.is_some_and(|last| self.relocate(last)) {
                self.compaction = Compaction::default();
                self.slots.trim();
                return;
            }
        }
    }

    /// Moves a slot to the lowest free place. `false`: it is there already.
    fn relocate(&mut self, from: u32) -> bool {
        let Some(to) = self.move_slot(from) else {
            return false;
        };
        let told = self.retell(to, Side::Tls) && self.retell(to, Side::Plain);
        self.slots.settle_move();
        self.tools.count.add(Count::SlotsMoved, 1);
        if !told {
            // Without epoll the connection would never be heard of again.
            self.remove(to);
        }
        true
    }

    /// The slot itself, with its timer and its place among the starved and the paced.
    fn move_slot(&mut self, from: u32) -> Option<u32> {
        let due_ms = self.slots.get(from)?.timer.due_ms();
        self.wheel.cancel(&mut self.slots, from);
        let moved = self.slots.relocate(from);
        if let Some(due_ms) = due_ms {
            self.wheel
                .arm(&mut self.slots, moved.unwrap_or(from), due_ms);
        }
        let to = moved?;
        if let Some(slot) = self.slots.get(to)
            && slot.is_starved()
        {
            let generation = slot.generation;
            self.tools
                .starved
                .push(to, generation, self.now_ms, SOON_MS);
        }
        if let Some(slot) = self.slots.get(to) {
            self.tools.paced.moved(slot.generation, to);
        }
        if let Some(slot) = self.slots.get(to)
            && slot.phase() == Phase::Warm
            && let Some(pool) = self.originations.pool(slot.route)
        {
            pool.moved(from, to, slot.generation);
        }
        self.tools.kernel.forget(from);
        self.note_queues(to);
        Some(to)
    }

    fn retell(&mut self, index: u32, side: Side) -> bool {
        let Some(slot) = self.slots.get(index) else {
            return false;
        };
        let token = token::connection(index, slot.generation, side);
        match interest::retell(slot, &self.tools.io, side, token) {
            Ok(()) => true,
            Err(e) => {
                tracing::error!(error = %e, "epoll refused a moved descriptor; its connection is closed");
                false
            }
        }
    }
}

/// Are there many more places up to the last slot than slots?
fn is_sparse(slots: &Slab<Slot>) -> bool {
    let live = slots.live();
    let places = slots.highest_live().map_or(0, |last| last + 1);
    places > live + live / 4 + SLACK
}

#[cfg(test)]
mod tests;
