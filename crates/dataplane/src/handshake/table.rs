//! The table of handshakes in flight: the only connections with anything in the heap.
//!
//! The table is bounded in number, in bytes and in time. A handshake that succeeds becomes a slot
//! and frees its entry. A handshake that fails sends its alert and lingers briefly, so that a reset
//! does not overtake the alert. When the last handshake of a burst ends, its memory goes back to the
//! system.
//!
//! Epoll reports each handshake once. The handshake then waits in the queue (`queue.rs`), with its
//! client's bytes still in the kernel and nothing in the heap. So the worker can accept all waiting
//! clients at once (a client whose SYN meets a full listen queue retries at growing intervals), and
//! `max_handshakes` bounds the handshakes that have begun. A waiting handshake costs the loop nothing.

use crate::deadlines::Deadlines;
use crate::entries::Entries;
use crate::handshake::in_flight::{HandshakeStep, InFlight, NewConnection, Turn};
use crate::io::Io;
use crate::token::Id;
use dormouse_engine::Handshake;

/// Time for the alert of a failed handshake to reach the peer.
const LINGER_MS: u64 = 2_000;

/// A client that has been queued for this many times `handshake_timeout` is dropped.
const WAITS_MAX: u64 = 6;

/// The table of handshakes in flight.
pub(crate) struct HandshakeTable {
    entries: Entries<InFlight>,
    /// Deadlines of handshakes that have not begun, have begun, and have failed.
    waiting: Deadlines<Id>,
    shaking: Deadlines<Id>,
    lingerers: Deadlines<Id>,
    begun: usize,
    most: usize,
}

impl HandshakeTable {
    pub(crate) fn new() -> HandshakeTable {
        HandshakeTable {
            entries: Entries::default(),
            waiting: Deadlines::new(),
            shaking: Deadlines::new(),
            lingerers: Deadlines::new(),
            begun: 0,
            most: 0,
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.entries.live()
    }

    /// Number of handshakes that have begun, so that they use the heap.
    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    /// Adds a new connection. Its id goes into epoll's token. `is_proxy`: a PROXY header comes first.
    pub(crate) fn begin(
        &mut self,
        accepted: NewConnection,
        is_proxy: bool,
        generation: u32,
        now_ms: u64,
        deadline_ms: u64,
    ) -> Id {
        let entry = InFlight::new(accepted, is_proxy, now_ms);
        let id = self.entries.insert(generation, entry);
        self.most = self.most.max(self.live());
        self.waiting.add(deadline_ms, id);
        id
    }

    pub(crate) fn entry(&mut self, id: Id) -> Option<&mut InFlight> {
        self.entries.get_mut(id)
    }

    /// Finds the oldest begun handshake whose client has been silent since before `before_ms`, among
    /// a bounded number of entries.
    pub(crate) fn oldest_silent(&self, before_ms: u64) -> Option<Id> {
        const CHECKS: usize = 256;
        let is_silent = |id: &&Id| {
            let entry = self.entries.get(**id);
            entry.is_some_and(|entry| entry.is_silent_since(before_ms))
        };
        let found = self.shaking.iter().take(CHECKS).find(is_silent);
        found.copied()
    }

    /// Makes a step: receives, handles, sends. `start` creates the handshake when the first bytes
    /// have arrived.
    pub(crate) fn step(
        &mut self,
        id: Id,
        turn: Turn<'_, impl Io>,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> Option<HandshakeStep> {
        let entry = self.entries.get_mut(id)?;
        let had_begun = entry.has_begun();
        let deadline_ms = turn.work.now_ms + turn.timeout_ms;
        let step = entry.step(turn, start);
        if !had_begun && entry.has_begun() {
            self.begun += 1;
            // The timeout starts now: the time in the queue is not the client's fault.
            self.shaking.add(deadline_ms, id);
        }
        Some(step)
    }

    /// The ids of all entries.
    pub(crate) fn ids(&self) -> Vec<Id> {
        self.entries.ids()
    }

    /// Removes an entry.
    pub(crate) fn take(&mut self, id: Id) -> Option<InFlight> {
        let entry = self.entries.take(id)?;
        self.begun -= usize::from(entry.has_begun());
        Some(entry)
    }

    /// Lets a failed handshake linger for [`LINGER_MS`].
    pub(crate) fn note_lingering(&mut self, id: Id, now_ms: u64) {
        self.lingerers.add(now_ms + LINGER_MS, id);
    }

    /// Returns the next handshake whose time is up. A queued handshake gets more time, because the
    /// worker is late and not the client.
    pub(crate) fn next_expired(&mut self, now_ms: u64, timeout_ms: u64) -> Option<Id> {
        while let Some(id) = due(&mut self.waiting, &self.entries, now_ms) {
            let Some(entry) = self.entries.get(id) else {
                continue;
            };
            if entry.has_begun() {
                continue;
            }
            let given_up_ms = entry.accepted_ms + timeout_ms.saturating_mul(WAITS_MAX);
            if !entry.waits_for_turn() || given_up_ms <= now_ms {
                return Some(id);
            }
            self.waiting.add(now_ms + timeout_ms, id);
        }
        due(&mut self.shaking, &self.entries, now_ms)
            .or_else(|| due(&mut self.lingerers, &self.entries, now_ms))
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let queues = [&self.waiting, &self.shaking, &self.lingerers];
        queues.into_iter().filter_map(Deadlines::next_ms).min()
    }

    /// Frees the table's memory, if the last handshake has ended since the last call. Returns `Some`
    /// in that case, with `true` if there were many handshakes.
    pub(crate) fn burst_ended(&mut self) -> Option<bool> {
        if self.live() > 0 || self.most == 0 {
            return None;
        }
        let was_burst = self.most >= 16;
        *self = HandshakeTable::new();
        Some(was_burst)
    }
}

/// Takes the first deadline that has passed, and drops deadlines of removed entries.
fn due(deadlines: &mut Deadlines<Id>, entries: &Entries<InFlight>, now_ms: u64) -> Option<Id> {
    deadlines.take_due(now_ms, |id| entries.get(*id).is_some())
}
