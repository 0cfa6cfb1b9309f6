//! A stop: closes connections at rest at once, and other connections when they are done or after
//! `shutdown_grace`. Every slot is freed, and so wiped, before the worker exits.

use crate::close_reason::CloseReason;
use crate::established::Connections;
use crate::established::close;
use crate::established::step::Event;
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Phase, Slot};

/// Time for the last alerts to arrive, after `shutdown_grace`.
const LAST_ALERTS_MS: u64 = 1_000;

/// Time for clients to close after close_notify. The kernel delivers the alert without the worker; a
/// client that sends data to a closed socket is answered by a reset, so clients get this time to stop.
const LINGER_MS: u64 = 1_000;

/// Interval of the search for lingering connections.
const LOOK_MS: u64 = 100;

/// Maximum connections closed or freed by one turn: the others, which have `shutdown_grace`, and the keeper, which waits
/// for a sign of life, do not wait long.
const ENDED_PER_TURN: usize = 4096;

/// State of a stop.
pub(crate) struct Stop {
    /// Deadline for pending bytes.
    grace_until_ms: u64,
    /// Time of the next search for lingering connections.
    look_at_ms: u64,
    /// Whether the last turn may have left work for the next one.
    is_behind: bool,
}

impl Stop {
    /// Creates a stop that begins now.
    pub(crate) fn new(now_ms: u64, grace_ms: u64) -> Stop {
        Stop {
            grace_until_ms: now_ms + grace_ms,
            look_at_ms: now_ms + LINGER_MS,
            is_behind: false,
        }
    }

    /// The next deadline.
    pub(crate) fn next_deadline_ms(&self, now_ms: u64) -> u64 {
        if self.is_behind {
            return now_ms;
        }
        let grace_ms = match self.grace_until_ms {
            until_ms if until_ms > now_ms => until_ms,
            until_ms => until_ms + LAST_ALERTS_MS,
        };
        grace_ms.min(self.look_at_ms)
    }

    /// Closes connections at rest; after the grace, closes all connections, and finally frees them.
    pub(crate) fn turn<I: Io>(
        &mut self,
        connections: &mut Connections,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        self.end_some(ENDED_PER_TURN, connections, settings, work);
    }

    /// Makes a turn that ends at most this number of connections. None is freed before all are closed.
    pub(crate) fn end_some<I: Io>(
        &mut self,
        most: usize,
        connections: &mut Connections,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        let mut left = most - self.close_some(most, connections, settings, work);
        if self.is_over(work.now_ms) {
            left -= connections.free_some(left, work, |_| true);
        } else if self.look_at_ms <= work.now_ms {
            left -= connections.free_some(left, work, close::only_lingers);
            if left > 0 {
                self.look_at_ms = work.now_ms + LOOK_MS;
            }
        }
        self.is_behind = left == 0;
    }

    /// Closes at most this number of connections. Returns how many.
    fn close_some<I: Io>(
        &self,
        most: usize,
        connections: &mut Connections,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) -> usize {
        if connections.live() == connections.draining() + connections.closing_later() {
            return 0;
        }
        let is_late = self.grace_until_ms <= work.now_ms;
        let is_due = |slot: &Slot| {
            let is_unused = matches!(slot.phase(), Phase::Connecting | Phase::Warm);
            let is_done = slot.at_rest() && !close::awaits_other_half(slot);
            slot.phase() != Phase::Draining
                && !slot.is_wanted()
                && (is_done || is_unused || is_late)
        };
        let due = connections.some(most, is_due);
        for &index in &due {
            let close = Event::Close(CloseReason::Stopping);
            connections.step(index, close, settings, work);
        }
        due.len()
    }

    /// Whether the stop is complete. In the end, handshakes are abandoned.
    pub(crate) fn is_finished(&self, connections: u32, handshakes: usize, now_ms: u64) -> bool {
        connections == 0 && (handshakes == 0 || self.is_over(now_ms))
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.grace_until_ms + LAST_ALERTS_MS <= now_ms
    }
}
