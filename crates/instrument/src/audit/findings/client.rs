//! Findings about a client.

use super::super::model::ClientFigures;
use super::quoted::filled;
use super::{About, Confidence, Finding, Severity, bytes, percent, whole};

/// Connections from which on a client could have resumed.
const ENOUGH: u64 = 4;
/// Connections with one and the same session from which on it is for ever.
const FOR_EVER: u64 = 8;
/// A hello beyond this does not fit into one segment.
const SEGMENT: u64 = 1_440;

pub(super) fn judge(about: &About, client: &ClientFigures, findings: &mut Vec<Finding>) {
    let command = format!("dormouse audit client -- {}", about.target);
    let mut add = |id: &str,
                   severity,
                   title: String,
                   measured: String,
                   reference: &str,
                   cause: &str,
                   confidence| {
        findings.push(Finding {
            id: id.into(),
            severity,
            title,
            measured,
            reference: reference.into(),
            cause: cause.into(),
            confidence,
            advice: about.advice(id),
            command: command.clone(),
        });
    };
    resumption(client, &mut add);
    hello(client, &mut add);
    let per_connection = client
        .cpu_ms
        .value()
        .map(|ms| ms / client.connections.max(1) as f64);
    if let Some(ms) = per_connection.filter(|ms| *ms > 30.0 && client.connections >= ENOUGH) {
        let memory = client.memory_max_bytes.value().copied().unwrap_or(0);
        add(
            "client-cpu",
            Severity::Low,
            format!("the client spends {ms:.0} ms of CPU time per connection"),
            format!(
                "{} ms for {} connections; at most {}",
                whole(ms * client.connections as f64),
                client.connections,
                bytes(memory as f64)
            ),
            "what its handshakes need; the start of the program is counted too",
            "the trust store, or a whole context, is loaded for each connection; or a process is started for each",
            Confidence::Low,
        );
    }
}

fn resumption(
    client: &ClientFigures,
    add: &mut impl FnMut(&str, Severity, String, String, &str, &str, Confidence),
) {
    let ClientFigures {
        connections,
        requests,
        offered,
        resumed,
        ..
    } = *client;
    if connections >= ENOUGH && offered == 0 {
        add(
            "client-never-resumes",
            Severity::High,
            "the client never offers a session".into(),
            format!("{connections} connections, each with a full handshake; {requests} requests"),
            "all but the first resume",
            "a new TLS context for each connection, in which no session can be; or sessions are thrown away",
            Confidence::High,
        );
    } else if connections >= ENOUGH && resumed * 2 < connections {
        add(
            "client-seldom-resumes",
            Severity::Medium,
            "the client resumes less than half of its connections".into(),
            format!("{resumed} of {connections} resumed, {offered} offered a session"),
            "all but the first resume",
            "several contexts, many connections at the same time, or tickets which come too late to be kept",
            Confidence::Low,
        );
    }
    if client.same_session_max >= FOR_EVER {
        add(
            "client-same-session-for-ever",
            Severity::Medium,
            "the client resumes one and the same session for ever".into(),
            format!(
                "one session was offered by {} of {connections} connections, though newer ones had been given",
                client.same_session_max
            ),
            "a session is renewed after some uses or some time, so that its keys and the server's certificate are checked anew",
            "the session of the first connection is kept and set on all others; those that come later are ignored",
            Confidence::High,
        );
    } else if client.tickets_reused > 0 {
        add(
            "client-tickets-reused",
            Severity::Low,
            "TLS 1.3 tickets are used more than once".into(),
            format!("{} times", client.tickets_reused),
            "once each (RFC 8446 C.4): who watches can tell that it is the same client",
            "the library keeps one ticket per server",
            Confidence::High,
        );
    }
    if requests >= 5 && client.kept_alive == 0 && connections * 10 >= requests * 9 {
        add(
            "client-no-keep-alive",
            Severity::Low,
            "every request has a connection of its own".into(),
            format!(
                "{connections} connections for {requests} requests; {} ms of them in handshakes",
                whole(client.handshake_ms)
            ),
            "one connection for many requests",
            "keep-alive is off, or a new client object is made for each request",
            Confidence::Medium,
        );
    }
}

fn hello(
    client: &ClientFigures,
    add: &mut impl FnMut(&str, Severity, String, String, &str, &str, Confidence),
) {
    if client.compression_offered {
        add(
            "client-compression-offered",
            Severity::High,
            "the client offers TLS compression".into(),
            "DEFLATE in its ClientHello".into(),
            &filled(
                "none (CRIME; and it takes memory where it is accepted; without it, {{advice.openssl.compression}})",
            ),
            "a library that was built with zlib, and compression not switched off",
            Confidence::High,
        );
    }
    let modern = |version: &String| version == "TLS 1.3" || version == "TLS 1.2";
    if !client.versions_offered.is_empty() && !client.versions_offered.iter().any(modern) {
        let offered = client.versions_offered.join(", ");
        add(
            "client-old-version",
            Severity::Medium,
            "the client knows withdrawn versions only".into(),
            offered,
            "TLS 1.3",
            "an old library",
            Confidence::High,
        );
    }
    if client.without_sni > 0 && client.without_sni == client.connections {
        let measured = format!("{} connections", client.without_sni);
        add(
            "client-no-sni",
            Severity::Low,
            "the client sends no server name".into(),
            measured,
            "the name, wherever it is not an address",
            "it connects by address, or does not set the name",
            Confidence::Medium,
        );
    }
    if client.hello_bytes.1 > SEGMENT {
        let measured = format!("{} bytes", client.hello_bytes.1);
        add(
            "client-hello-large",
            Severity::Info,
            "the ClientHello takes two packets".into(),
            measured,
            "one packet, unless a post-quantum share is in it",
            "a post-quantum key share, or a long ticket",
            Confidence::Medium,
        );
    }
    if client.retried * 2 > client.connections {
        let measured = format!(
            "{} of {} handshakes",
            percent(client.retried as f64 / client.connections.max(1) as f64),
            client.connections
        );
        add(
            "client-extra-round-trip",
            Severity::Low,
            "the handshake takes a round trip more".into(),
            measured,
            "a key share that servers know: X25519",
            "its first key share is for an unusual group",
            Confidence::High,
        );
    }
}
