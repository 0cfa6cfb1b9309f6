//! Moves of connections to lower slots, for the compaction.

use crate::established::{Connections, Moved, logged};
use crate::established::{deep_rest, interest};
use crate::io::Io;
use crate::token::{self, Side};
use crate::workspace::Workspace;
use dormouse_tables::counters::Count;
use std::io;

impl Connections {
    /// Moves a slot to the lowest free index. `None`: it has that index already.
    pub(crate) fn relocate<I: Io>(&mut self, from: u32, work: &mut Workspace<I>) -> Option<Moved> {
        let to = self.move_slot(from, work)?;
        let sides = [Side::Tls, Side::Plain];
        let rewatched = sides
            .into_iter()
            .try_for_each(|side| self.rewatch(to, side, work));
        self.slots.settle_move();
        work.count.add(Count::SlotsMoved, 1);
        if let Err(error) = rewatched {
            self.remove_unwatched(to, &error, work);
        }
        Some(Moved { from, to })
    }

    /// Moves the slot itself, its timer, and its waits for memory or a rate limit.
    pub(super) fn move_slot<I: Io>(&mut self, from: u32, work: &mut Workspace<I>) -> Option<u32> {
        let due_ms = self.slots.at(from).timer.due_ms();
        self.wheel.cancel(&mut self.slots, from);
        let moved = self.slots.relocate(from);
        if let Some(due_ms) = due_ms {
            let index = moved.unwrap_or(from);
            self.wheel.arm(&mut self.slots, index, due_ms);
        }
        let to = moved?;
        let is_last = logged::is_last_of_page(&self.slots, from);
        work.connection_log.moved(from, to, is_last);
        let slot = self.slots.at(to);
        self.starved.moved(from, to, slot.generation);
        self.paced.moved(from, to, slot.generation);
        work.kernel.moved(from, to);
        self.later.moved(from, to);
        self.connecting.moved(from, to);
        deep_rest::moved(slot, from, to, work);
        Some(to)
    }

    /// Gives epoll the new token of a side.
    pub(super) fn rewatch<I: Io>(
        &self,
        index: u32,
        side: Side,
        work: &Workspace<I>,
    ) -> io::Result<()> {
        let slot = self.slots.at(index);
        let token = token::connection((index, slot.generation), side);
        interest::rewatch(slot, &work.io, side, token)
    }
}
