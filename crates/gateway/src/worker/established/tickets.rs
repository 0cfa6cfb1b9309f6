//! Tickets which a server sends after the handshake.
//!
//! Only the library's last object of a connection can take them, some two kilobytes in the heap.
//! It is kept beside the slot until as many tickets came as were expected, or `ticket_wait` is
//! over; the connection works meanwhile. What comes later is ignored, and counted.

use crate::counters::Count;
use crate::slot::Slot;
use crate::worker::established::flow::Tools;
use crate::worker::io::Io;
use dormouse_engine::TicketWatch;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

/// Those who still wait for tickets, by the generation of their slot.
#[derive(Default)]
pub(crate) struct Tickets {
    watches: HashMap<u32, TicketWatch>,
    deadlines: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Tickets {
    pub(crate) fn expect(&mut self, generation: u32, watch: TicketWatch, until_ms: u64) {
        self.watches.insert(generation, watch);
        self.deadlines.push(Reverse((until_ms, generation)));
    }

    /// The connection has ended.
    pub(crate) fn forget(&mut self, generation: u32) {
        if !self.watches.is_empty() {
            self.watches.remove(&generation);
        }
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.peek().map(|Reverse((at_ms, _))| *at_ms)
    }

    /// Lets those go who have waited long enough. `true`: nobody is left, and somebody was.
    pub(crate) fn expire(&mut self, now_ms: u64) -> bool {
        let any = !self.deadlines.is_empty();
        while let Some(&Reverse((at_ms, generation))) = self.deadlines.peek() {
            // One that has its tickets, or has ended, need not be waited for.
            if at_ms > now_ms && self.watches.contains_key(&generation) {
                break;
            }
            self.deadlines.pop();
            self.watches.remove(&generation);
        }
        any && self.deadlines.is_empty()
    }
}

impl<I: Io> Tools<I> {
    /// Bytes of ticket messages lie at `fragment` in the scratch buffer for opening.
    pub(crate) fn take_tickets(&mut self, slot: &Slot, fragment: Range<usize>) {
        let Tools {
            tickets,
            scratch,
            count,
            io,
            ..
        } = self;
        let Some(watch) = tickets.watches.get_mut(&slot.generation) else {
            return count.add(Count::TicketsIgnored, 1);
        };
        let bytes = scratch.opening.get(fragment).unwrap_or_default();
        let before = watch.received();
        let taken = watch.handle_fragment(io.unix_time(), bytes);
        count.add(
            Count::TicketsKept,
            u64::from(watch.received().saturating_sub(before)),
        );
        if let Err(failure) = &taken {
            // Its sessions are of no use; the connection is.
            tracing::debug!(%failure, "a ticket makes no sense and is ignored");
        }
        if taken.is_err() || watch.is_satisfied() {
            tickets.watches.remove(&slot.generation);
        }
    }
}
