//! The definitions of all counters: name, kind, unit and what is counted.

/// What kind of number a counter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A counter: it only grows.
    Counter,
    /// A gauge: it goes up and down.
    Gauge,
    /// A property of one worker, such as its process id: a sum of several means nothing.
    Note,
}

/// What a number is a number of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// The things or events that the description names.
    Events,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
}

/// Defines the counters. A line is
/// `Variant = "name in status and metrics", kind [of unit], "what is counted";`.
macro_rules! counts {
    ($($name:ident = $text:literal, $kind:ident $(of $unit:ident)?, $help:literal;)+) => {
        /// What is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Count { $(#[doc = $help] $name),+ }

        impl Count {
            /// All of them, in the order in which they lie in a worker's block.
            pub const ALL: &'static [Count] = &[$(Count::$name),+];

            /// Returns its name in `status` and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Count::$name => $text),+ }
            }

            /// Returns what it counts, in words.
            pub fn help(self) -> &'static str {
                match self { $(Count::$name => $help),+ }
            }

            /// Returns whether it grows, goes up and down, or is no number of things.
            pub fn kind(self) -> Kind {
                match self { $(Count::$name => counts!(@kind $kind)),+ }
            }

            /// Returns what it is a number of.
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
    Connections = "connections", gauge, "Connections in slots.";
    ChallengesAnswered = "acme_challenges_answered", counter,
        "Handshakes by which somebody saw that a name is ours (ACME), and nothing else.";
    PassedThrough = "passed_through", counter,
        "Connections which were passed on with their TLS, untouched.";
    AtRest = "at_rest", gauge, "Connections at rest.";
    Handshaking = "handshaking", gauge, "Handshakes in flight.";
    PendingBytes = "pending_bytes", gauge of bytes, "Bytes of pending memory in use.";
    Warm = "warm", gauge, "Connections to servers which wait for a local client.";
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
        "Handshakes with servers that failed.";
    ConnectAttemptsFailed = "connect_attempts_failed", counter,
        "Attempts to reach a server that failed, at whatever stage.";
    ConnectGivenUp = "connect_given_up", counter,
        "Local clients for whom no server could be reached.";
    WarmGiven = "warm_given", counter, "Local clients who were given a warm connection.";
    WarmLost = "warm_lost", counter, "Warm connections which ended before anybody was given them.";
    WarmReplaced = "warm_replaced", counter,
        "Local clients who were given another connection, because a warm one ended as they got it.";
    TicketsKept = "tickets_kept", counter, "Tickets of servers that were kept.";
    TicketsIgnored = "tickets_ignored", counter,
        "Messages of tickets that came too late, or more than are kept.";
    KernelBytes = "kernel_bytes", gauge of bytes,
        "Bytes which the kernel holds in send queues of more than 4 KiB.";
    Accepted = "accepted", counter, "TCP connections accepted.";
    HandshakesFull = "handshakes_full", counter, "Full handshakes that succeeded.";
    HandshakesResumed = "handshakes_resumed", counter, "Resumed handshakes that succeeded.";
    HandshakesFull13 = "handshakes_full_tls13", counter, "Full TLS 1.3 handshakes that succeeded.";
    HandshakesResumed13 = "handshakes_resumed_tls13", counter,
        "Resumed TLS 1.3 handshakes that succeeded.";
    HandshakesFull12 = "handshakes_full_tls12", counter, "Full TLS 1.2 handshakes that succeeded.";
    HandshakesResumed12 = "handshakes_resumed_tls12", counter,
        "Resumed TLS 1.2 handshakes that succeeded.";
    ResumptionUnknownKey = "resumption_refused_unknown_key", counter,
        "Sessions not resumed: made with a ticket key that is not known here.";
    ResumptionDamaged = "resumption_refused_damaged", counter,
        "Sessions not resumed: the ticket does not authenticate.";
    ResumptionExpired = "resumption_refused_expired", counter,
        "Sessions not resumed: older than `ticket_lifetime`.";
    ResumptionNotCached = "resumption_refused_not_cached", counter,
        "Sessions not resumed: not in the session cache, or used before.";
    ResumptionOtherServerName = "resumption_refused_other_server_name", counter,
        "Sessions not resumed: made for another server name.";
    ResumptionOtherAlpn = "resumption_refused_other_alpn", counter,
        "Sessions not resumed: made for another application protocol.";
    ResumptionOtherClientPolicy = "resumption_refused_other_client_policy", counter,
        "Sessions not resumed: made under another rule for client certificates.";
    ResumptionClientCertificate = "resumption_refused_client_certificate", counter,
        "Sessions not resumed: the client's certificate would be refused today.";
    ResumptionOtherSuite = "resumption_refused_other_suite", counter,
        "Sessions not resumed: made for another version or cipher suite.";
    TicketsWithheld = "tickets_withheld", counter,
        "Handshakes after which no ticket was given out, since the session is too large for one.";
    ClientCertificatesRefused = "client_certificates_refused", counter,
        "Handshakes refused for the client's certificate, or for want of one.";
    HandshakesFailed = "handshakes_failed", counter, "Handshakes that failed, whoever is to blame.";
    HandshakesNotTls = "handshakes_not_tls", counter,
        "Handshakes that failed because the first bytes were not TLS.";
    HandshakesIncompatible = "handshakes_incompatible", counter,
        "Handshakes that failed for want of a common version, suite, group, signature or protocol.";
    HandshakesPeerAlert = "handshakes_peer_alert", counter,
        "Handshakes that failed with an alert of the client.";
    HandshakesPeerClosed = "handshakes_peer_closed", counter,
        "Handshakes whose client closed in the middle.";
    HandshakesBroken = "handshakes_broken", counter,
        "Handshakes that failed because the client broke the protocol.";
    HandshakesInternal = "handshakes_internal", counter,
        "Handshakes that failed through a fault of our own.";
    HandshakeBytesIn = "handshake_bytes_in", counter of bytes,
        "Bytes which clients sent in handshakes that succeeded.";
    HandshakeBytesOut = "handshake_bytes_out", counter of bytes,
        "Bytes which were sent to clients in handshakes that succeeded.";
    HandshakeFlights = "handshake_flights", counter,
        "Messages in one direction (flights) of handshakes that succeeded.";
    HandshakesTimedOut = "handshakes_timed_out", counter,
        "Handshakes given up because they took longer than `handshake_timeout`.";
    HandshakesTooLarge = "handshakes_too_large", counter,
        "Handshakes refused because a client sent more than `handshake_bytes_max`.";
    HandshakesGivenUp = "handshakes_given_up", counter,
        "Handshakes whose client had given up before it was its turn.";
    HandshakesSilent = "handshakes_silent", counter,
        "Handshakes dropped because their client was silent and others waited for the place.";
    PlainHttp = "plain_http", counter, "Plain HTTP requests that came to the TLS port.";
    ProxyHeaderRefused = "proxy_header_refused", counter,
        "Connections from a trusted proxy without a PROXY protocol header that is right.";
    BackendConnectsFailed = "backend_connects_failed", counter,
        "Connects to a backend that failed.";
    BackendFailovers = "backend_failovers", counter,
        "Connections which went to another backend because one had failed.";
    DeniedNetwork = "denied_network", counter, "Connections refused because of `allow` or `deny`.";
    DeniedConnections = "denied_connections", counter,
        "Connections refused because of `connections_per_client`.";
    DeniedRate = "denied_rate", counter, "Connections refused because of `handshakes_per_client`.";
    ClientsUncounted = "clients_uncounted", counter,
        "Connections whose client could not be counted, because the table had no room.";
    PacedClient = "paced_client", counter,
        "Times a connection had to wait because its client had used up `bytes_per_client`.";
    PacedAll = "paced_all", counter,
        "Times a connection had to wait because all together had used up `max_bytes_per_second`.";
    PacedNow = "paced_now", gauge,
        "Connections that wait for `bytes_per_client` or `max_bytes_per_second`.";
    ClosedClean = "closed_clean", counter, "Connections that ended in order, both ways.";
    ClosedTlsTruncated = "closed_tls_truncated", counter,
        "Connections cut off by the TLS side without close_notify.";
    ClosedTlsFailed = "closed_tls_failed", counter,
        "Connections whose TLS side failed (reset, timed out, fatal alert).";
    ClosedRefused = "closed_refused", counter, "Connections refused for what the TLS peer sent.";
    ClosedPlainFailed = "closed_plain_failed", counter, "Connections whose plain side failed.";
    ClosedBackendDown = "closed_backend_down", counter,
        "Connections for which no backend could be reached.";
    ClosedLimit = "closed_limit", counter, "Connections closed by a limit of ours.";
    ClosedStopping = "closed_stopping", counter, "Connections closed because the gateway stopped.";
    ClosedDrained = "closed_drained", counter, "Connections closed by a drain.";
    ClosedByCrash = "closed_by_crash", counter,
        "Connections reset by a new worker because its predecessor died while working on them.";
    UnixTruncations = "unix_truncations", counter,
        "Truncations that a unix-socket backend could not be told of.";
    PartialRecordTimeouts = "partial_record_timeouts", counter,
        "Records that took longer than `partial_record_timeout`.";
    IdleTimeouts = "idle_timeouts", counter, "Connections closed after `idle_timeout`.";
    TotalTimeouts = "total_timeouts", counter, "Connections closed after `total_timeout`.";
    PendingExhausted = "pending_exhausted", counter,
        "Reads put off because pending memory was used up.";
    KernelExhausted = "kernel_exhausted", counter,
        "Reads put off because the other side is slow to take what it has, and `kernel_memory` is nearly used up.";
    PausedFull = "paused_full", counter, "Times accepting paused because every slot was taken.";
    PausedHandshakes = "paused_handshakes", counter,
        "Looks at newcomers who had to wait because `max_handshakes` were in flight.";
    PausedDescriptors = "paused_descriptors", counter,
        "Times accepting paused because descriptors had run out.";
    PausedPorts = "paused_ports", counter,
        "Times accepting paused because local ports to a backend had run out.";
    SlotsMoved = "slots_moved", counter,
        "Slots moved to the front, so that pages could be given back.";
    KeyUpdates = "key_updates", counter,
        "Key updates of our own: answers, and those before the AEAD limit.";
    TlsBytesIn = "tls_bytes_in", counter of bytes, "Ciphertext bytes received from TLS peers.";
    TlsBytesOut = "tls_bytes_out", counter of bytes, "Ciphertext bytes sealed for TLS peers.";
    PlainBytesOut = "plain_bytes_out", counter of bytes,
        "Plaintext bytes passed to the plain side.";
    PlainBytesIn = "plain_bytes_in", counter of bytes,
        "Plaintext bytes received from the plain side.";
    ConnectionLogLines = "connection_log_lines", counter,
        "Lines of the connection log that were passed on to be written.";
    ConnectionLogDropped = "connection_log_dropped", counter,
        "Lines of the connection log that were dropped, because its writer was behind.";
    Restarts = "restarts", counter, "Times the worker was started again after it died.";
    Hangs = "hangs", counter, "Times the worker was ended because it gave no sign of life.";
    Upgrades = "upgrades", counter, "Times the worker was replaced by one of another binary.";
    WorkerPid = "worker_pid", note, "Process id of the worker.";
    WorkerBornMs = "worker_born_ms", note of milliseconds,
        "When the worker was started, in milliseconds of CLOCK_BOOTTIME.";
    DiedMs = "died_ms", note of milliseconds,
        "When the worker before it died, in milliseconds of CLOCK_BOOTTIME.";
    DiedOf = "died_of", note, "How the worker before it died.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_their_unit() {
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
