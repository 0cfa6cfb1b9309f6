//! The definitions of all counters: name, kind, unit and description.

/// Kind of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A counter, which only grows.
    Counter,
    /// A gauge, which goes up and down.
    Gauge,
    /// A property of one worker, such as its process id, which can't be summed.
    Note,
}

/// Unit of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Number of the events or objects in the description.
    Events,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
}

/// Defines the counters. A line is
/// `Variant = "name in status and metrics", kind [of unit], "description";`.
macro_rules! counts {
    ($($name:ident = $text:literal, $kind:ident $(of $unit:ident)?, $help:literal;)+) => {
        /// Counters and gauges of a worker.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Count { $(#[doc = $help] $name),+ }

        impl Count {
            /// All values, in the order of a worker's block.
            pub const ALL: &'static [Count] = &[$(Count::$name),+];

            /// Returns the name in `status` and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Count::$name => $text),+ }
            }

            /// Returns the description.
            pub fn help(self) -> &'static str {
                match self { $(Count::$name => $help),+ }
            }

            /// Returns the kind.
            pub fn kind(self) -> Kind {
                match self { $(Count::$name => counts!(@kind $kind)),+ }
            }

            /// Returns the unit.
            pub fn unit(self) -> Unit {
                match self { $(Count::$name => counts!(@unit $($unit)?)),+ }
            }
        }
    };
    (@kind counter) => { Kind::Counter };
    (@kind gauge) => { Kind::Gauge };
    (@kind note) => { Kind::Note };
    (@unit) => { Unit::Events };
    (@unit bytes) => { Unit::Bytes };
    (@unit milliseconds) => { Unit::Milliseconds };
}

counts! {
    Connections = "connections", gauge, "Connections after their handshake.";
    ChallengesAnswered = "acme_challenges_answered", counter,
        "ACME challenges (tls-alpn-01) answered.";
    PassedThrough = "passed_through", counter,
        "Connections forwarded with their TLS unchanged (`pass_through`).";
    AtRest = "at_rest", gauge, "Connections at rest.";
    Resting = "resting", gauge,
        "TCP connections in deep rest (`rest_after`), of clients and to backends.";
    Awake = "awake", gauge,
        "Connections that have sockets, if a route has `rest_after`; `max_awake` limits them.";
    WakesWaited = "wakes_waited", counter,
        "Packets that found no place for another awake connection (`max_awake`), and wait for one.";
    RestsEarly = "rests_early", counter,
        "TCP connections that were asked to go to deep rest before their time, because few places were left (`max_awake`).";
    Rests = "rests", counter, "TCP connections that went to deep rest.";
    Wakes = "wakes", counter, "TCP connections that came back from deep rest.";
    Handshaking = "handshaking", gauge, "Handshakes in flight.";
    HandshakesBegun = "handshakes_begun", gauge,
        "Handshakes in flight that use memory: the client has sent something.";
    PendingBytes = "pending_bytes", gauge of bytes, "Bytes of pending memory in use.";
    Warm = "warm", gauge, "Warm connections to servers, ready for a local client.";
    ConnectHandshakesFull = "connect_handshakes_full", counter, "Full handshakes with servers.";
    ConnectHandshakesResumed = "connect_handshakes_resumed", counter,
        "Resumed handshakes with servers.";
    ConnectHandshakesFull13 = "connect_handshakes_full_tls13", counter,
        "Full TLS 1.3 handshakes with servers.";
    ConnectHandshakesResumed13 = "connect_handshakes_resumed_tls13", counter,
        "Resumed TLS 1.3 handshakes with servers.";
    ConnectHandshakesFull12 = "connect_handshakes_full_tls12", counter,
        "Full TLS 1.2 handshakes with servers.";
    ConnectHandshakesResumed12 = "connect_handshakes_resumed_tls12", counter,
        "Resumed TLS 1.2 handshakes with servers.";
    ConnectHandshakesFailed = "connect_handshakes_failed", counter,
        "Failed handshakes with servers.";
    ConnectAttemptsFailed = "connect_attempts_failed", counter,
        "Failed attempts to reach a server: failed connects, handshakes and timeouts.";
    ConnectGivenUp = "connect_given_up", counter,
        "Local clients reset because no server could be reached.";
    WarmGiven = "warm_given", counter, "Local clients that got a warm connection.";
    WarmLost = "warm_lost", counter, "Warm connections that ended before a local client used them.";
    WarmReplaced = "warm_replaced", counter,
        "Local clients that got another connection because their warm one had just ended.";
    TicketsKept = "tickets_kept", counter, "Session tickets of servers that were kept.";
    TicketsIgnored = "tickets_ignored", counter,
        "Session tickets of servers that were ignored: too late, or more than are kept.";
    KernelBytes = "kernel_bytes", gauge of bytes,
        "Kernel memory in send queues of more than 4 KiB.";
    Accepted = "accepted", counter, "TCP connections accepted.";
    HandshakesFull = "handshakes_full", counter, "Successful full handshakes.";
    HandshakesResumed = "handshakes_resumed", counter, "Successful resumed handshakes.";
    HandshakesFull13 = "handshakes_full_tls13", counter, "Successful full TLS 1.3 handshakes.";
    HandshakesResumed13 = "handshakes_resumed_tls13", counter,
        "Successful resumed TLS 1.3 handshakes.";
    HandshakesFull12 = "handshakes_full_tls12", counter, "Successful full TLS 1.2 handshakes.";
    HandshakesResumed12 = "handshakes_resumed_tls12", counter,
        "Successful resumed TLS 1.2 handshakes.";
    ResumptionUnknownKey = "resumption_refused_unknown_key", counter,
        "Sessions not resumed: unknown ticket key.";
    ResumptionDamaged = "resumption_refused_damaged", counter,
        "Sessions not resumed: the ticket does not authenticate.";
    ResumptionExpired = "resumption_refused_expired", counter,
        "Sessions not resumed: older than `ticket_lifetime`.";
    ResumptionNotCached = "resumption_refused_not_cached", counter,
        "Sessions not resumed: not in the session cache, or already used.";
    ResumptionOtherServerName = "resumption_refused_other_server_name", counter,
        "Sessions not resumed: created for another server name.";
    ResumptionOtherAlpn = "resumption_refused_other_alpn", counter,
        "Sessions not resumed: created for another application protocol.";
    ResumptionOtherClientPolicy = "resumption_refused_other_client_policy", counter,
        "Sessions not resumed: created under other rules for client certificates.";
    ResumptionClientCertificate = "resumption_refused_client_certificate", counter,
        "Sessions not resumed: the client's certificate is not accepted any more.";
    ResumptionOtherSuite = "resumption_refused_other_suite", counter,
        "Sessions not resumed: created for another version or cipher suite.";
    TicketsWithheld = "tickets_withheld", counter,
        "Handshakes without a ticket because the session is too large for one.";
    ClientCertificatesRefused = "client_certificates_refused", counter,
        "Handshakes refused because the client's certificate was invalid or missing.";
    HandshakesFailed = "handshakes_failed", counter, "Failed handshakes, for any reason.";
    HandshakesNotTls = "handshakes_not_tls", counter,
        "Failed handshakes: the first bytes were not TLS.";
    HandshakesIncompatible = "handshakes_incompatible", counter,
        "Failed handshakes: no common version, suite, group, signature or protocol.";
    HandshakesPeerAlert = "handshakes_peer_alert", counter,
        "Failed handshakes: the client sent an alert.";
    HandshakesPeerClosed = "handshakes_peer_closed", counter,
        "Failed handshakes: the client closed before the end.";
    HandshakesBroken = "handshakes_broken", counter,
        "Failed handshakes: the client broke the protocol.";
    HandshakesInternal = "handshakes_internal", counter,
        "Failed handshakes: internal error.";
    HandshakeBytesIn = "handshake_bytes_in", counter of bytes,
        "Bytes received from clients in successful handshakes.";
    HandshakeBytesOut = "handshake_bytes_out", counter of bytes,
        "Bytes sent to clients in successful handshakes.";
    HandshakeFlights = "handshake_flights", counter,
        "Flights (messages in one direction) of successful handshakes.";
    HandshakesTimedOut = "handshakes_timed_out", counter,
        "Handshakes that took longer than `handshake_timeout`.";
    HandshakesTooLarge = "handshakes_too_large", counter,
        "Handshakes refused because the client sent more than `handshake_bytes_max`.";
    HandshakesGivenUp = "handshakes_given_up", counter,
        "Handshakes whose client closed the connection while it was queued.";
    HandshakesSilent = "handshakes_silent", counter,
        "Handshakes dropped because the client was silent and other clients were queued.";
    AgreementsBatched = "agreements_batched", counter,
        "Key agreements with clients that were computed together with those of others.";
    PlainHttp = "plain_http", counter, "Plain HTTP requests to the TLS port.";
    ProxyHeaderRefused = "proxy_header_refused", counter,
        "Connections from a trusted proxy without a valid PROXY protocol header.";
    BackendConnectsFailed = "backend_connects_failed", counter,
        "Failed connects to backends.";
    BackendFailovers = "backend_failovers", counter,
        "Failovers: connects to another backend after one had failed.";
    DeniedNetwork = "denied_network", counter, "Connections refused because of `allow` or `deny`.";
    DeniedConnections = "denied_connections", counter,
        "Connections refused because of `connections_per_client`.";
    DeniedRate = "denied_rate", counter, "Connections refused because of `handshakes_per_client`.";
    DeniedRouteConnections = "denied_route_connections", counter,
        "Connections refused because of `route_max_connections`.";
    DeniedRouteRate = "denied_route_rate", counter,
        "Connections refused because of `route_handshakes_per_second`.";
    DeniedRouteMemory = "denied_route_memory", counter,
        "Connections refused because of `route_memory_share`.";
    ClientsUncounted = "clients_uncounted", counter,
        "Connections whose client is not counted because the table of clients is full.";
    PacedClient = "paced_client", counter,
        "Waits of connections because of `bytes_per_client`.";
    PacedAll = "paced_all", counter,
        "Waits of connections because of `max_bytes_per_second`.";
    PacedRoute = "paced_route", counter,
        "Waits of connections because of `route_bytes_per_second`.";
    PacedNow = "paced_now", gauge,
        "Connections waiting now because of `bytes_per_client`, `max_bytes_per_second` or `route_bytes_per_second`.";
    ClosedClean = "closed_clean", counter, "Connections closed properly in both directions.";
    ClosedTlsTruncated = "closed_tls_truncated", counter,
        "Connections truncated: the TLS peer closed without close_notify.";
    ClosedTlsFailed = "closed_tls_failed", counter,
        "Connections whose TLS side failed (reset, timeout, fatal alert).";
    ClosedRefused = "closed_refused", counter, "Connections aborted because the TLS peer broke the protocol.";
    ClosedPlainFailed = "closed_plain_failed", counter, "Connections whose plain side failed.";
    ClosedBackendDown = "closed_backend_down", counter,
        "Connections closed because no backend could be reached.";
    ClosedLimit = "closed_limit", counter, "Connections closed because of a limit or timeout.";
    ClosedStopping = "closed_stopping", counter, "Connections closed because the gateway stopped.";
    ClosedDrained = "closed_drained", counter, "Connections closed by a drain.";
    ClosedByAdmin = "closed_by_admin", counter, "Connections closed by `dormouse close`.";
    ClosedByCrash = "closed_by_crash", counter,
        "Connections reset because the worker died while working on them.";
    UnixTruncations = "unix_truncations", counter,
        "Truncated connections that a unix-socket backend saw as closed.";
    PartialRecordTimeouts = "partial_record_timeouts", counter,
        "Records that took longer than `partial_record_timeout`.";
    StallTimeouts = "stall_timeouts", counter,
        "Connections reset because memory was short and they made no progress for `stall_timeout`.";
    IdleTimeouts = "idle_timeouts", counter, "Connections closed after `idle_timeout`.";
    TotalTimeouts = "total_timeouts", counter, "Connections closed after `total_timeout`.";
    PendingExhausted = "pending_exhausted", counter,
        "Reads deferred because pending memory was full.";
    KernelExhausted = "kernel_exhausted", counter,
        "Reads deferred because the other side reads slowly and `kernel_memory` is nearly full.";
    ShareExhausted = "share_exhausted", counter,
        "Reads deferred because the connection's route holds its `route_memory_share`.";
    PausedFull = "paused_full", counter, "Pauses of accepting: all connection slots in use.";
    PausedHandshakes = "paused_handshakes", counter,
        "Checks that found clients queued because `max_handshakes` was reached.";
    PausedDescriptors = "paused_descriptors", counter,
        "Pauses of accepting: no file descriptors left.";
    PausedAwake = "paused_awake", counter,
        "Pauses of accepting: as many connections were awake as may be (`max_awake`).";
    PausedPorts = "paused_ports", counter,
        "Pauses of accepting: no local ports left for connections to a backend.";
    PausedMemory = "paused_memory", counter,
        "Pauses of accepting: the kernel has no memory for another connection.";
    PausedRefused = "paused_refused", counter,
        "Pauses of accepting: the kernel refuses to accept connections.";
    SlotsMoved = "slots_moved", counter,
        "Slots moved to return memory to the system.";
    KeyUpdates = "key_updates", counter,
        "TLS key updates sent: answers to the peer's, and before the AEAD limit.";
    TlsBytesIn = "tls_bytes_in", counter of bytes, "Ciphertext bytes received from TLS peers.";
    TlsBytesOut = "tls_bytes_out", counter of bytes, "Ciphertext bytes sealed for TLS peers.";
    PlainBytesOut = "plain_bytes_out", counter of bytes,
        "Plaintext bytes sent to the plain side.";
    PlainBytesIn = "plain_bytes_in", counter of bytes,
        "Plaintext bytes received from the plain side.";
    ConnectionLogLines = "connection_log_lines", counter,
        "Connection log lines passed to the log writer.";
    ConnectionLogDropped = "connection_log_dropped", counter,
        "Connection log lines dropped because the log writer was too slow.";
    Restarts = "restarts", counter, "Restarts of the worker after it died.";
    Hangs = "hangs", counter, "Workers killed because they hung (`hang_timeout`).";
    Upgrades = "upgrades", counter, "Upgrades: replacements of the worker by one of another binary.";
    WorkerPid = "worker_pid", note, "Process id of the worker.";
    WorkerBornMs = "worker_born_ms", note of milliseconds,
        "Start time of the worker, in milliseconds of CLOCK_BOOTTIME.";
    DiedMs = "died_ms", note of milliseconds,
        "Time at which the previous worker died, in milliseconds of CLOCK_BOOTTIME.";
    DiedOf = "died_of", note, "Cause of the previous worker's death.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_contain_the_unit() {
        let mut names: Vec<_> = Count::ALL.iter().map(|count| count.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Count::ALL.len());
        for count in Count::ALL {
            let name = count.name();
            let of_bytes = name.split('_').any(|word| word == "bytes");
            assert_eq!(count.unit() == Unit::Bytes, of_bytes, "{name}");
            let of_time = name.ends_with("_ms");
            assert_eq!(count.unit() == Unit::Milliseconds, of_time, "{name}");
        }
        assert_eq!(Count::Connections.kind(), Kind::Gauge);
        assert_eq!(Count::DiedOf.kind(), Kind::Note);
        assert_eq!(Count::Accepted.kind(), Kind::Counter);
    }
}
