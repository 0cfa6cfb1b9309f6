//! A stop: closes connections at rest at once, and other connections when they are done or after
//! `shutdown_grace`. Every slot is freed, and so wiped, before the worker exits.

use crate::established::Connections;
use crate::established::close;
use crate::established::close_reason::CloseReason;
use crate::established::step::Event;
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_handover::slot::Phase;

/// Time for the last alerts to arrive, after `shutdown_grace`.
const LAST_ALERTS_MS: u64 = 1_000;

/// Time for clients to close after close_notify. The kernel delivers the alert without the worker; a
/// client that sends data to a closed socket is answered by a reset, so clients get this time to stop.
const LINGER_MS: u64 = 1_000;

/// Interval of the search for lingering connections.
const LOOK_MS: u64 = 100;

/// State of a stop.
pub(crate) struct Stop {
    /// Deadline for pending bytes.
    grace_until_ms: u64,
    /// Time of the next search for lingering connections.
    look_at_ms: u64,
}

impl Stop {
    /// Creates a stop that begins now.
    pub(crate) fn new(now_ms: u64, grace_ms: u64) -> Stop {
        Stop {
            grace_until_ms: now_ms + grace_ms,
            look_at_ms: now_ms + LINGER_MS,
        }
    }

    /// The next deadline.
    pub(crate) fn next_deadline_ms(&self, now_ms: u64) -> u64 {
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
        self.close(connections, settings, work);
        if self.is_over(work.now_ms) {
            connections.free_all(work, |_| true);
        } else if self.look_at_ms <= work.now_ms {
            self.look_at_ms = work.now_ms + LOOK_MS;
            connections.free_all(work, close::only_lingers);
        }
    }

    fn close<I: Io>(
        &self,
        connections: &mut Connections,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        if connections.live() == connections.draining() {
            return;
        }
        let is_late = self.grace_until_ms <= work.now_ms;
        let live: Vec<u32> = connections.slots().indices().collect();
        for index in live {
            let Some(slot) = connections.slots().get(index) else {
                continue;
            };
            let is_unused = matches!(slot.phase(), Phase::Connecting | Phase::Warm);
            if slot.phase() != Phase::Draining && (slot.at_rest() || is_unused || is_late) {
                let close = Event::Close(CloseReason::Stopping);
                connections.step(index, close, settings, work);
            }
        }
    }

    /// Whether the stop is complete. `left`: number of connections and handshakes.
    pub(crate) fn is_finished(&self, left: usize, now_ms: u64) -> bool {
        left == 0 || self.is_over(now_ms)
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.grace_until_ms + LAST_ALERTS_MS <= now_ms
    }
}
