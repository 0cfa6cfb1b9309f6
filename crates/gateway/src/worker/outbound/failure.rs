//! What becomes of a way to a TLS server that came to nothing: it is told, counted, and another
//! server is tried; without one, the client's connection is reset.

use crate::counters::Count;
use crate::worker::Worker;
use crate::worker::bursts::Subject;
use crate::worker::handshake::in_flight::flush;
use crate::worker::handshake::log;
use crate::worker::io::Io;
use crate::worker::outbound::attempts::Stage;
use dormouse_engine::HandshakeFailure;
use dormouse_reactor::Fd;
use std::fmt;

/// Why an attempt came to nothing.
pub(crate) enum Trouble {
    /// The handshake failed.
    Handshake(HandshakeFailure),
    /// The connection did, or never was.
    Connection(String),
    /// It took too long for us.
    Time(&'static str),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Handshake(failure) => failure.fmt(f),
            Trouble::Connection(why) => f.write_str(why),
            Trouble::Time(why) => f.write_str(why),
        }
    }
}

impl<I: Io> Worker<I> {
    pub(crate) fn attempt_failed(&mut self, index: u32, generation: u32, trouble: &Trouble) {
        let now_ms = self.now_ms;
        let Some(entry) = self.originations.entry(index, generation) else {
            return;
        };
        let (route, target, fd) = (entry.route, entry.target, entry.fd);
        let errand = entry.errand.as_ref();
        let errand = errand.map(|e| (e.address.to_string(), e.server_name.clone()));
        let took_ms = now_ms.saturating_sub(entry.begun_ms);
        if let Stage::Shaking(handshake) = &mut entry.stage {
            self.tools.count.add(Count::ConnectHandshakesFailed, 1);
            // The alert, if there is one; nobody waits for it to be read.
            let _ = flush(&self.tools.io, fd, handshake);
        }
        entry.fd = Fd::NONE;
        entry.stage = Stage::Connecting;
        if fd != Fd::NONE {
            self.tools.io.close(fd);
        }
        match errand {
            Some((backend, server_name)) => self.report_errand(&backend, &server_name, trouble),
            None => self.report(route, target, trouble, took_ms),
        }
        self.try_next(index, generation);
    }

    /// Its client's connection counts the failure, and tries another backend.
    fn report_errand(&mut self, backend: &str, server_name: &str, trouble: &Trouble) {
        self.bursts.note(Subject::BackendTls, self.now_ms, |more| {
            tracing::warn!(
                backend,
                server_name,
                more,
                "no TLS connection with this backend: {trouble}"
            );
        });
    }

    pub(crate) fn report(&mut self, route: u16, target: usize, trouble: &Trouble, took_ms: u64) {
        let now_ms = self.now_ms;
        self.originations.note_failure(route, target, now_ms);
        self.tools.count.add(Count::ConnectAttemptsFailed, 1);
        let more = self.originations.note_for_log(route, target, now_ms);
        let each = self.limits.log_handshakes;
        let Some(target) = self.origin(route).and_then(|one| one.targets.get(target)) else {
            return;
        };
        if each {
            let server = &target.name;
            match trouble {
                Trouble::Handshake(failure) => log::log_failed(failure, server, took_ms),
                Trouble::Connection(why) => log::log_gone("peer", why, server, took_ms),
                Trouble::Time(why) => log::log_gone("us", why, server, took_ms),
            }
        }
        if let Some(more) = more {
            tracing::warn!(server = %target.name, server_name = %target.server_name, more,
                "no TLS connection to this server: {trouble}");
        }
    }

    /// No server is left to try.
    pub(crate) fn abandon(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.originations.take(index, generation) else {
            return;
        };
        if entry.fd != Fd::NONE {
            self.tools.io.close(entry.fd);
        }
        match entry.plain {
            Some(plain) => {
                if !plain.is_joined {
                    self.tools.count.add(Count::ConnectGivenUp, 1);
                }
                plain.reset(&self.tools.io);
            }
            None => self.note_warm(true, entry.route, None),
        }
        self.listeners.resume();
    }

    /// What took too long.
    pub(crate) fn end_originations_in_time(&mut self) {
        while let Some((index, generation)) = self.originations.next_late_attempt(self.now_ms) {
            let trouble = Trouble::Time("no answer within backend_connect_timeout");
            self.attempt_failed(index, generation, &trouble);
        }
        while let Some((index, generation)) = self.originations.next_late(self.now_ms) {
            if let Some(entry) = self.originations.entry(index, generation) {
                let (route, target) = (entry.route, entry.target);
                let took_ms = self.now_ms.saturating_sub(entry.begun_ms);
                let errand = entry.errand.as_ref();
                match errand.map(|e| (e.address.to_string(), e.server_name.clone())) {
                    Some((backend, server_name)) => {
                        let trouble = Trouble::Time("not done within backend_connect_timeout");
                        self.report_errand(&backend, &server_name, &trouble);
                    }
                    None => {
                        let trouble = Trouble::Time("not done within handshake_timeout");
                        self.report(route, target, &trouble, took_ms);
                    }
                }
            }
            self.abandon(index, generation);
        }
    }
}
