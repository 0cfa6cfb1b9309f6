//! The table of attempts, and their deadlines.

use crate::deadlines::Deadlines;
use crate::entries::Entries;
use crate::outbound::attempt::{Attempt, Stage};
use crate::token::Id;

/// Attempts by index, and their deadlines.
#[derive(Default)]
pub(crate) struct AttemptTable {
    entries: Entries<Attempt>,
    /// Deadlines for the current server, and for the whole attempt.
    servers_due: Deadlines<ServerDue>,
    due: Deadlines<Id>,
}

/// What the deadline of an attempt's current server is for.
pub(crate) struct ServerDue {
    pub(crate) id: Id,
    /// Start time of the attempt with this server: a reload may begin again with the same one.
    pub(crate) begun_ms: u64,
}

impl AttemptTable {
    pub(crate) fn live(&self) -> usize {
        self.entries.live()
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let both = [self.servers_due.next_ms(), self.due.next_ms()];
        both.into_iter().flatten().min()
    }

    /// Adds an attempt. Its id goes into epoll's token.
    pub(crate) fn insert(&mut self, attempt: Attempt) -> Id {
        self.entries.insert(attempt.generation, attempt)
    }

    pub(crate) fn get(&mut self, id: Id) -> Option<&mut Attempt> {
        self.entries.get_mut(id)
    }

    /// An attempt that has not ended.
    #[track_caller]
    pub(crate) fn at(&mut self, id: Id) -> &mut Attempt {
        self.get(id).expect("the attempt has not ended")
    }

    /// Removes an attempt that has not ended.
    #[track_caller]
    pub(crate) fn take(&mut self, id: Id) -> Attempt {
        let attempt = self.entries.take(id);
        if self.live() == 0 {
            // As with handshakes, a burst leaves no allocated memory behind.
            self.entries = Entries::default();
        }
        attempt.expect("the attempt has not ended")
    }

    /// The ids of all attempts.
    pub(crate) fn all(&self) -> Vec<Id> {
        self.entries.ids()
    }

    /// Sets the deadline of the whole attempt.
    pub(crate) fn end_by(&mut self, at_ms: u64, id: Id) {
        self.due.add(at_ms, id);
    }

    /// Sets the deadline of the attempt's current server.
    pub(crate) fn end_server_by(&mut self, at_ms: u64, due: ServerDue) {
        self.servers_due.add(at_ms, due);
    }

    /// Takes an attempt whose current server did not accept, or complete the handshake, in time. A handshake has the
    /// time of the whole attempt, unless the attempt `has_next`: another server to try.
    pub(crate) fn next_late_server(
        &mut self,
        now_ms: u64,
        has_next: impl Fn(&Attempt) -> bool,
    ) -> Option<Id> {
        let entries = &self.entries;
        let is_current = |due: &ServerDue| {
            entries.get(due.id).is_some_and(|attempt| {
                let is_connecting = matches!(attempt.stage, Stage::Connecting);
                attempt.begun_ms == due.begun_ms && (is_connecting || has_next(attempt))
            })
        };
        let due = self.servers_due.take_due(now_ms, is_current)?;
        Some(due.id)
    }

    /// Takes an attempt whose time is up.
    pub(crate) fn next_late(&mut self, now_ms: u64) -> Option<Id> {
        let entries = &self.entries;
        self.due.take_due(now_ms, |id| entries.get(*id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::{ClientContext, ClientSettings, Handshake, HandshakeLimits};
    use dormouse_reactor::Fd;
    use dormouse_reactor::poller::Interest;
    use dormouse_testkit::Authority;

    fn attempt(generation: u32) -> Attempt {
        Attempt {
            client: None,
            route: 0,
            generation,
            request: None,
            target: 0,
            tried: vec![0],
            fd: Fd::NONE,
            begun_ms: 0,
            stage: Stage::Connecting,
            watched: Interest::WRITE,
        }
    }

    /// Backends and servers have timeouts of different lengths, and a reload changes both.
    #[test]
    fn a_short_deadline_does_not_wait_for_a_long_one() {
        let mut table = AttemptTable::default();
        let [long, short] = [1, 2].map(|generation| table.insert(attempt(generation)));
        for (at_ms, id) in [(10_000, long), (5_000, short)] {
            table.end_by(at_ms, id);
            table.end_server_by(at_ms, ServerDue { id, begun_ms: 0 });
        }
        assert_eq!(table.next_deadline_ms(), Some(5_000));
        assert_eq!(table.next_late(4_999), None);
        assert_eq!(table.next_late(5_000), Some(short));
        assert_eq!(table.next_late_server(5_000, |_| false), Some(short));
        assert_eq!(table.next_late(5_000), None);
    }

    /// The deadline of a server does not end a handshake when a reload has removed all other servers.
    #[test]
    fn a_handshake_without_another_server_has_the_whole_time() {
        for has_next in [true, false] {
            let (mut table, id) = (AttemptTable::default(), (0, 1));
            let mut shaking = attempt(1);
            shaking.stage = Stage::Shaking(Box::new(handshake()));
            assert_eq!(table.insert(shaking), id);
            table.end_server_by(5_000, ServerDue { id, begun_ms: 0 });
            let late = table.next_late_server(5_000, |_| has_next);
            assert_eq!(late, has_next.then_some(id));
        }
    }

    /// A reload that changes an origination begins its attempts again, with the first server.
    #[test]
    fn an_attempt_that_begins_again_has_the_whole_time() {
        let mut table = AttemptTable::default();
        let id = table.insert(attempt(1));
        table.end_server_by(5_000, ServerDue { id, begun_ms: 0 });
        table.get(id).expect("an attempt").begun_ms = 4_000;
        table.end_server_by(
            9_000,
            ServerDue {
                id,
                begun_ms: 4_000,
            },
        );
        assert_eq!(table.next_late_server(5_000, |_| true), None);
        assert_eq!(table.next_late_server(9_000, |_| true), Some(id));
    }

    fn handshake() -> Handshake {
        let context = ClientContext::new(ClientSettings::new(Authority::shared().roots()));
        let context = context.expect("settings");
        Handshake::client(&context, "localhost", HandshakeLimits::default()).expect("a handshake")
    }
}
