//! Rows about a client: its connections, its offer, and its memory and CPU time.

use std::collections::BTreeMap;

use super::rows::{Row, bytes, cpu_ms, missing, of, row};
use crate::model::ClientFigures;
use dormouse_bench::model::grouped;

/// Returns all rows about a client.
pub(super) fn rows(client: &ClientFigures) -> Vec<Row> {
    let failed = client
        .failed
        .iter()
        .map(|(reason, count)| row("failed", format!("{count} × {reason}")));
    let mut rows = if client.connections > 0 {
        of_connections(client)
    } else {
        let none = "no handshake was completed";
        vec![
            row("connections", "0"),
            missing("requests, sessions, time in handshakes", none),
        ]
    };
    rows.extend(failed);
    rows.extend(of_hello(client));
    rows.extend(of_process(client));
    rows
}

fn of_connections(client: &ClientFigures) -> Vec<Row> {
    let share = |part: u64| format!("{part} of {}", client.connections);
    let counts = |counts: &BTreeMap<String, u64>| {
        counts
            .iter()
            .map(|(name, count)| format!("{count} × {name}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    vec![
        row("connections", client.connections.to_string()),
        row("requests", client.requests.to_string()),
        row(
            "of them with several requests",
            client.kept_alive.to_string(),
        ),
        row("offered a session", share(client.offered)),
        row("resumed", share(client.resumed)),
        row(
            "different sessions offered",
            client.sessions_offered.to_string(),
        ),
        row(
            "most uses of one session, one after another",
            client.same_session_max.to_string(),
        ),
        row("negotiated versions", counts(&client.versions)),
        row("without a server name", share(client.without_sni)),
        row(
            "ClientHello",
            match client.hello_bytes {
                (least, most) if least == most => format!("{most} bytes"),
                (least, most) => format!("{least} to {most} bytes"),
            },
        ),
        row("additional round trip", share(client.retried)),
        row(
            "time in handshakes",
            format!(
                "{} ms; the run took {} ms",
                grouped(client.handshake_ms, 1),
                grouped(client.run_ms, 0)
            ),
        ),
    ]
}

/// Rows about the first ClientHello, even if its handshake failed.
fn of_hello(client: &ClientFigures) -> Vec<Row> {
    if client.versions_offered.is_empty() {
        return vec![missing("what is offered", "no ClientHello arrived")];
    }
    let list = |names: &[String]| {
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let compression = if client.compression_offered {
        "yes"
    } else {
        "no"
    };
    vec![
        row("versions offered", list(&client.versions_offered)),
        row("groups offered", list(&client.groups_offered)),
        row("key shares", list(&client.key_shares)),
        row("application protocols", list(&client.alpn)),
        row("compression offered", compression),
    ]
}

fn of_process(client: &ClientFigures) -> Vec<Row> {
    vec![
        of(
            "processes with connections",
            &client.processes,
            |(processes, connections)| format!("{processes} for {connections} connections"),
        ),
        of("CPU time of the client", &client.cpu_ms, |ms| match ms {
            ..10.0 => "less than 10 ms".to_owned(),
            ms => cpu_ms(*ms),
        }),
        of(
            "peak memory of the client",
            &client.memory_max_bytes,
            |most| bytes(*most as f64),
        ),
        of("exit status", &client.exit_status, i32::to_string),
    ]
}
