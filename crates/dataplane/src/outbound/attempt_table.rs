//! The table of attempts, and their deadlines.

use crate::outbound::attempt::{Attempt, Stage};
use crate::token::Id;
use std::collections::VecDeque;

/// Attempts by index, and their deadlines.
#[derive(Default)]
pub(crate) struct AttemptTable {
    entries: Vec<Option<Attempt>>,
    free: Vec<u32>,
    live: usize,
    /// Deadlines for the current server, and for the whole attempt. Both are in order, because all
    /// deadlines of a kind have the same length.
    servers_due: VecDeque<ServerDue>,
    due: VecDeque<(u64, Id)>,
}

/// The deadline of an attempt's current server.
pub(crate) struct ServerDue {
    pub(crate) at_ms: u64,
    pub(crate) id: Id,
    /// Number of servers tried so far, this one included.
    pub(crate) nth: usize,
    /// Whether another server can be tried afterwards. Without one, the deadline is only for connecting, and the
    /// handshake has the time of the whole attempt.
    pub(crate) has_next: bool,
}

impl AttemptTable {
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let server = self.servers_due.front().map(|due| due.at_ms);
        let whole = self.due.front().map(|&(at_ms, ..)| at_ms);
        server.into_iter().chain(whole).min()
    }

    /// Adds an attempt. Its id goes into epoll's token.
    pub(crate) fn insert(&mut self, attempt: Attempt) -> Id {
        self.live += 1;
        let generation = attempt.generation;
        let index = match self.free.pop() {
            Some(index) => {
                if let Some(room) = self.entries.get_mut(index as usize) {
                    *room = Some(attempt);
                }
                index
            }
            None => {
                self.entries.push(Some(attempt));
                (self.entries.len() - 1) as u32
            }
        };
        (index, generation)
    }

    pub(crate) fn get(&mut self, (index, generation): Id) -> Option<&mut Attempt> {
        let attempt = self.entries.get_mut(index as usize)?.as_mut()?;
        (attempt.generation == generation).then_some(attempt)
    }

    /// Removes an attempt.
    pub(crate) fn take(&mut self, id: Id) -> Option<Attempt> {
        self.get(id)?;
        let attempt = self.entries.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        self.live -= 1;
        if self.live == 0 {
            // As with handshakes, a burst leaves no allocated memory behind.
            self.entries = Vec::new();
            self.free = Vec::new();
        }
        Some(attempt)
    }

    /// The ids of all attempts.
    pub(crate) fn all(&self) -> Vec<Id> {
        let entries = self.entries.iter().zip(0..);
        entries
            .filter_map(|(attempt, index)| Some((index, attempt.as_ref()?.generation)))
            .collect()
    }

    /// Sets the deadline of the whole attempt.
    pub(crate) fn end_by(&mut self, at_ms: u64, id: Id) {
        self.due.push_back((at_ms, id));
    }

    /// Sets the deadline of the attempt's current server.
    pub(crate) fn end_server_by(&mut self, due: ServerDue) {
        self.servers_due.push_back(due);
    }

    /// Takes an attempt whose current server did not accept, or complete the handshake, in time.
    pub(crate) fn next_late_server(&mut self, now_ms: u64) -> Option<Id> {
        while let Some(&ServerDue {
            at_ms,
            id,
            nth,
            has_next,
        }) = self.servers_due.front()
        {
            let is_current = self.get(id).is_some_and(|attempt| {
                let is_limited = has_next || matches!(attempt.stage, Stage::Connecting);
                attempt.tried.len() == nth && is_limited
            });
            if is_current && at_ms > now_ms {
                return None;
            }
            self.servers_due.pop_front();
            if is_current {
                return Some(id);
            }
        }
        None
    }

    /// Takes an attempt whose time is up.
    pub(crate) fn next_late(&mut self, now_ms: u64) -> Option<Id> {
        while let Some(&(at_ms, id)) = self.due.front() {
            let is_current = self.get(id).is_some();
            if is_current && at_ms > now_ms {
                return None;
            }
            self.due.pop_front();
            if is_current {
                return Some(id);
            }
        }
        None
    }
}
