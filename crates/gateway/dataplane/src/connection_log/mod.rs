//! The connection log: a line for each connection when it ends.
//!
//! A worker opens no file and never waits for the log. It keeps the facts of a line in an entry beside
//! the slot ([`LogEntries`]), writes the line into a buffer when the connection ends, and sends the
//! buffer once per turn to the log writer process. If that process is slow, the buffer fills up, and
//! lines are dropped and counted.
//!
//! Nothing here runs per record: each step adds its bytes once, if there is a log.

mod line;
mod names;

use crate::client::ConnectionId;
use crate::close_reason::CloseReason;
use crate::close_reason::{Party, Sides};
use crate::io::Io;
use dormouse_handover::log_entries::{LogEntries, LogEntry};
use dormouse_handover::share::LogRules;
use dormouse_handover::slot::{Flag, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use dormouse_record::Role;
use dormouse_routes::route::Route;
use dormouse_tables::counters::{Count, Counters};
use line::{Line, Timestamp};
pub(crate) use names::LogNames;
use std::io;
use std::net::SocketAddr;

/// Maximum bytes of lines that wait to be sent. Further lines are dropped.
const WAITING_MAX: usize = 256 << 10;
/// Pause before the next try after the socket would block.
const RETRY_MS: u64 = 20;

/// The connection log of a worker.
pub(crate) struct ConnectionLog {
    entries: Option<LogEntries>,
    /// The socket to the log writer.
    lines: Fd,
    /// `None`: there is no log.
    rules: Option<LogRules>,
    /// `None`: there is no log.
    names: Option<LogNames>,
    /// Lines that were not sent yet.
    waiting: Vec<u8>,
    /// Handshakes that failed so far.
    failed: u32,
    retry_ms: Option<u64>,
}

/// Facts of a line that are not in the entry.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) now_ms: u64,
    pub(crate) unix_ms: u64,
    pub(crate) id: ConnectionId,
    /// The reason of the end, if the entry has none.
    pub(crate) reason: Option<CloseReason>,
    /// The peer of the backend's socket.
    pub(crate) backend: Option<SocketAddr>,
    /// Whether all other slots with entries in the same page are free.
    pub(crate) is_last_of_page: bool,
}

/// What a line says of a connection whose handshake failed.
pub(crate) struct FailedHandshake<'a> {
    /// The route, if it was chosen.
    pub(crate) route: Option<&'a str>,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) took_ms: u64,
    /// The party that ended it: the client or Dormouse.
    pub(crate) by: Party,
    pub(crate) error: &'a str,
}

/// IANA names of the cipher suites. An entry stores a suite's position, so the order must not change.
const SUITES: [&str; 9] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// A suite's code in an entry: its position in [`SUITES`], from 1 on; 0 for an unknown suite.
pub(crate) fn code_of_suite(name: &str) -> u8 {
    let place = SUITES.iter().position(|suite| *suite == name);
    place.map_or(0, |place| place as u8 + 1)
}

/// The server name of an entry, as logged.
pub(crate) fn server_name(entry: &LogEntry) -> Option<String> {
    entry.sni().map(|(name, is_cut)| match is_cut {
        true => format!("{name}…"),
        false => name.to_owned(),
    })
}

/// The application protocol of an entry, as logged.
pub(crate) fn protocol(entry: &LogEntry) -> Option<String> {
    entry.alpn().map(|name| name.escape_ascii().to_string())
}

/// The cipher suite of an entry.
pub(crate) fn suite(entry: &LogEntry) -> Option<&'static str> {
    let place = usize::from(entry.suite.checked_sub(1)?);
    SUITES.get(place).copied()
}

/// Whether a connection belongs to the sample of one in this many. Of each run of as many generations one does, at a place
/// that differs from run to run: with TLS to the backend, clients' connections have every second generation only.
fn is_in_sample(generation: u32, one_in: u32) -> bool {
    const GOLDEN_RATIO: u32 = 0x9E37_79B9;
    let Some(run) = generation.checked_div(one_in) else {
        return false;
    };
    let place = u64::from(run.wrapping_mul(GOLDEN_RATIO)) * u64::from(one_in);
    u64::from(generation % one_in) == place >> 32
}

impl ConnectionLog {
    /// `lines`: the socket to the log writer; [`Fd::NONE`] if there is none.
    pub(crate) fn new(entries: Option<LogEntries>, lines: Fd) -> ConnectionLog {
        ConnectionLog {
            entries,
            lines,
            rules: None,
            names: None,
            waiting: Vec::new(),
            failed: 0,
            retry_ms: None,
        }
    }

    /// Applies new settings. Returns the former names.
    pub(crate) fn follow(
        &mut self,
        rules: Option<LogRules>,
        names: Option<LogNames>,
    ) -> Option<LogNames> {
        let rules = rules.filter(|_| self.lines != Fd::NONE && self.entries.is_some());
        let former = std::mem::replace(&mut self.names, names);
        self.forget_entries_before(rules, former.as_ref());
        self.rules = rules;
        former
    }

    /// Follows the changed backends of a route.
    pub(crate) fn follow_backends(&mut self, number: u16, route: &Route) {
        if let Some(names) = &mut self.names {
            names.add(number, route);
        }
    }

    /// Clears all entries if these rules no longer cover the same connections. An entry is cleared only at the
    /// end of a connection that gets a line; otherwise it would describe the next connection in its slot.
    fn forget_entries_before(&mut self, rules: Option<LogRules>, former: Option<&LogNames>) {
        let covers_same = match (self.rules, rules) {
            (Some(_), Some(_)) => {
                let both = former.zip(self.names.as_ref());
                both.is_some_and(|(former, next)| former.covers_same(next))
            }
            // A worker starts without rules, and continues with the entries of the one before it.
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if let Some(entries) = self.entries.as_mut().filter(|_| !covers_same)
            && let Err(error) = entries.clear_all()
        {
            tracing::error!(%error, "connection log entries could not be cleared");
        }
    }

    /// Whether there is a log.
    pub(crate) fn is_on(&self) -> bool {
        self.rules.is_some()
    }

    // ---- the life of a connection ----

    /// Whether the connection in this slot gets a line: all connections of its route do, a sample, or none.
    pub(crate) fn logs(&self, slot: &Slot) -> bool {
        let names = self.names.as_ref();
        let one_in = names.map_or(0, |names| names.one_in(slot.route));
        self.rules.is_some() && is_in_sample(slot.generation, one_in)
    }

    /// Whether the connection in this slot gets a line when it begins.
    pub(crate) fn logs_begin(&self, slot: &Slot) -> bool {
        self.rules.is_some_and(|rules| rules.begins) && self.logs(slot)
    }

    /// Writes the line of a connection that has begun. A warm connection gets it with its client.
    pub(crate) fn write_begin(
        &mut self,
        index: u32,
        slot: &Slot,
        id: ConnectionId,
        (now_ms, unix_ms): (u64, u64),
        count: &Counters,
    ) {
        let entry = self.entry(index).cloned();
        let Some(entry) = entry.filter(LogEntry::has_client) else {
            return;
        };
        let mut waiting = std::mem::take(&mut self.waiting);
        let time = Timestamp { unix_ms };
        let line = Line {
            duration_ms: now_ms.saturating_sub(entry.accepted_ms),
            begin: Some("established"),
            ..self.facts(&entry, slot, id, time)
        };
        self.append(&line, &mut waiting, count);
        self.waiting = waiting;
    }

    /// Stores the entry of a new connection.
    pub(crate) fn begin(&mut self, index: u32, entry: &LogEntry) {
        if let Some(entries) = &mut self.entries {
            entries.set(index, entry);
        }
    }

    /// Adds a step to the connection's entry: the bytes sent to and received from the plain side, and
    /// the reason if the connection ends.
    pub(crate) fn note_step(
        &mut self,
        index: u32,
        slot: &Slot,
        (out, back): (u64, u64),
        reason: Option<CloseReason>,
    ) {
        let Some(entry) = self.entry_of(index, slot) else {
            return;
        };
        let is_client = slot.tls.role() == Role::Client;
        let (received, sent) = if is_client { (back, out) } else { (out, back) };
        entry.received += received;
        entry.sent += sent;
        if entry.first_end == 0 {
            let sides = Sides::of(slot);
            if slot.has_tls_ended() {
                entry.first_end = sides.tls as u8;
            } else if slot.has(Flag::PlainEnded) {
                entry.first_end = sides.plain as u8;
            }
        }
        if let (0, Some(reason)) = (entry.end, reason) {
            entry.end = reason.code();
        }
    }

    /// Notes the local client that gets a warm connection.
    pub(crate) fn attach(&mut self, index: u32, client: Option<SocketAddr>, now_ms: u64) {
        if let Some(entry) = self.entry(index) {
            entry.set_client(client, now_ms);
        }
    }

    /// Moves the entry of a moved slot.
    pub(crate) fn moved(&mut self, from: u32, to: u32, is_last_of_page: bool) {
        let Some(entry) = self.entry(from).cloned() else {
            return;
        };
        if let Some(entries) = &mut self.entries {
            entries.set(to, &entry);
            entries.clear(from, is_last_of_page);
        }
    }

    /// Writes the line of a connection whose slot is about to be freed.
    pub(crate) fn end(&mut self, index: u32, slot: &Slot, ending: Ending, count: &Counters) {
        let Some(entry) = self.entry_of(index, slot).cloned() else {
            return;
        };
        if let Some(entries) = &mut self.entries {
            entries.clear(index, ending.is_last_of_page);
        }
        let reason = CloseReason::from_code(entry.end).or(ending.reason);
        // A warm connection without a client, or whose client was given another connection, has no line.
        let Some(reason) = reason.filter(|_| entry.has_client()) else {
            return;
        };
        let mut waiting = std::mem::take(&mut self.waiting);
        let line = self.line(&entry, slot, reason, ending);
        self.append(&line, &mut waiting, count);
        self.waiting = waiting;
    }

    /// Writes the line of a failed handshake. Sampling applies to these lines, too.
    pub(crate) fn fail(&mut self, failed: &FailedHandshake<'_>, unix_ms: u64, count: &Counters) {
        let Some(rules) = self.rules else {
            return;
        };
        let is_chosen = self.failed.is_multiple_of(rules.one_in);
        self.failed = self.failed.wrapping_add(1);
        if !is_chosen {
            return;
        }
        let line = Line {
            route: failed.route,
            client: failed.client,
            bytes_in: Some(0),
            bytes_out: Some(0),
            duration_ms: failed.took_ms,
            end: Some("handshake_failed"),
            by: Some(failed.by.name()),
            error: Some(failed.error),
            ..Line::at(Timestamp { unix_ms })
        };
        let mut waiting = std::mem::take(&mut self.waiting);
        self.append(&line, &mut waiting, count);
        self.waiting = waiting;
    }

    /// Appends a line to those that wait, or counts it as dropped.
    fn append(&self, line: &Line<'_>, waiting: &mut Vec<u8>, count: &Counters) {
        let Some(rules) = self.rules else {
            return;
        };
        if waiting.len() >= WAITING_MAX {
            return count.add(Count::ConnectionLogDropped, 1);
        }
        line.write(rules.format, waiting);
        count.add(Count::ConnectionLogLines, 1);
    }

    /// The entry of the connection in this slot. If the connection gets no line, the entry is not read:
    /// that would touch a page of memory.
    pub(crate) fn entry_of(&mut self, index: u32, slot: &Slot) -> Option<&mut LogEntry> {
        self.logs(slot).then(|| self.entry(index)).flatten()
    }

    fn entry(&mut self, index: u32) -> Option<&mut LogEntry> {
        self.rules?;
        self.entries.as_mut()?.get_mut(index)
    }

    fn line<'a>(
        &'a self,
        entry: &LogEntry,
        slot: &Slot,
        reason: CloseReason,
        ending: Ending,
    ) -> Line<'a> {
        let first = match entry.first_end == Party::Backend as u8 {
            true => Party::Backend,
            false => Party::Client,
        };
        let (end, by) = reason.end_and_by(Sides::of(slot), first);
        let names = self.names.as_ref();
        let known = names.and_then(|names| names.backend(slot.backend));
        let servers = names.and_then(|names| names.servers(slot.route));
        // After a reset, the kernel no longer knows the peer of a socket.
        let address = || match ending.backend {
            Some(address) => Some(address.to_string()),
            None => servers.map(str::to_owned),
        };
        let time = Timestamp {
            unix_ms: ending.unix_ms,
        };
        Line {
            backend: known.map(str::to_owned).or_else(address),
            bytes_in: Some(entry.received),
            bytes_out: Some(entry.sent),
            duration_ms: ending.now_ms.saturating_sub(entry.accepted_ms),
            end: Some(end),
            by: Some(by.name()),
            ..self.facts(entry, slot, ending.id, time)
        }
    }

    /// What is known of a connection from its beginning on.
    fn facts<'a>(
        &'a self,
        entry: &LogEntry,
        slot: &Slot,
        id: ConnectionId,
        time: Timestamp,
    ) -> Line<'a> {
        // A pass-through connection has no TLS parameters.
        let has_tls = !slot.has(Flag::PassThrough);
        Line {
            id: Some(id.to_string()),
            route: (self.names.as_ref()).map(|names| names.route(slot.route)),
            client: entry.client(),
            sni: server_name(entry),
            alpn: protocol(entry),
            version: has_tls.then(|| slot.tls.version().name()),
            suite: suite(entry),
            resumed: has_tls.then(|| entry.resumed()),
            ..Line::at(time)
        }
    }

    // ---- the socket to the writer ----

    /// Sends the waiting lines. Called once per turn. Returns the number of lines that were dropped because the log writer and
    /// main, which also holds the other end, are gone.
    pub(crate) fn flush(&mut self, io: &impl Io, now_ms: u64) -> Option<(u64, io::Error)> {
        self.retry_ms = None;
        let mut sent = 0;
        let mut dropped = None;
        while sent < self.waiting.len() {
            match io.send(self.lines, &self.waiting[sent..]) {
                Ok(Attempt::Done(n)) => sent += n,
                Ok(Attempt::WouldBlock) => {
                    self.retry_ms = Some(now_ms + RETRY_MS);
                    break;
                }
                Err(error) => {
                    let lines = self.waiting[sent..].iter().filter(|&&byte| byte == b'\n');
                    dropped = Some((lines.count() as u64, error));
                    sent = self.waiting.len();
                }
            }
        }
        self.waiting.drain(..sent);
        if self.waiting.is_empty() {
            // Frees the buffer after a burst.
            self.waiting = Vec::new();
        }
        dropped
    }

    /// Time of the next try.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.retry_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever generations connections have: all of them, or every second or third one.
    #[test]
    fn a_sample_has_its_share_of_connections() {
        const RUNS: u32 = 300;
        for one_in in [1, 2, 3, 10, 100, 1_000] {
            for (step, first) in [(1, 0), (2, 0), (2, 1), (3, 2), (10, 7)] {
                let all = (0..RUNS * one_in).map(|n| first + step * n);
                let chosen = all.filter(|generation| is_in_sample(*generation, one_in));
                let chosen = chosen.count() as u32;
                assert!(
                    chosen.abs_diff(RUNS) <= RUNS / 5,
                    "{chosen}: 1 in {one_in} of each {step}"
                );
            }
        }
        assert!(!(0..100).any(|generation| is_in_sample(generation, 0)));
    }
}
