//! One line per burst: the log says what happens, not how often per second.
//!
//! The first event of a subject is logged at once; those which follow within ten seconds are
//! counted, and the count stands in the next line.

use crate::counters::Counters;
use crate::worker::door::client::Client;
use crate::worker::established::close::Ending;
use crate::worker::handshake::log;
use crate::worker::io::Io;
use dormouse_engine::HandshakeFailure;
use dormouse_reactor::Fd;
use std::fmt;

pub(crate) const QUIET_MS: u64 = 10_000;

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    HandshakeFailed,
    ClientRefused,
    HandshakeTimeout,
    ProxyHeader,
    Denied,
    BackendDown,
    BackendTls,
    PartialRecord,
    PacedClient,
    PacedAll,
    Paused,
    Truncated,
    TlsFailed,
    Refused,
    PlainFailed,
    Limit,
}

const SUBJECTS: usize = Subject::Limit as usize + 1;

impl Subject {
    /// The subject of a connection's end.
    pub(crate) fn of(ending: Ending) -> Subject {
        match ending {
            Ending::TlsTruncated => Subject::Truncated,
            Ending::TlsFailed => Subject::TlsFailed,
            Ending::Refused => Subject::Refused,
            Ending::PlainFailed => Subject::PlainFailed,
            Ending::BackendDown => Subject::BackendDown,
            Ending::Clean | Ending::Limit | Ending::Stopping | Ending::Drained => Subject::Limit,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Burst {
    logged_ms: Option<u64>,
    more: u64,
}

/// What was logged when.
#[derive(Default)]
pub(crate) struct Bursts {
    bursts: [Burst; SUBJECTS],
}

impl Bursts {
    /// Writes the line, or counts it. `write` gets how many were not written since the last.
    pub(crate) fn note(&mut self, subject: Subject, now_ms: u64, write: impl FnOnce(u64)) {
        let burst = &mut self.bursts[subject as usize];
        if burst
            .logged_ms
            .is_some_and(|logged_ms| now_ms < logged_ms + QUIET_MS)
        {
            burst.more += 1;
            return;
        }
        write(burst.more);
        *burst = Burst {
            logged_ms: Some(now_ms),
            more: 0,
        };
    }

    /// A handshake failed: counted by kind, logged in words. `each_ms`: every handshake has a line;
    /// it took so long.
    pub(crate) fn handshake_failed(
        &mut self,
        failure: &HandshakeFailure,
        client: &Client,
        now_ms: u64,
        count: &Counters,
        each_ms: Option<u64>,
    ) {
        log::count_failed(failure, count);
        if let Some(took_ms) = each_ms {
            return log::log_failed(failure, client, took_ms);
        }
        // Who was refused is told apart from what any stranger can cause.
        let subject = if log::is_refused_client(failure) {
            Subject::ClientRefused
        } else {
            Subject::HandshakeFailed
        };
        self.note(subject, now_ms, |more| {
            tracing::info!(peer = %client, more, "handshake failed: {failure}");
        });
    }
}

/// Who is at the other end, for the log: asked when it is written.
pub(crate) fn peer_name<I: Io>(io: &I, fd: Fd) -> PeerName<'_, I> {
    PeerName { io, fd }
}

pub(crate) struct PeerName<'a, I> {
    io: &'a I,
    fd: Fd,
}

impl<I: Io> fmt::Display for PeerName<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.io.peer(self.fd) {
            Ok(peer) => peer.fmt(f),
            Err(_) => f.write_str("gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_one_line_and_its_size_is_in_the_next() {
        let mut bursts = Bursts::default();
        let mut lines = Vec::new();
        for now_ms in [0, 5, 9_999, 10_000, 10_001, 30_000] {
            bursts.note(Subject::BackendDown, now_ms, |more| {
                lines.push((now_ms, more))
            });
        }
        assert_eq!(lines, vec![(0, 0), (10_000, 2), (30_000, 1)]);
        bursts.note(Subject::Paused, 30_001, |more| lines.push((1, more)));
        assert_eq!(
            lines.last(),
            Some(&(1, 0)),
            "subjects do not hide each other"
        );
    }
}
