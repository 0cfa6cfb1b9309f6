//! Findings about a client.

use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::Finding;
use crate::model::{ClientConnection, ClientFigures};
use crate::software::{Case, SoftwareKind};

/// Minimum number of connections that could have resumed, before a client that did not is reported.
const ENOUGH: u64 = 3;
/// Minimum number of connections for a finding about the cost per connection.
const SOME: u64 = 4;
/// Number of connections with the same session from which the client counts as never taking a newer one.
const FOR_EVER: u64 = 8;
/// A larger ClientHello does not fit into one segment.
const SEGMENT: u64 = 1_440;

/// Share of connections with a process of their own from which the process is the cause.
const PROCESS_EACH_SHARE: f64 = 0.9;
const PROCESS_EACH: &str = "each connection comes from a process of its own, which starts without a session and loads its trust store again";
const ONE_PROCESS: &str = "use one process for many requests: it keeps its sessions and its connections. Or leave the client unchanged and connect through `dormouse connect`, which keeps both for all processes. Not tried in the lab";

/// CPU time per connection above which the client parses a trust store for each, in P-256 signatures: a request in an
/// interpreter takes as long as 80 to 350 signatures on the same machine, and the certificates of a usual system as 1,500.
const PARSING_SIGNATURES: f64 = 700.0;

/// Requests per connection above which CPU time says nothing about connections.
const REQUESTS_MAX: u64 = 2;

/// Why a client makes full handshakes only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NoSessions {
    /// Each connection comes from a process of its own.
    ProcessEach,
    /// Each connection costs so much CPU time that it creates a context and parses a trust store.
    ContextEach,
    /// Connections are cheap: sessions are discarded, or contexts have little to parse.
    Discarded,
    /// The CPU time per connection is not known.
    Unknown,
}

impl NoSessions {
    fn of(client: &ClientFigures) -> Self {
        let signatures = marginal_ms(client)
            .zip(client.signature_us.value())
            .map(|(ms, signature_us)| ms * 1e3 / signature_us);
        match signatures {
            _ if is_process_each(client) => Self::ProcessEach,
            None => Self::Unknown,
            Some(count) if count > PARSING_SIGNATURES => Self::ContextEach,
            Some(_) => Self::Discarded,
        }
    }

    /// The cause, if it is not the usual one.
    fn cause(self, client: &ClientFigures) -> Option<String> {
        let ms = marginal_ms(client).unwrap_or(0.0);
        match self {
            Self::ProcessEach => Some(PROCESS_EACH.into()),
            Self::ContextEach => Some(format!(
                "the client creates a new TLS context for each connection, without a session, and parses its trust store each time: {ms:.0} ms of CPU time per connection"
            )),
            Self::Discarded => Some(format!(
                "the client discards its sessions, or keeps none for this server name; or it creates a context for each connection, which is cheap where contexts share a parsed trust store, or parse a small one like that of this audit: a connection takes only {ms:.1} ms of CPU time"
            )),
            Self::Unknown => None,
        }
    }

    /// Advice that depends on the cause; `None`: that for the finding.
    fn advice(self, kind: SoftwareKind) -> Option<&'static str> {
        let of = |case| kind.program().advice(FindingId::ClientNeverResumes, case);
        match self {
            Self::ProcessEach => Some(ONE_PROCESS),
            Self::ContextEach => of(Case::ContextEach),
            Self::Discarded => of(Case::Discarded),
            Self::Unknown => None,
        }
    }
}

/// Whether nearly every connection has a process of its own.
fn is_process_each(client: &ClientFigures) -> bool {
    client.processes.value().is_some_and(|(processes, seen)| {
        *processes >= ENOUGH && *processes as f64 >= PROCESS_EACH_SHARE * *seen as f64
    })
}

/// CPU milliseconds per connection, without the client's start; `None` if they are not known, because most of them may be
/// those of requests.
fn marginal_ms(client: &ClientFigures) -> Option<f64> {
    let begun = client.connections + client.failed.values().sum::<u64>();
    if client.requests > REQUESTS_MAX * begun {
        return None;
    }
    usual_ms(client).or_else(|| {
        let startup = client.cpu_startup_ms.value()?;
        Some((client.cpu_ms.value()? - startup) / begun.max(1) as f64)
    })
}

/// The median of the CPU milliseconds from one connection to the next, for a process that opens one after the other. An
/// interpreter's first connections take ten times as long.
fn usual_ms(client: &ClientFigures) -> Option<f64> {
    let (1, _) = client.processes.value()? else {
        return None;
    };
    let is_in_turn = |one: &ClientConnection, next: &ClientConnection| {
        next.at_s >= one.at_s + one.handshake_ms / 1e3
    };
    let mut steps = client
        .raw
        .windows(2)
        .filter_map(|pair| match pair {
            [one, next] if is_in_turn(one, next) => {
                Some(next.process_cpu_ms? - one.process_cpu_ms?)
            }
            _ => None,
        })
        .collect::<Vec<_>>();
    steps.sort_by(f64::total_cmp);
    steps
        .get(steps.len() / 2)
        .copied()
        .filter(|_| steps.len() as u64 >= SOME)
}

pub(super) fn judge(subject: &AuditSubject, client: &ClientFigures, findings: &mut Vec<Finding>) {
    findings.extend(offers(subject, client));
    findings.extend(uses(subject, client));
    findings.extend(keep_alive(subject, client));
    hello(subject, client, findings);
    findings.extend(cpu(subject, client));
}

/// Judges the CPU time per connection, without the start-up time: that would charge an interpreter's start to the
/// connections.
fn cpu(subject: &AuditSubject, client: &ClientFigures) -> Option<Finding> {
    let all = client.cpu_ms.value()?;
    let startup = client.cpu_startup_ms.value().copied();
    let is_known = startup.is_none() || marginal_ms(client).is_some();
    let ms = (all - startup.unwrap_or(0.0)) / client.connections.max(1) as f64;
    if !is_known || ms <= 30.0 || client.connections < SOME {
        return None;
    }
    let memory = client.memory_max_bytes.value().copied().unwrap_or(0);
    let start = startup.map_or_else(
        || "including the start of the program".to_owned(),
        |startup| format!("plus {} ms for the start of the program", whole(startup)),
    );
    let measured = format!(
        "{} ms for {} connections; {start}; at most {} of memory",
        whole(ms * client.connections as f64),
        client.connections,
        bytes(memory as f64)
    );
    let found = subject.finding(FindingId::ClientCpu, Severity::Low, measured);
    Some(of_processes(client, found.with("ms", format!("{ms:.0}"))))
}

/// The finding with the cause and the advice for a client that has a process for each connection, if it has.
fn of_processes(client: &ClientFigures, mut found: Finding) -> Finding {
    if is_process_each(client) {
        found.cause = PROCESS_EACH.into();
        found.advice = ONE_PROCESS.into();
    }
    found
}

/// Judges how many connections offer a session.
fn offers(subject: &AuditSubject, client: &ClientFigures) -> Option<Finding> {
    let ClientFigures {
        connections,
        requests,
        offered,
        resumed,
        ..
    } = *client;
    let chances = chances(client);
    if chances < ENOUGH {
        return None;
    }
    if offered > 0 {
        let measured = format!(
            "{connections} connections: {chances} could have resumed, {offered} offered a session, {resumed} resumed"
        );
        let found = || subject.finding(FindingId::ClientSeldomResumes, Severity::Medium, measured);
        return (resumed * 2 < chances).then(found);
    }
    let why = NoSessions::of(client);
    let measured =
        format!("{connections} connections, each with a full handshake; {requests} requests");
    let mut found = subject.finding(FindingId::ClientNeverResumes, Severity::High, measured);
    if let Some(advice) = why.advice(subject.kind) {
        found.advice = advice.into();
    }
    if let Some(cause) = why.cause(client) {
        found.cause = cause;
    }
    if matches!(why, NoSessions::ProcessEach | NoSessions::ContextEach) {
        found.confidence = Confidence::High;
    }
    Some(found)
}

/// Judges how often one session is used.
fn uses(subject: &AuditSubject, client: &ClientFigures) -> Option<Finding> {
    if client.same_session_max >= FOR_EVER {
        let measured = format!(
            "{} of {} connections offered the same session, although the server had issued newer ones",
            client.same_session_max, client.connections
        );
        return Some(subject.finding(
            FindingId::ClientSameSessionForEver,
            Severity::Medium,
            measured,
        ));
    }
    let measured = format!("{} times", client.tickets_reused);
    let found = || subject.finding(FindingId::ClientTicketsReused, Severity::Low, measured);
    (client.tickets_reused > 0).then(found)
}

fn keep_alive(subject: &AuditSubject, client: &ClientFigures) -> Option<Finding> {
    let (connections, requests) = (client.connections, client.requests);
    let keeps = client.kept_alive > 0 || connections * 10 < requests * 9;
    if requests < 5 || keeps {
        return None;
    }
    let measured = format!(
        "{connections} connections for {requests} requests; {} ms of them in handshakes",
        whole(client.handshake_ms)
    );
    let found = subject.finding(FindingId::ClientNoKeepAlive, Severity::Low, measured);
    Some(of_processes(client, found))
}

/// Connections that began when the client already had a session to offer. The first connections that a client opens in
/// parallel have none: a ticket arrives with the first answer, so the others of the first wave begin without it.
fn chances(client: &ClientFigures) -> u64 {
    let end = |one: &ClientConnection| one.at_s + one.handshake_ms / 1e3;
    let first_end = client.raw.iter().map(end).fold(f64::INFINITY, f64::min);
    let wave = client.raw.iter().filter(|one| one.at_s <= first_end);
    let wave_end = wave.map(end).fold(first_end, f64::max);
    let later = client.raw.iter().filter(|one| one.at_s > wave_end).count() as u64;
    // Connections beyond the individually recorded ones came later than those.
    later + client.connections.saturating_sub(client.raw.len() as u64)
}

fn hello(subject: &AuditSubject, client: &ClientFigures, findings: &mut Vec<Finding>) {
    let mut found = |id: FindingId, severity: Severity, measured: String| {
        findings.push(subject.finding(id, severity, measured));
    };
    if client.compression_offered {
        let measured = "the ClientHello offers DEFLATE".into();
        found(
            FindingId::ClientCompressionOffered,
            Severity::High,
            measured,
        );
    }
    let modern = |version: &String| version == "TLS 1.3" || version == "TLS 1.2";
    if !client.versions_offered.is_empty() && !client.versions_offered.iter().any(modern) {
        let measured = client.versions_offered.join(", ");
        found(FindingId::ClientOldVersion, Severity::Medium, measured);
    }
    if client.without_sni > 0 && client.without_sni == client.connections {
        let measured = format!("{} connections", client.without_sni);
        found(FindingId::ClientNoSni, Severity::Low, measured);
    }
    if client.hello_bytes.1 > SEGMENT {
        let measured = format!("{} bytes", client.hello_bytes.1);
        found(FindingId::ClientHelloLarge, Severity::Info, measured);
    }
    if client.retried * 2 > client.connections {
        let share = percent(client.retried as f64 / client.connections.max(1) as f64);
        let measured = format!("{share} of {} handshakes", client.connections);
        found(FindingId::ClientExtraRoundTrip, Severity::Low, measured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Measured;

    #[test]
    fn causes_of_missing_sessions_are_told_by_processes_and_cpu_time() {
        let client = |processes: (u64, u64), cpu_ms: f64| ClientFigures {
            connections: 12,
            processes: Measured::Value(processes),
            cpu_ms: Measured::Value(cpu_ms),
            cpu_startup_ms: Measured::Value(100.0),
            signature_us: Measured::Value(25.0),
            ..ClientFigures::default()
        };
        // Recorded: a Python client with the system's authorities in each context, and one with one context.
        let each = client((1, 12), 100.0 + 12.0 * 48.2);
        assert_eq!(NoSessions::of(&each), NoSessions::ContextEach);
        assert!(
            NoSessions::ContextEach
                .cause(&each)
                .unwrap()
                .contains("48 ms")
        );
        let cheap = client((1, 12), 100.0 + 12.0 * 1.2);
        assert_eq!(NoSessions::of(&cheap), NoSessions::Discarded);
        assert_eq!(
            NoSessions::of(&client((12, 12), 900.0)),
            NoSessions::ProcessEach
        );
        let unknown = ClientFigures {
            cpu_startup_ms: Measured::not("no sample"),
            ..client((1, 12), 900.0)
        };
        assert_eq!(NoSessions::of(&unknown), NoSessions::Unknown);
        // Recorded: a Go program with one transport and no session cache: 600 requests, of which most shared a connection.
        let busy = ClientFigures {
            connections: 30,
            requests: 600,
            ..client((1, 30), 100.0 + 420.0)
        };
        assert_eq!(NoSessions::of(&busy), NoSessions::Unknown);
        let advice = [
            NoSessions::ProcessEach,
            NoSessions::ContextEach,
            NoSessions::Discarded,
        ]
        .map(|why| why.advice(SoftwareKind::Node).unwrap());
        assert!(
            advice[2].contains("maxCachedSessions") && advice[1].contains("createSecureContext")
        );
    }

    /// Recorded: Node.js with `maxCachedSessions: 0`, beside a build. The mean is 10 ms, because of the first connection.
    #[test]
    fn the_first_connection_of_an_interpreter_is_not_its_usual_one() {
        let used = [131.1, 165.4, 174.5, 179.7, 185.9, 191.5, 196.7, 202.4];
        let client = |apart_s: f64| {
            let arrived = |(at, cpu_ms): (usize, &f64)| ClientConnection {
                at_s: at as f64 * apart_s,
                handshake_ms: 4.0,
                process_cpu_ms: Some(*cpu_ms),
                ..ClientConnection::default()
            };
            ClientFigures {
                connections: 8,
                processes: Measured::Value((1, 8)),
                cpu_ms: Measured::Value(211.1),
                cpu_startup_ms: Measured::Value(131.1),
                signature_us: Measured::Value(25.0),
                raw: used.iter().enumerate().map(arrived).collect(),
                ..ClientFigures::default()
            }
        };
        let near = |ms: Option<f64>, wanted: f64| ms.is_some_and(|ms| (ms - wanted).abs() < 0.01);
        assert!(near(marginal_ms(&client(0.01)), 5.7));
        assert_eq!(NoSessions::of(&client(0.01)), NoSessions::Discarded);
        // Of connections in parallel, only the mean is known.
        assert!(near(marginal_ms(&client(0.001)), 10.0));
    }

    #[test]
    fn parallel_first_connections_have_nothing_to_resume() {
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

    /// Recorded: a Go program with a session cache opened sixteen connections on a busy machine. All later ones resumed.
    #[test]
    fn a_slow_first_wave_has_nothing_to_resume() {
        let times = [
            (0.083, 62.1),
            (0.095, 211.8),
            (0.113, 22.0),
            (0.147, 112.8),
            (0.226, 50.8),
            (3.025, 67.7),
            (3.069, 43.6),
        ];
        let raw = times.map(|(at_s, handshake_ms)| ClientConnection {
            at_s,
            handshake_ms,
            ..ClientConnection::default()
        });
        let client = ClientFigures {
            connections: 7,
            raw: raw.to_vec(),
            ..ClientFigures::default()
        };
        assert_eq!(chances(&client), 2);
    }
}
