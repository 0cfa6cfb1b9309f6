//! Figures of a client.

use std::collections::BTreeMap;

use super::figures::{Premises, Row, figures, missing, row};
use super::measured::Measured;
use super::words::{bytes, counts, cpu_ms, list_or_none, plain, yes_or_no};
use dormouse_bench::model::grouped;

figures! {
    /// All figures of a client.
    ClientFigures at "client" {
        connections: u64, "connections" => plain, also without_handshake;
        /// HTTP requests; with another protocol, connections on which the client sent data
        requests: u64, "requests" => plain, if has_connected;
        /// connections with more than one request
        kept_alive: u64, "of them with several requests" => plain, if has_connected;
        offered: u64, "offered a session" => ClientFigures::share, if has_connected;
        resumed: u64, "resumed" => ClientFigures::share, if has_connected;
        sessions_offered: u64, "different sessions offered" => plain, if has_connected;
        /// connections that offered one session although the client had received newer ones: of the session with the most
        same_session_max: u64, "most uses of one session, one after another" => plain, if has_connected;
        /// tickets of TLS 1.3 that were offered more than once
        tickets_reused: u64;
        versions: BTreeMap<String, u64>, "negotiated versions" => counts, if has_connected;
        without_sni: u64, "without a server name" => ClientFigures::share, if has_connected;
        /// minimum and maximum
        hello_bytes: (u64, u64), "ClientHello" => |_, it| match it {
            (least, most) if least == most => format!("{most} bytes"),
            (least, most) => format!("{least} to {most} bytes"),
        }, if has_connected;
        /// handshakes with an additional round trip
        retried: u64, "additional round trip" => ClientFigures::share, if has_connected;
        /// wall time of all handshakes, as the server sees it
        handshake_ms: f64, "time in handshakes" => |of, ms| {
            format!("{} ms; the run took {} ms", grouped(*ms, 1), grouped(of.run_ms, 0))
        }, if has_connected;
        run_ms: f64;
        /// failed handshakes, by reason
        failed: BTreeMap<String, u64>, also failures;
        versions_offered: Vec<String>, "versions offered" => list_or_none, if has_said_hello, also without_hello;
        groups_offered: Vec<String>, "groups offered" => list_or_none, if has_said_hello;
        key_shares: Vec<String>, "key shares" => list_or_none, if has_said_hello;
        alpn: Vec<String>, "application protocols" => list_or_none, if has_said_hello;
        compression_offered: bool, "compression offered" => yes_or_no, if has_said_hello;
        /// processes that opened connections, and the number of connections whose process is known
        processes: Measured<(u64, u64)>, "processes with connections" => |_, (processes, connections)| {
            format!("{processes} for {connections} connections")
        };
        cpu_ms: Measured<f64>, "CPU time of the client" => |_, ms| match ms {
            ..10.0 => "less than 10 ms".to_owned(),
            ms => cpu_ms(*ms),
        };
        /// the part of it before the first connection
        cpu_startup_ms: Measured<f64>;
        /// CPU time of a P-256 signature on this machine
        signature_us: Measured<f64>;
        memory_max_bytes: Measured<u64>, "peak memory of the client" => |_, most| bytes(*most as f64);
        exit_status: Measured<i32>, "exit status" => plain;
        /// the first thousand connections
        raw: Vec<ClientConnection>;
    }

    /// One connection of a client, as the server saw it.
    ClientConnection at "client.raw[]" {
        at_s: f64;
        version: String;
        /// short name of the session that was offered; null: none
        offered: Option<String>;
        resumed: bool;
        hello_bytes: u64;
        requests: u64;
        handshake_ms: f64;
        /// CPU time that its process had used when it arrived; null: not known
        process_cpu_ms: Option<f64>;
    }
}

impl ClientFigures {
    fn share(&self, part: &u64) -> String {
        format!("{part} of {}", self.connections)
    }

    fn has_connected(&self) -> bool {
        self.connections > 0
    }

    fn has_said_hello(&self) -> bool {
        !self.versions_offered.is_empty()
    }

    fn without_handshake(&self, _: Premises) -> Option<Row> {
        let missing = || {
            missing(
                "requests, sessions, time in handshakes",
                "no handshake was completed",
            )
        };
        (!self.has_connected()).then(missing)
    }

    fn without_hello(&self, _: Premises) -> Option<Row> {
        (!self.has_said_hello()).then(|| missing("what is offered", "no ClientHello arrived"))
    }

    fn failures(&self, _: Premises) -> Vec<Row> {
        let failed = self.failed.iter();
        failed
            .map(|(reason, count)| row("failed", format!("{count} × {reason}")))
            .collect()
    }
}
