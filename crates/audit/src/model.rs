//! What an audit yields. The JSON form is this, field by field; see `docs/guide/audit.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::census::CensusReport;
use super::findings::Finding;
use super::software::Software;
use dormouse_bench::model::{RunOutcome, Sample};
use dormouse_measure::Growth;
use dormouse_measure::{KernelMemory, Machine, Memory, ProcessInfo};

/// Version of the JSON form. It is raised when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Something that was measured, or the reason why it was not. "I don't know" is never "no".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured<T> {
    /// It was.
    Measured(T),
    /// It was not, because of this.
    NotMeasured(String),
}

impl<T> Measured<T> {
    /// Not measured, because …
    pub fn not(because: impl Into<String>) -> Self {
        Self::NotMeasured(because.into())
    }

    /// What was measured.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Measured(value) => Some(value),
            Self::NotMeasured(_) => None,
        }
    }

    /// Why it was not.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            Self::Measured(_) => None,
            Self::NotMeasured(because) => Some(because),
        }
    }
}

impl<T> Default for Measured<T> {
    fn default() -> Self {
        Self::not("it was not come to")
    }
}

impl<T> From<Result<T, String>> for Measured<T> {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(value) => Self::Measured(value),
            Err(because) => Self::NotMeasured(because),
        }
    }
}

/// One audit: one JSON object.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Audit {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the instrument.
    pub tool: String,
    /// `server` or `client`.
    pub kind: String,
    /// The name of what was audited, in reports.
    pub label: String,
    /// The server's address, or the client's command.
    pub target: String,
    /// Start, seconds since 1970-01-01 UTC.
    pub started_at_s: u64,
    /// The same, for people.
    pub started_at: String,
    /// Length of the audit.
    pub duration_s: f64,
    /// Where it ran.
    pub machine: Machine,
    /// What was asked for.
    pub settings: BTreeMap<String, serde_json::Value>,
    /// What the audited software is.
    pub software: Measured<Software>,
    /// The processes that were measured.
    pub processes: Vec<ProcessInfo>,
    /// A server's figures.
    pub server: Option<ServerFigures>,
    /// A client's figures.
    pub client: Option<ClientFigures>,
    /// What is wrong, the weightiest first.
    pub findings: Vec<Finding>,
    /// Memory and CPU time over time.
    pub samples: Vec<Sample>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// How it ended.
    pub outcome: RunOutcome,
}

/// Everything about a server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ServerFigures {
    /// What it offers.
    pub offer: Measured<Offer>,
    /// Whether it resumes: one entry per version and way.
    pub resumption: Vec<Resumption>,
    /// Tickets of each address of the name, at itself and at the others.
    #[serde(default)]
    pub addresses: Measured<Vec<AddressTrials>>,
    /// Tickets which have aged.
    #[serde(default)]
    pub aged: Measured<Vec<AgedTicket>>,
    /// Bytes of handshakes.
    pub flights: Vec<FlightRow>,
    /// Memory over the phases.
    pub memory: Measured<MemoryFigures>,
    /// Where it is.
    pub census: Measured<CensusReport>,
    /// CPU time.
    pub cpu: Measured<CpuFigures>,
    /// The first connection after a start.
    pub first: Measured<FirstConnection>,
}

/// What a server offers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Offer {
    /// Versions: `TLS 1.0` to `TLS 1.3`, and whether each is accepted.
    pub versions: BTreeMap<String, bool>,
    /// Suites of TLS 1.2 and below, in the server's order.
    pub suites_12: Vec<String>,
    /// Suites of TLS 1.3.
    pub suites_13: Vec<String>,
    /// Key exchange groups of TLS 1.3.
    pub groups: Vec<String>,
    /// Whether DEFLATE is chosen when it is offered.
    pub compression: Option<bool>,
    /// Whether secure renegotiation (RFC 5746) is announced, in TLS 1.2.
    pub secure_renegotiation: Option<bool>,
    /// Whether it begins anew when its client wants to renegotiate, in TLS 1.2.
    #[serde(default)]
    pub client_renegotiation: Option<bool>,
    /// What it answered to that.
    #[serde(default)]
    pub client_renegotiation_answer: Option<String>,
    /// Whether TLS 1.2 announces a ticket.
    pub tickets_12: Option<bool>,
    /// Whether TLS 1.2 gives a session id.
    pub session_ids_12: Option<bool>,
    /// Tickets that follow a TLS 1.3 handshake.
    pub tickets_13: Option<u32>,
    /// Their lifetime.
    pub ticket_lifetime_s: Option<u32>,
    /// 0-RTT data that is accepted; 0: none.
    pub early_data_max_bytes: Option<u32>,
    /// Whether a client certificate is asked for.
    pub client_certificate_asked: Option<bool>,
    /// The certificates that it shows.
    pub chain: Vec<Certificate>,
    /// What could not be told, and why.
    pub not_measured: BTreeMap<String, String>,
}

impl Offer {
    /// Kind and size of the server's own key.
    pub fn key(&self) -> Option<String> {
        self.chain.first().map(|first| first.key.clone())
    }
}

/// A certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// Its subject.
    pub subject: String,
    /// Kind and size of its key: `ECDSA 256`, `RSA 2048`.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// When it ends, seconds since 1970-01-01 UTC.
    pub expires_at_s: i64,
}

/// Whether sessions are resumed, for one version and one way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resumption {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// `ticket` or `session id`.
    pub by: String,
    /// What came of it.
    pub trials: Measured<Trials>,
}

/// Connections which offered a session.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Trials {
    /// Connections that offered one.
    pub offered: u64,
    /// Of these, resumed: the server accepted it, in the handshake itself.
    pub resumed: u64,
    /// One by one, in order; those made under load are not in it.
    pub outcomes: Vec<bool>,
}

impl Trials {
    /// The share that was resumed.
    pub fn share(&self) -> f64 {
        self.resumed as f64 / (self.offered.max(1)) as f64
    }
}

/// Whether one address of a name takes the tickets of another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AddressTrials {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// The address that gave the ticket.
    pub from: String,
    /// The address to which it was offered; the same one: for comparison.
    pub to: String,
    /// What came of it.
    pub trials: Measured<Trials>,
}

/// Whether a ticket is still taken after a while.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgedTicket {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// Its age when it was offered, in seconds.
    pub age_s: f64,
    /// How long it lives, by the server's own account; 0: it does not say.
    pub lifetime_s: u32,
    /// Whether the audit has put load on the server meanwhile.
    pub load_between: bool,
    /// Whether it was taken.
    pub resumed: Measured<bool>,
}

/// Bytes of one kind of handshake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlightRow {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// Whether a client certificate was shown.
    pub client_certificate: bool,
    /// The client's first flight, the server's, and so on.
    pub bytes: Vec<u32>,
}

/// The server's memory at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryPhase {
    /// Stable name: `before`, `n`, `2n`, `after_exchange`, …
    pub name: String,
    /// For people.
    pub title: String,
    /// Seconds since the start of the load.
    pub at_s: f64,
    /// Connections open.
    pub connections: u64,
    /// The process tree's memory.
    pub memory: Memory,
    /// The kernel's, for the whole machine.
    pub kernel: KernelMemory,
}

/// A server's memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// All moments, in order.
    pub phases: Vec<MemoryPhase>,
    /// Bytes (PSS) of an idle connection right after the handshake: the slope from none to 2N.
    pub after_handshake_bytes: Measured<f64>,
    /// The same after an exchange.
    pub after_exchange_bytes: Measured<f64>,
    /// The same after a record of 16 kB in each direction.
    pub after_large_records_bytes: Measured<f64>,
    /// The same after being quiet for a while.
    pub after_quiet_bytes: Measured<f64>,
    /// Bytes in the kernel per connection, both ends on this machine.
    pub kernel_bytes: Measured<f64>,
    /// What is left when all have closed, over what it was before.
    pub left_bytes: f64,
    /// Growth over rounds of full handshakes.
    pub growth: Measured<Growth>,
    /// Growth over rounds of resumed handshakes; only looked at when the former grows.
    pub growth_resumed: Measured<Growth>,
    /// What a runtime which collects garbage still holds after more rounds; only looked at when its
    /// memory grows. Missing in audits of older versions.
    #[serde(default = "not_looked_at")]
    pub growth_collected: Measured<CollectedRounds>,
}

/// Bytes per closed connection: growth below this is not looked into.
pub(crate) const GROWTH_BYTES: f64 = 100.0;

#[cfg(test)]
impl MemoryFigures {
    /// Of which nothing is known yet.
    pub(crate) fn not_measured() -> Self {
        let not = || Measured::not("not asked");
        Self {
            phases: Vec::new(),
            after_handshake_bytes: not(),
            after_exchange_bytes: not(),
            after_large_records_bytes: not(),
            after_quiet_bytes: not(),
            kernel_bytes: not(),
            left_bytes: 0.0,
            growth: Measured::not("not asked"),
            growth_resumed: Measured::not("not asked"),
            growth_collected: not_looked_at(),
        }
    }
}

fn not_looked_at() -> Measured<CollectedRounds> {
    Measured::not("older versions did not look at it")
}

/// What a runtime with a garbage collector holds from round to round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CollectedRounds {
    /// Who was asked to collect before each point (`the JVM`, `V8`); nobody: it collects when it likes.
    pub by: Option<String>,
    /// After each round, the first one included.
    pub points: Vec<CollectedPoint>,
    /// Connections that came and went per round.
    pub connections_per_round: u64,
    /// Classes of which there are more at the last point than at the second: class, instances then
    /// and now, bytes more.
    pub grown: Vec<(String, u64, u64, u64)>,
}

/// One moment of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectedPoint {
    /// Memory (PSS) of the process tree.
    pub pss_bytes: u64,
    /// Bytes of objects that outlived the collection.
    pub living_bytes: Option<u64>,
    /// Bytes in blocks of malloc, where they can be read.
    pub in_use_bytes: Option<u64>,
}

impl MemoryFigures {
    /// Bytes of a quiet connection: as late in its life as it was measured.
    pub fn quiet(&self) -> Measured<f64> {
        let moments = [
            &self.after_quiet_bytes,
            &self.after_exchange_bytes,
            &self.after_handshake_bytes,
        ];
        let known = moments.into_iter().find(|moment| moment.value().is_some());
        known.unwrap_or(&self.after_handshake_bytes).clone()
    }

    /// The same; 0 where it was not measured.
    pub fn quiet_bytes(&self) -> f64 {
        self.quiet().value().copied().unwrap_or(0.0)
    }
}

/// A server's CPU time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuFigures {
    /// Microseconds per connection with a full handshake: accept, handshake, exchange, close.
    pub full_us: f64,
    /// The system part of it.
    pub full_system_us: f64,
    /// The same with a resumed handshake, by version.
    pub resumed_us: BTreeMap<String, Measured<f64>>,
    /// What this machine needs for the bare cryptography.
    pub reference: Reference,
    /// CPU seconds per gigabyte echoed.
    pub per_gigabyte_s: Measured<f64>,
    /// Microseconds per idle connection and second.
    pub idle_us_per_connection_s: Measured<f64>,
}

/// What this machine needs, measured in this process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reference {
    /// Kind of the certificate's key.
    pub key: String,
    /// One signature with such a key.
    pub signature_us: f64,
    /// One X25519 key exchange, the server's side.
    pub exchange_us: f64,
    /// A whole TLS 1.3 handshake of `dormouse`, the server's side, without sockets.
    pub handshake_us: f64,
    /// Accepting and closing a TCP connection and moving its bytes: system time.
    pub tcp_us: f64,
}

/// The first connection after a start against the later ones.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FirstConnection {
    /// Wall time of the first handshake.
    pub first_ms: f64,
    /// CPU time the server used for it.
    pub first_cpu_ms: f64,
    /// Median of the next ones.
    pub later_ms: f64,
    /// The same in CPU time, mean.
    pub later_cpu_ms: f64,
    /// What the process held then.
    pub held_bytes: u64,
    /// The same for the command of `--cmd-larger`.
    pub larger: Option<Box<FirstConnection>>,
}

/// Everything about a client.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClientFigures {
    /// Connections it made.
    pub connections: u64,
    /// Handshakes that were not completed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Requests it made (HTTP), or connections on which anything was said.
    pub requests: u64,
    /// Connections with more than one request.
    pub kept_alive: u64,
    /// Connections that offered a session.
    pub offered: u64,
    /// Connections that were resumed.
    pub resumed: u64,
    /// Different sessions among those offered.
    pub sessions_offered: u64,
    /// The most connections that offered one and the same ticket, though newer ones had been given.
    pub same_session_max: u64,
    /// TLS 1.3 tickets that were offered more than once.
    pub tickets_reused: u64,
    /// Versions agreed on.
    pub versions: BTreeMap<String, u64>,
    /// Versions offered in the first hello.
    pub versions_offered: Vec<String>,
    /// Groups offered in the first hello.
    pub groups_offered: Vec<String>,
    /// Groups with a key share in the first hello.
    pub key_shares: Vec<String>,
    /// Whether a hello offered compression.
    pub compression_offered: bool,
    /// Connections without a server name.
    pub without_sni: u64,
    /// Application protocols offered.
    pub alpn: Vec<String>,
    /// Bytes of the ClientHello: smallest and greatest.
    pub hello_bytes: (u64, u64),
    /// Handshakes that took another round trip (HelloRetryRequest).
    pub retried: u64,
    /// Wall time in handshakes, as the server sees it.
    pub handshake_ms: f64,
    /// Wall time of the whole run.
    pub run_ms: f64,
    /// CPU time of the client and its children.
    pub cpu_ms: Measured<f64>,
    /// Most memory of its process tree (PSS).
    pub memory_max_bytes: Measured<u64>,
    /// How the command ended.
    pub exit_status: Measured<i32>,
    /// One entry per connection, the first thousand of them.
    pub raw: Vec<ClientConnection>,
}

/// One connection of a client, as the server saw it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClientConnection {
    /// Seconds since the start.
    pub at_s: f64,
    /// The version agreed on.
    pub version: String,
    /// A short name of the session that was offered; none when none was.
    pub offered: Option<String>,
    /// Whether it was resumed.
    pub resumed: bool,
    /// Length of the ClientHello.
    pub hello_bytes: u64,
    /// Requests on it.
    pub requests: u64,
    /// Wall time of the handshake.
    pub handshake_ms: f64,
}
