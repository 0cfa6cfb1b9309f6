//! Findings about a client.

use super::catalogue::FindingId;
use super::finding::{Confidence, Finding, Severity};
use super::quoted::filled;
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::model::{ClientConnection, ClientFigures};
use crate::software::SoftwareKind;

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

/// Adds a finding: title, measured, reference, cause.
type Add<'a> = dyn FnMut(FindingId, Severity, String, String, &str, &str, Confidence) + 'a;

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

    fn words(self, client: &ClientFigures) -> String {
        let ms = marginal_ms(client).unwrap_or(0.0);
        match self {
            Self::ProcessEach => PROCESS_EACH.into(),
            Self::ContextEach => format!(
                "the client creates a new TLS context for each connection, without a session, and parses its trust store each time: {ms:.0} ms of CPU time per connection"
            ),
            Self::Discarded => format!(
                "the client discards its sessions, or keeps none for this server name; or it creates a context for each connection, which is cheap where contexts share a parsed trust store, or parse a small one like that of this audit: a connection takes only {ms:.1} ms of CPU time"
            ),
            Self::Unknown => "the client keeps no sessions or discards them, or it creates a new TLS context for each connection".into(),
        }
    }

    /// Advice that depends on the cause; `None`: that for the finding.
    fn advice(self, kind: SoftwareKind) -> Option<&'static str> {
        match (self, kind) {
            (Self::ProcessEach, _) => Some(ONE_PROCESS),
            (Self::ContextEach, SoftwareKind::Node) => Some(
                "Node.js: create one https.Agent, or one tls.createSecureContext for all, and use it for all requests: an Agent with its own `ca` parses these certificates again for each context, and caches sessions only for itself. Tried in lab/sick: 0 of 12 connections resumed with an Agent each, 11 of 12 with one",
            ),
            (Self::Discarded, SoftwareKind::Node) => Some(
                "Node.js: leave `maxCachedSessions` of the https.Agent at its default of 100 (0 turns the session cache off), and use one Agent for all requests. Tried in lab/sick: 0 of 12 connections resumed with 0, 11 of 12 with the default",
            ),
            _ => None,
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
    let command = subject.audit_client();
    let is_many = is_process_each(client);
    let why = NoSessions::of(client);
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
            advice: match id {
                FindingId::ClientNeverResumes => why
                    .advice(subject.kind)
                    .map_or_else(|| subject.advice(id), str::to_owned),
                FindingId::ClientNoKeepAlive | FindingId::ClientCpu if is_many => {
                    ONE_PROCESS.into()
                }
                _ => subject.advice(id),
            },
            command: command.clone(),
        });
    };
    resumption(client, why, &mut add);
    keep_alive(client, &mut add);
    hello(client, &mut add);
    cpu(client, &mut add);
}

/// Judges the CPU time per connection, without the start-up time: that would charge an interpreter's start to the
/// connections.
fn cpu(client: &ClientFigures, add: &mut Add<'_>) {
    let Some(all) = client.cpu_ms.value() else {
        return;
    };
    let startup = client.cpu_startup_ms.value().copied();
    let is_known = startup.is_none() || marginal_ms(client).is_some();
    let ms = (all - startup.unwrap_or(0.0)) / client.connections.max(1) as f64;
    if !is_known || ms <= 30.0 || client.connections < SOME {
        return;
    }
    let memory = client.memory_max_bytes.value().copied().unwrap_or(0);
    let start = startup.map_or_else(
        || "including the start of the program".to_owned(),
        |startup| format!("plus {} ms for the start of the program", whole(startup)),
    );
    add(
        FindingId::ClientCpu,
        Severity::Low,
        format!("the client spends {ms:.0} ms of CPU time per connection"),
        format!(
            "{} ms for {} connections; {start}; at most {} of memory",
            whole(ms * client.connections as f64),
            client.connections,
            bytes(memory as f64)
        ),
        "a client needs a few milliseconds for a handshake",
        if is_process_each(client) {
            PROCESS_EACH
        } else {
            "the client loads its trust store or creates a context for each connection"
        },
        Confidence::Low,
    );
}

fn resumption(client: &ClientFigures, why: NoSessions, add: &mut Add<'_>) {
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
            "all connections but the first resume",
            &why.words(client),
            match why {
                NoSessions::ProcessEach | NoSessions::ContextEach => Confidence::High,
                NoSessions::Discarded | NoSessions::Unknown => Confidence::Medium,
            },
        );
    } else if chances >= ENOUGH && resumed * 2 < chances {
        add(
            FindingId::ClientSeldomResumes,
            Severity::Medium,
            "the client resumes fewer than half of the connections that could resume".into(),
            format!(
                "{connections} connections: {chances} could have resumed, {offered} offered a session, {resumed} resumed"
            ),
            "all connections but the first resume",
            "several contexts, many connections at the same time, or tickets that arrive after the client has closed",
            Confidence::Low,
        );
    }
    if client.same_session_max >= FOR_EVER {
        add(
            FindingId::ClientSameSessionForEver,
            Severity::Medium,
            "the client resumes the same session again and again".into(),
            format!(
                "{} of {connections} connections offered the same session, although the server had issued newer ones",
                client.same_session_max
            ),
            "a client renews a session after some uses or some time, with a full handshake that verifies the certificate again",
            "the client offers the session of its first connection on all others and ignores later tickets",
            Confidence::High,
        );
    } else if client.tickets_reused > 0 {
        add(
            FindingId::ClientTicketsReused,
            Severity::Low,
            "the client uses TLS 1.3 tickets more than once".into(),
            format!("{} times", client.tickets_reused),
            "each ticket is used once (RFC 8446 C.4): an observer can recognise the client by a ticket that it sees twice",
            "the TLS library keeps one ticket per server",
            Confidence::High,
        );
    }
}

fn keep_alive(client: &ClientFigures, add: &mut Add<'_>) {
    let (connections, requests) = (client.connections, client.requests);
    if requests >= 5 && client.kept_alive == 0 && connections * 10 >= requests * 9 {
        add(
            FindingId::ClientNoKeepAlive,
            Severity::Low,
            "the client opens a connection for every request".into(),
            format!(
                "{connections} connections for {requests} requests; {} ms of them in handshakes",
                whole(client.handshake_ms)
            ),
            "one connection for many requests",
            if is_process_each(client) {
                PROCESS_EACH
            } else {
                "keep-alive is off, or the program creates a new client object for each request"
            },
            Confidence::Medium,
        );
    }
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

fn hello(client: &ClientFigures, add: &mut Add<'_>) {
    if client.compression_offered {
        add(
            FindingId::ClientCompressionOffered,
            Severity::High,
            "the client offers TLS compression".into(),
            "the ClientHello offers DEFLATE".into(),
            &filled(
                "no compression: it leaks secrets (CRIME), and where the server accepts it, it takes memory. Turned off in a server with {{advice.openssl.compression}}",
            ),
            "the TLS library was built with zlib, and compression is not switched off",
            Confidence::High,
        );
    }
    let modern = |version: &String| version == "TLS 1.3" || version == "TLS 1.2";
    if !client.versions_offered.is_empty() && !client.versions_offered.iter().any(modern) {
        let offered = client.versions_offered.join(", ");
        add(
            FindingId::ClientOldVersion,
            Severity::Medium,
            "the client supports withdrawn versions only".into(),
            offered,
            "TLS 1.3",
            "an old TLS library",
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
            "the client sends the name of the server, unless it connects by address",
            "the client connects by address, or does not set the name. Java sends no name without a dot, such as `localhost` here",
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
            "one packet, unless it has a post-quantum key share",
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
            "the handshake takes an additional round trip".into(),
            measured,
            "a key share for a group that servers support: X25519",
            "the first key share of the client is for an unusual group",
            Confidence::High,
        );
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
        assert!(NoSessions::ContextEach.words(&each).contains("48 ms"));
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
