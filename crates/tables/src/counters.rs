//! Counters, one block per worker in a mapping that all processes share.
//!
//! A worker writes only its own block, with relaxed stores, so nobody waits for anybody, and a
//! worker that is killed while it writes leaves at worst one count too few.

use crate::latency::{self, Latency};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, Ended};
use dormouse_reactor::shared::{Block, COMMON, Shared};
use std::io;
use std::sync::atomic::Ordering;

/// What a number in the mapping is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows.
    Total,
    /// It goes up and down.
    Gauge,
    /// It says something of one worker; a sum of it means nothing.
    Note,
}

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// What is counted. Cumulative, unless its description begins with "Gauge:" or "Note:".
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Count { $($(#[doc = $doc])+ $name),+ }

        impl Count {
            /// All of them, in order.
            pub const ALL: &'static [Count] = &[$(Count::$name),+];

            /// Its name in `status`.
            pub fn name(self) -> &'static str {
                match self { $(Count::$name => $text),+ }
            }

            /// What it counts, in words.
            pub fn help(self) -> &'static str {
                match self { $(Count::$name => concat!($($doc),+).trim_ascii()),+ }
            }

            /// Whether it grows, goes up and down, or is no number of things.
            pub fn kind(self) -> Kind {
                match self.help().split_once(':') {
                    Some(("Gauge", _)) => Kind::Gauge,
                    Some(("Note", _)) => Kind::Note,
                    _ => Kind::Total,
                }
            }
        }
    };
}

counts! {
    /// Gauge: connections in slots.
    Connections = "connections",
    /// Handshakes by which somebody saw that a name is ours (ACME), and nothing else.
    ChallengesAnswered = "acme_challenges_answered",
    /// Connections which were passed on with their TLS, untouched.
    PassedThrough = "passed_through",
    /// Gauge: connections at rest.
    AtRest = "at_rest",
    /// Gauge: handshakes in flight.
    Handshaking = "handshaking",
    /// Gauge: bytes of pending memory in use.
    PendingBytes = "pending_bytes",
    /// Gauge: connections to servers which wait for a local client.
    Warm = "warm",
    /// Full handshakes with servers.
    ConnectHandshakesFull = "connect_handshakes_full",
    /// Resumed handshakes with servers.
    ConnectHandshakesResumed = "connect_handshakes_resumed",
    /// Full TLS 1.3 handshakes with servers.
    ConnectHandshakesFull13 = "connect_handshakes_full_tls13",
    /// Resumed TLS 1.3 handshakes with servers.
    ConnectHandshakesResumed13 = "connect_handshakes_resumed_tls13",
    /// Full TLS 1.2 handshakes with servers.
    ConnectHandshakesFull12 = "connect_handshakes_full_tls12",
    /// Resumed TLS 1.2 handshakes with servers.
    ConnectHandshakesResumed12 = "connect_handshakes_resumed_tls12",
    /// Handshakes with servers that failed.
    ConnectHandshakesFailed = "connect_handshakes_failed",
    /// Attempts to reach a server that failed, at whatever stage.
    ConnectAttemptsFailed = "connect_attempts_failed",
    /// Local clients for whom no server could be reached.
    ConnectGivenUp = "connect_given_up",
    /// Local clients who were given a warm connection.
    WarmGiven = "warm_given",
    /// Warm connections which ended before anybody was given them.
    WarmLost = "warm_lost",
    /// Local clients who were given another connection, because a warm one ended as they got it.
    WarmReplaced = "warm_replaced",
    /// Tickets of servers that were kept.
    TicketsKept = "tickets_kept",
    /// Messages of tickets that came too late, or more than are kept.
    TicketsIgnored = "tickets_ignored",
    /// Gauge: bytes which the kernel holds in send queues of more than 4 KiB.
    KernelBytes = "kernel_bytes",
    /// TCP connections accepted.
    Accepted = "accepted",
    /// Full handshakes that succeeded.
    HandshakesFull = "handshakes_full",
    /// Resumed handshakes that succeeded.
    HandshakesResumed = "handshakes_resumed",
    /// Full TLS 1.3 handshakes that succeeded.
    HandshakesFull13 = "handshakes_full_tls13",
    /// Resumed TLS 1.3 handshakes that succeeded.
    HandshakesResumed13 = "handshakes_resumed_tls13",
    /// Full TLS 1.2 handshakes that succeeded.
    HandshakesFull12 = "handshakes_full_tls12",
    /// Resumed TLS 1.2 handshakes that succeeded.
    HandshakesResumed12 = "handshakes_resumed_tls12",
    /// Sessions not resumed: made with a ticket key that is not known here.
    ResumptionUnknownKey = "resumption_refused_unknown_key",
    /// Sessions not resumed: the ticket does not authenticate.
    ResumptionDamaged = "resumption_refused_damaged",
    /// Sessions not resumed: older than `ticket_lifetime`.
    ResumptionExpired = "resumption_refused_expired",
    /// Sessions not resumed: not in the session cache, or used before.
    ResumptionNotCached = "resumption_refused_not_cached",
    /// Sessions not resumed: made for another server name.
    ResumptionOtherServerName = "resumption_refused_other_server_name",
    /// Sessions not resumed: made for another application protocol.
    ResumptionOtherAlpn = "resumption_refused_other_alpn",
    /// Sessions not resumed: made under another rule for client certificates.
    ResumptionOtherClientPolicy = "resumption_refused_other_client_policy",
    /// Sessions not resumed: the client's certificate would be refused today.
    ResumptionClientCertificate = "resumption_refused_client_certificate",
    /// Sessions not resumed: made for another version or cipher suite.
    ResumptionOtherSuite = "resumption_refused_other_suite",
    /// Handshakes after which no ticket was given out, since the session is too large for one.
    TicketsWithheld = "tickets_withheld",
    /// Handshakes refused for the client's certificate, or for want of one.
    ClientCertificatesRefused = "client_certificates_refused",
    /// Handshakes that failed, whoever is to blame.
    HandshakesFailed = "handshakes_failed",
    /// Handshakes that failed because the first bytes were not TLS.
    HandshakesNotTls = "handshakes_not_tls",
    /// Handshakes that failed for want of a common version, suite, group, signature or protocol.
    HandshakesIncompatible = "handshakes_incompatible",
    /// Handshakes that failed with an alert of the client.
    HandshakesPeerAlert = "handshakes_peer_alert",
    /// Handshakes whose client closed in the middle.
    HandshakesPeerClosed = "handshakes_peer_closed",
    /// Handshakes that failed because the client broke the protocol.
    HandshakesBroken = "handshakes_broken",
    /// Handshakes that failed through a fault of our own.
    HandshakesInternal = "handshakes_internal",
    /// Bytes which clients sent in handshakes that succeeded.
    HandshakeBytesIn = "handshake_bytes_in",
    /// Bytes which were sent to clients in handshakes that succeeded.
    HandshakeBytesOut = "handshake_bytes_out",
    /// Messages in one direction (flights) of handshakes that succeeded.
    HandshakeFlights = "handshake_flights",
    /// Handshakes given up because they took longer than `handshake_timeout`.
    HandshakesTimedOut = "handshakes_timed_out",
    /// Handshakes refused because a client sent more than `handshake_bytes_max`.
    HandshakesTooLarge = "handshakes_too_large",
    /// Handshakes whose client had given up before it was its turn.
    HandshakesGivenUp = "handshakes_given_up",
    /// Handshakes dropped because their client was silent and others waited for the place.
    HandshakesSilent = "handshakes_silent",
    /// Plain HTTP requests that came to the TLS port.
    PlainHttp = "plain_http",
    /// Connections from a trusted proxy without a PROXY protocol header that is right.
    ProxyHeaderRefused = "proxy_header_refused",
    /// Connects to a backend that failed.
    BackendConnectsFailed = "backend_connects_failed",
    /// Connections which went to another backend because one had failed.
    BackendFailovers = "backend_failovers",
    /// Connections refused because of `allow` or `deny`.
    DeniedNetwork = "denied_network",
    /// Connections refused because of `connections_per_client`.
    DeniedConnections = "denied_connections",
    /// Connections refused because of `handshakes_per_client`.
    DeniedRate = "denied_rate",
    /// Connections whose client could not be counted, because the table had no room.
    ClientsUncounted = "clients_uncounted",
    /// Times a connection had to wait because its client had used up `bytes_per_client`.
    PacedClient = "paced_client",
    /// Times a connection had to wait because all together had used up `max_bytes_per_second`.
    PacedAll = "paced_all",
    /// Gauge: connections that wait for `bytes_per_client` or `max_bytes_per_second`.
    PacedNow = "paced_now",
    /// Connections that ended in order, both ways.
    ClosedClean = "closed_clean",
    /// Connections cut off by the TLS side without close_notify.
    ClosedTlsTruncated = "closed_tls_truncated",
    /// Connections whose TLS side failed (reset, timed out, fatal alert).
    ClosedTlsFailed = "closed_tls_failed",
    /// Connections refused for what the TLS peer sent.
    ClosedRefused = "closed_refused",
    /// Connections whose plain side failed.
    ClosedPlainFailed = "closed_plain_failed",
    /// Connections for which no backend could be reached.
    ClosedBackendDown = "closed_backend_down",
    /// Connections closed by a limit of ours.
    ClosedLimit = "closed_limit",
    /// Connections closed because the gateway stopped.
    ClosedStopping = "closed_stopping",
    /// Connections closed by a drain.
    ClosedDrained = "closed_drained",
    /// Connections reset by a new worker because its predecessor died while working on them.
    ClosedByCrash = "closed_by_crash",
    /// Truncations that a unix-socket backend could not be told of.
    UnixTruncations = "unix_truncations",
    /// Records that took longer than `partial_record_timeout`.
    PartialRecordTimeouts = "partial_record_timeouts",
    /// Connections closed after `idle_timeout`.
    IdleTimeouts = "idle_timeouts",
    /// Connections closed after `total_timeout`.
    TotalTimeouts = "total_timeouts",
    /// Reads put off because pending memory was used up.
    PendingExhausted = "pending_exhausted",
    /// Reads put off because the other side is slow to take what it has, and `kernel_memory` is
    /// nearly used up.
    KernelExhausted = "kernel_exhausted",
    /// Times accepting paused because every slot was taken.
    PausedFull = "paused_full",
    /// Looks at newcomers who had to wait because `max_handshakes` were in flight.
    PausedHandshakes = "paused_handshakes",
    /// Times accepting paused because descriptors had run out.
    PausedDescriptors = "paused_descriptors",
    /// Times accepting paused because local ports to a backend had run out.
    PausedPorts = "paused_ports",
    /// Slots moved to the front, so that pages could be given back.
    SlotsMoved = "slots_moved",
    /// Key updates of our own: answers, and those before the AEAD limit.
    KeyUpdates = "key_updates",
    /// Ciphertext bytes received from TLS peers.
    TlsBytesIn = "tls_bytes_in",
    /// Ciphertext bytes sealed for TLS peers.
    TlsBytesOut = "tls_bytes_out",
    /// Plaintext bytes passed to the plain side.
    PlainBytesOut = "plain_bytes_out",
    /// Plaintext bytes received from the plain side.
    PlainBytesIn = "plain_bytes_in",
    /// Times the worker was started again after it died.
    Restarts = "restarts",
    /// Times the worker was ended because it gave no sign of life.
    Hangs = "hangs",
    /// Times the worker was replaced by one of another binary.
    Upgrades = "upgrades",
    /// Note: process id of the worker.
    WorkerPid = "worker_pid",
    /// Note: when the worker was started, in milliseconds of CLOCK_BOOTTIME.
    WorkerBornMs = "worker_born_ms",
    /// Note: when the worker before it died, in milliseconds of CLOCK_BOOTTIME.
    DiedMs = "died_ms",
    /// Note: how the worker before it died.
    DiedOf = "died_of",
}

/// This worker's block of the mapping which all processes share.
#[derive(Clone, Debug)]
pub struct Counters(Block);

impl Counters {
    /// Over a block of the shared mapping.
    pub fn new(block: Block) -> Counters {
        Counters(block)
    }

    /// The block of a worker, in the mapping behind a descriptor.
    pub fn of_worker(counters: Fd, workers: u32, worker: u32) -> io::Result<Counters> {
        let shared = Shared::adopt(counters, workers as usize).map_err(io::Error::other)?;
        let block = shared.block(worker as usize);
        block
            .map(Counters)
            .ok_or_else(|| io::Error::other("there are no counters for this worker"))
    }

    /// This process is the worker now.
    pub fn note_birth(&self) {
        self.set(Count::WorkerPid, process::pid().0 as u64);
        self.set(Count::WorkerBornMs, process::boottime_ms());
    }

    /// The worker has died of this.
    pub fn note_death(&self, ended: Ended) {
        self.set(Count::DiedOf, code_of(ended));
        self.set(Count::DiedMs, process::boottime_ms());
    }

    /// Adds `n`.
    pub fn add(&self, count: Count, n: u64) {
        self.0.add(count as usize, n);
    }

    /// Adds to a word of a histogram.
    pub(crate) fn add_at(&self, word: usize, n: u64) {
        self.0.add(word, n);
    }

    /// Something took so long.
    pub fn observe(&self, latency: Latency, took_us: u64) {
        latency.observe(self, took_us);
    }

    /// Puts values where this build has them, after a binary that had other counters, or the same
    /// in another order.
    pub fn reorder(&self, former: &[String]) {
        let values: Vec<u64> = (0..former.len()).map(|word| self.0.load(word)).collect();
        for (word, count) in Count::ALL.iter().enumerate() {
            let place = former.iter().position(|name| name == count.name());
            let value = place.and_then(|place| values.get(place));
            self.0.set(word, value.copied().unwrap_or(0));
        }
        self.0.clear(Count::ALL.len()..latency::WORDS_AT);
    }

    /// Sets a gauge.
    pub fn set(&self, count: Count, value: u64) {
        self.0.set(count as usize, value);
    }
}

const _: () = assert!(Count::ALL.len() <= latency::WORDS_AT);

/// Words which belong to all workers, written by main.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Common {
    /// Unix time since when the current ticket key seals; 0: not known.
    KeySince = 128,
    /// Unix time at which the next one does; 0: never by itself.
    KeyRotates = 129,
    /// How it stands with the store of the ticket keys; 0: there is none.
    StoreState = 130,
    /// Unix time at which the store was last in order.
    StoreSeen = 131,
    /// Looks at the store which came to nothing.
    StoreFailures = 132,
}

const _: () = assert!((Common::StoreFailures as usize) < COMMON);

impl Common {
    /// Stores the value. A word that the mapping does not have is left out.
    pub fn set(self, shared: &Shared, value: u64) {
        if let Some(word) = shared.common(self as usize) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Adds `n` to the value. A word that the mapping does not have is left out.
    pub fn add(self, shared: &Shared, n: u64) {
        if let Some(word) = shared.common(self as usize) {
            word.fetch_add(n, Ordering::Relaxed);
        }
    }
}

/// How a process ended, as a number: an exit code, or a signal with a bit above it.
fn code_of(ended: Ended) -> u64 {
    match ended {
        Ended::Exited(code) => u64::from(code as u32),
        Ended::Killed(signal) => BY_SIGNAL | u64::from(signal as u32),
    }
}

const BY_SIGNAL: u64 = 1 << 32;

/// The reverse, in words.
pub fn ended_in_words(code: u64) -> String {
    let number = code as u32 as i32;
    if code & BY_SIGNAL != 0 {
        Ended::Killed(number).to_string()
    } else {
        Ended::Exited(number).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_goes_through_the_mapping() {
        for ended in [Ended::Exited(0), Ended::Exited(78), Ended::Killed(9)] {
            assert_eq!(ended_in_words(code_of(ended)), ended.to_string());
        }
    }

    #[test]
    fn names_are_unique_and_kinds_as_described() {
        let mut names: Vec<_> = Count::ALL.iter().map(|count| count.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Count::ALL.len());
        assert_eq!(Count::Connections.kind(), Kind::Gauge);
        assert_eq!(Count::DiedOf.kind(), Kind::Note);
        assert_eq!(Count::Accepted.kind(), Kind::Total);
    }

    #[test]
    fn values_follow_their_names() {
        let shared = Shared::create("test", 1).expect("memory");
        let block = shared.block(0).expect("a block");
        let count = Counters::new(block.clone());
        let former = ["restarts", "gone", "accepted"].map(String::from);
        for (word, value) in [7, 8, 9].into_iter().enumerate() {
            block.set(word, value);
        }
        block.set(60, 3);
        count.reorder(&former);
        assert_eq!(block.load(Count::Restarts as usize), 7);
        assert_eq!(block.load(Count::Accepted as usize), 9);
        assert_eq!(shared.sum(Count::Connections as usize), 0);
        assert_eq!(block.load(60), 0, "nobody's any more");
        shared.fd().close();
    }
}
