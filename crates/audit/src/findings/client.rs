//! Findings about a client.

use super::catalogue::FindingId;
use super::finding::{Confidence, Finding, Severity};
use super::quoted::filled;
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::model::ClientFigures;

/// Connections which could have resumed, from which on a client that does not is at fault.
const ENOUGH: u64 = 3;
/// Connections from which on a cost for each of them is one.
const SOME: u64 = 4;
/// Connections with one and the same session from which on it is for ever.
const FOR_EVER: u64 = 8;
/// A hello beyond this does not fit into one segment.
const SEGMENT: u64 = 1_440;

pub(super) fn judge(subject: &AuditSubject, client: &ClientFigures, findings: &mut Vec<Finding>) {
    let command = format!("dormouse audit client -- {}", subject.target);
    let mut add = |id: FindingId,
                   severity,
                   title: String,
                   measured: String,
                   reference: &str,
                   cause: &str,
                   confidence| {
        findings.push(Finding {
            id,
            severity,
            title,
            measured,
            reference: reference.into(),
            cause: cause.into(),
            confidence,
            advice: subject.advice(id),
            command: command.clone(),
        });
    };
    resumption(client, &mut add);
    hello(client, &mut add);
    let per_connection = client
        .cpu_ms
        .value()
        .map(|ms| ms / client.connections.max(1) as f64);
    if let Some(ms) = per_connection.filter(|ms| *ms > 30.0 && client.connections >= SOME) {
        let memory = client.memory_max_bytes.value().copied().unwrap_or(0);
        add(
            FindingId::ClientCpu,
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
    add: &mut impl FnMut(FindingId, Severity, String, String, &str, &str, Confidence),
) {
    let ClientFigures {
        connections,
        requests,
        offered,
        resumed,
        ..
    } = *client;
    let chances = chances(client);
    if chances >= ENOUGH && offered == 0 {
        add(
            FindingId::ClientNeverResumes,
            Severity::High,
            "the client never offers a session".into(),
            format!("{connections} connections, each with a full handshake; {requests} requests"),
            "all but the first resume",
            "a new TLS context for each connection, in which no session can be; or sessions are thrown away",
            Confidence::High,
        );
    } else if chances >= ENOUGH && resumed * 2 < chances {
        add(
            FindingId::ClientSeldomResumes,
            Severity::Medium,
            "the client resumes less than half of the connections that could be".into(),
            format!(
                "{resumed} of {connections} resumed, {offered} offered a session, {chances} could have"
            ),
            "all but the first resume",
            "several contexts, many connections at the same time, or tickets which come too late to be kept",
            Confidence::Low,
        );
    }
    if client.same_session_max >= FOR_EVER {
        add(
            FindingId::ClientSameSessionForEver,
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
            FindingId::ClientTicketsReused,
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
            FindingId::ClientNoKeepAlive,
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

/// Connections that were begun when there was a session to offer. Those which a client opens side by
/// side as its first have none.
fn chances(client: &ClientFigures) -> u64 {
    let ends = client
        .raw
        .iter()
        .map(|one| one.at_s + one.handshake_ms / 1e3);
    let first_end = ends.fold(f64::INFINITY, f64::min);
    let later = client.raw.iter().filter(|one| one.at_s > first_end).count() as u64;
    // Those that are not kept one by one came later than those that are.
    later + client.connections.saturating_sub(client.raw.len() as u64)
}

fn hello(
    client: &ClientFigures,
    add: &mut impl FnMut(FindingId, Severity, String, String, &str, &str, Confidence),
) {
    if client.compression_offered {
        add(
            FindingId::ClientCompressionOffered,
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
            FindingId::ClientOldVersion,
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
            FindingId::ClientNoSni,
            Severity::Low,
            "the client sends no server name".into(),
            measured,
            "the name, wherever it is not an address",
            "it connects by address, or does not set the name; Java sends none that has no dot, as `localhost` here",
            Confidence::Low,
        );
    }
    if client.hello_bytes.1 > SEGMENT {
        let measured = format!("{} bytes", client.hello_bytes.1);
        add(
            FindingId::ClientHelloLarge,
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
            FindingId::ClientExtraRoundTrip,
            Severity::Low,
            "the handshake takes a round trip more".into(),
            measured,
            "a key share that servers know: X25519",
            "its first key share is for an unusual group",
            Confidence::High,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ClientConnection;

    #[test]
    fn who_begins_side_by_side_has_nothing_to_resume() {
        let begun = |times: [f64; 5]| {
            let raw = times.map(|at_s| ClientConnection {
                at_s,
                handshake_ms: 20.0,
                ..ClientConnection::default()
            });
            ClientFigures {
                connections: 1_005,
                raw: raw.to_vec(),
                ..ClientFigures::default()
            }
        };
        assert_eq!(chances(&begun([1.0, 1.001, 1.002, 1.003, 1.004])), 1_000);
        assert_eq!(chances(&begun([1.0, 1.001, 1.03, 1.04, 1.05])), 1_003);
        assert_eq!(chances(&ClientFigures::default()), 0);
    }
}
