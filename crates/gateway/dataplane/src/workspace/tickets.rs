//! Tickets that a server sends after the handshake.
//!
//! Only rustls' connection object can read them; it takes about two kilobytes in the heap. The worker
//! keeps it beside the slot until the expected number of tickets has arrived or `ticket_wait` is over.
//! The connection works meanwhile. Later tickets are ignored and counted.

use crate::deadlines::Deadlines;
use dormouse_engine::{TicketWatch, UnixTime};
use dormouse_record::Refusal;
use dormouse_tables::counters::{Count, Counters};
use std::collections::HashMap;

/// Connections that still wait for tickets, by the generation of their slot.
#[derive(Default)]
pub(crate) struct Tickets {
    watches: HashMap<u32, TicketWatch>,
    deadlines: Deadlines<u32>,
}

impl Tickets {
    pub(crate) fn expect(&mut self, generation: u32, watch: TicketWatch, until_ms: u64) {
        self.watches.insert(generation, watch);
        self.deadlines.add(until_ms, generation);
    }

    /// Ends the wait of a closed connection.
    pub(crate) fn forget(&mut self, generation: u32) {
        if !self.watches.is_empty() {
            self.watches.remove(&generation);
        }
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.next_ms()
    }

    /// Ends the waits whose time is up. Returns `true` if that was the last wait.
    #[inline]
    pub(crate) fn expire(&mut self, now_ms: u64) -> bool {
        let Tickets { watches, deadlines } = self;
        // The usual case: no connection waits.
        if deadlines.next_ms().is_none() {
            return false;
        }
        // A connection that has its tickets, or has closed, does not wait any more.
        while let Some(one) = deadlines.take_due(now_ms, |one| watches.contains_key(one)) {
            watches.remove(&one);
        }
        deadlines.next_ms().is_none()
    }

    /// Handles bytes of a ticket message on a connection.
    pub(crate) fn take(
        &mut self,
        generation: u32,
        bytes: &[u8],
        now: UnixTime,
        count: &Counters,
    ) -> Result<(), Refusal> {
        let Some(watch) = self.watches.get_mut(&generation) else {
            count.add(Count::TicketsIgnored, 1);
            return Ok(());
        };
        let before = watch.received();
        let taken = watch.handle_fragment(now, bytes);
        let kept = watch.received().saturating_sub(before);
        count.add(Count::TicketsKept, u64::from(kept));
        if taken.is_err() || watch.is_satisfied() {
            self.watches.remove(&generation);
        }
        taken
    }
}
