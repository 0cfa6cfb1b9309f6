//! The table of handshakes in flight: the only connections that have anything in the heap.
//!
//! The table is bounded in number, in bytes and in time. A handshake that succeeds becomes a slot
//! and frees everything here; one that fails sends its alert and lingers shortly, so that a reset
//! does not overtake the alert. When the last handshake of a burst ends, its memory goes back to the
//! system.
//!
//! Epoll reports each handshake once; then the handshake waits for its turn in the queue
//! (`queue.rs`), with its client's bytes still in the kernel and nothing in the heap. So the worker
//! can accept all clients that fit at once (a client whose connect finds a full queue retries ever
//! later), and `max_handshakes` bounds the handshakes that have begun. Handshakes that wait cost the
//! loop nothing before their turn.

use crate::door::client::Client;
use crate::handshake::in_flight::{HandshakeStep, InFlight, Turn};
use crate::io::Io;
use crate::token::Id;
use dormouse_engine::Handshake;
use dormouse_reactor::Fd;
use std::collections::VecDeque;
use std::rc::Rc;

/// How long the alert of a failed handshake has to reach its peer.
const LINGER_MS: u64 = 2_000;

/// A client that has waited for its turn for this many times `handshake_timeout` has given up.
const WAITS_MAX: u64 = 6;

/// The table of handshakes in flight.
pub(crate) struct HandshakeTable {
    entries: Vec<Option<InFlight>>,
    free: Vec<u32>,
    /// Deadlines in the order in which they come, since each kind has one length: of handshakes that
    /// have not begun, that have, and that have failed.
    waiting: VecDeque<Deadline>,
    shaking: VecDeque<Deadline>,
    lingerers: VecDeque<Deadline>,
    live: usize,
    begun: usize,
    most: usize,
}

impl HandshakeTable {
    pub(crate) fn new() -> HandshakeTable {
        HandshakeTable {
            entries: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            shaking: VecDeque::new(),
            lingerers: VecDeque::new(),
            live: 0,
            begun: 0,
            most: 0,
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Those which have anything in the heap.
    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    /// Takes a new connection in; its index is what epoll's token will name.
    pub(crate) fn begin(
        &mut self,
        accepted: (Fd, Client),
        introduced: bool,
        (route, candidates): (u16, Option<Rc<[u16]>>),
        generation: u32,
        now_ms: u64,
        deadline_ms: u64,
    ) -> Id {
        let entry = InFlight::new(
            accepted,
            introduced,
            (route, candidates),
            generation,
            now_ms,
        );
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                index
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        self.live += 1;
        self.most = self.most.max(self.live);
        let id = (index, generation);
        self.waiting.push_back((deadline_ms, id));
        id
    }

    pub(crate) fn entry(&mut self, id: Id) -> Option<&mut InFlight> {
        entry_of(&mut self.entries, id)
    }

    /// The first of those that have begun, whose client has been silent since before `before_ms`.
    /// Looks at a bounded number.
    pub(crate) fn oldest_silent(&self, before_ms: u64) -> Option<Id> {
        const LOOKS: usize = 256;
        let is_silent = |&&(_, (index, generation)): &&Deadline| {
            let entry = self.entries.get(index as usize).and_then(Option::as_ref);
            entry.is_some_and(|entry| {
                entry.generation == generation && entry.is_silent_since(before_ms)
            })
        };
        let found = self.shaking.iter().take(LOOKS).find(is_silent);
        found.map(|&(_, id)| id)
    }

    /// A step: reads, works, writes. `start` makes the handshake when something has come.
    pub(crate) fn step(
        &mut self,
        id: Id,
        turn: Turn<'_, impl Io>,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> Option<HandshakeStep> {
        let entry = entry_of(&mut self.entries, id)?;
        let had_begun = entry.has_begun();
        let deadline_ms = turn.work.now_ms + turn.timeout_ms;
        let step = entry.step(turn, start);
        if !had_begun && entry.has_begun() {
            self.begun += 1;
            // The time in which it waited for its turn was ours, not its client's.
            self.shaking.push_back((deadline_ms, id));
        }
        Some(step)
    }

    /// Takes an entry out.
    pub(crate) fn take(&mut self, id: Id) -> Option<InFlight> {
        self.entry(id)?;
        let entry = self.entries.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        self.live -= 1;
        self.begun -= usize::from(entry.has_begun());
        Some(entry)
    }

    /// Lets a failed one linger until `now_ms` + 2 s.
    pub(crate) fn note_lingering(&mut self, id: Id, now_ms: u64) {
        self.lingerers.push_back((now_ms + LINGER_MS, id));
    }

    /// The next handshake whose time is up. One that waits for its turn gets more time: the worker,
    /// not its client, is late.
    pub(crate) fn next_expired(&mut self, now_ms: u64, timeout_ms: u64) -> Option<Id> {
        while let Some(id) = due(&mut self.waiting, &mut self.entries, now_ms) {
            let Some(entry) = entry_of(&mut self.entries, id) else {
                continue;
            };
            if entry.has_begun() {
                continue;
            }
            let given_up_ms = entry.accepted_ms + timeout_ms.saturating_mul(WAITS_MAX);
            if !entry.waits_for_turn() || given_up_ms <= now_ms {
                return Some(id);
            }
            self.waiting.push_back((now_ms + timeout_ms, id));
        }
        due(&mut self.shaking, &mut self.entries, now_ms)
            .or_else(|| due(&mut self.lingerers, &mut self.entries, now_ms))
    }

    /// When the next entry's time is up.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let queues = [&self.waiting, &self.shaking, &self.lingerers];
        let fronts = queues.map(VecDeque::front);
        fronts
            .into_iter()
            .flatten()
            .map(|&(deadline_ms, ..)| deadline_ms)
            .min()
    }

    /// Frees the memory of handshakes, if the last one has ended since this was last asked. `Some`:
    /// that is so, and whether there had been many.
    pub(crate) fn burst_ended(&mut self) -> Option<bool> {
        if self.live > 0 || self.most == 0 {
            return None;
        }
        let was_burst = self.most >= 16;
        *self = HandshakeTable::new();
        Some(was_burst)
    }
}

/// When the time of an entry is up.
type Deadline = (u64, Id);

/// Takes the first deadline that has passed; those of entries which are gone are dropped.
fn due(
    deadlines: &mut VecDeque<Deadline>,
    entries: &mut [Option<InFlight>],
    now_ms: u64,
) -> Option<Id> {
    while let Some(&(deadline_ms, id)) = deadlines.front() {
        let current = entry_of(entries, id).is_some();
        if current && deadline_ms > now_ms {
            return None;
        }
        deadlines.pop_front();
        if current {
            return Some(id);
        }
    }
    None
}

fn entry_of(entries: &mut [Option<InFlight>], (index, generation): Id) -> Option<&mut InFlight> {
    let entry = entries.get_mut(index as usize)?.as_mut()?;
    (entry.generation == generation).then_some(entry)
}
