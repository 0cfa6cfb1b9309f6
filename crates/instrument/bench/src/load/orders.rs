//! Messages between the controlling process and its generators: JSON, one object per line.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::starttls::Starttls;
use dormouse_measure::SparseHistogram;

/// First line that a generator reads: its index, and how it connects.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Address under test.
    pub target: String,
    /// TLS; `None` for plain TCP.
    pub tls: Option<Tls>,
    /// Application data, and what counts as an answer.
    pub talk: Traffic,
    /// Maximum connections of this generator at a time.
    pub connections_max: u32,
    /// Source addresses, used in turn; empty: the system chooses.
    pub sources: Vec<IpAddr>,
    /// Timeout of connecting, of the handshake and of each answer.
    pub timeout_ms: u64,
    /// Which generator of the fleet this is.
    pub index: u32,
}

/// TLS settings of a generator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tls {
    /// The server name to send, and to expect in the certificate.
    pub server_name: String,
    /// Trusted authorities.
    pub trust: Trust,
    /// The version, if only one may be used.
    pub version: Option<TlsVersion>,
    /// The suite of TLS 1.3, if only one may be used.
    #[serde(default)]
    pub suite: Option<TlsSuite>,
    /// Whether sessions are kept and offered.
    pub resume: bool,
    /// Whether X25519MLKEM768 is offered. Peers without it would otherwise be measured with a
    /// cheaper key exchange than those with it.
    pub post_quantum: bool,
    /// Certificate for a server that asks for one.
    #[serde(default)]
    pub identity: Option<IdentityFiles>,
    /// Protocol of a server that begins in plaintext.
    #[serde(default)]
    pub starttls: Option<Starttls>,
}

/// Files of a client certificate. Each generator reads them, so that no key passes between processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdentityFiles {
    /// The chain, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

/// Authorities that may sign the server's certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The system's store.
    System,
    /// These certificates (PEM).
    Pem(String),
    /// Any: the certificate is not verified.
    Insecure,
}

/// A TLS version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3
    #[serde(rename = "1.3")]
    V13,
}

/// A suite of TLS 1.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TlsSuite {
    /// TLS_AES_128_GCM_SHA256
    #[serde(rename = "TLS_AES_128_GCM_SHA256")]
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384
    #[serde(rename = "TLS_AES_256_GCM_SHA384")]
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256
    #[serde(rename = "TLS_CHACHA20_POLY1305_SHA256")]
    Chacha20,
}

impl TlsVersion {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::V12 => "TLS 1.2",
            Self::V13 => "TLS 1.3",
        }
    }
}

/// Application data of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// A message, and an answer to it.
    Message {
        /// The message.
        message: Vec<u8>,
        /// What counts as an answer.
        expect: Expect,
        /// Whether to wait for the server, which sends first.
        greeting: bool,
    },
    /// `GET path`, and a response.
    Http {
        /// Path and query.
        path: String,
        /// Host header.
        host: String,
        /// Whether a status of 400 or above counts as an answer too.
        any_status: bool,
    },
}

impl Traffic {
    /// Returns an exchange with a server that began in plaintext.
    pub fn with_starttls(protocol: Starttls, server_name: &str) -> Self {
        Self::Message {
            message: protocol.first_message(server_name),
            expect: Expect::Any,
            greeting: false,
        }
    }
}

/// Bytes that count as the answer to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The same bytes.
    Echo,
    /// Any byte.
    Any,
    /// None: the message is sent, and no answer is awaited.
    Nothing,
}

/// Order to a generator. Each is answered by one `Report::Done`, in order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Open connections and keep them, until `alive` are established or that many more failed.
    Open {
        /// Number of established connections at the end.
        alive: u64,
        /// Maximum per second; 0: no limit.
        per_s: f64,
        /// Maximum in flight.
        in_flight_max: u32,
    },
    /// Connect, exchange, close, repeatedly on `lanes` lanes.
    Cycle(Cycle),
    /// Held connections send messages.
    Messages(Messages),
    /// Close all.
    Close,
    /// Stop the current order, which is then reported as done.
    Stop,
    /// End.
    Quit,
}

impl Order {
    /// Returns the part of an order for the whole fleet that generator `index` of `count` carries
    /// out; `None` if it has no part.
    pub(super) fn share(&self, index: u64, count: u64) -> Option<Self> {
        let part = |whole: u64| whole * (index + 1) / count - whole * index / count;
        let part32 = |whole: u32| u32::try_from(part(u64::from(whole))).unwrap_or(u32::MAX);
        let rate = |per_s: f64| per_s / count as f64;
        Some(match self {
            Self::Open {
                alive,
                per_s,
                in_flight_max,
            } => {
                // At least one, or a fleet larger than the limit would never open anything.
                let in_flight_max = part32(*in_flight_max).max(1);
                Self::Open {
                    alive: part(*alive),
                    per_s: rate(*per_s),
                    in_flight_max,
                }
            }
            Self::Cycle(cycle) => {
                let lanes = part32(cycle.lanes);
                let connections = part(cycle.connections);
                let bytes_heard_max = part(cycle.bytes_heard_max);
                let exchanges_max = part(cycle.exchanges_max);
                // A share of 0 of a limited number must not mean "no limit".
                let nothing_is_left = (cycle.connections > 0 && connections == 0)
                    || (cycle.exchanges_max > 0 && exchanges_max == 0)
                    || (cycle.bytes_heard_max > 0 && bytes_heard_max == 0);
                if lanes == 0 || nothing_is_left {
                    return None;
                }
                Self::Cycle(Cycle {
                    connections,
                    lanes,
                    exchanges_max,
                    bytes_heard_max,
                    ..cycle.clone()
                })
            }
            Self::Messages(speak) => {
                let (messages, among) = (part(speak.messages), part32(speak.among));
                if (speak.messages > 0 && messages == 0) || (speak.among > 0 && among == 0) {
                    return None;
                }
                // Generators without one of few connections have no part in the rate either.
                let per_s = match speak.among {
                    0 => rate(speak.per_s),
                    all => speak.per_s * f64::from(among) / f64::from(all),
                };
                Self::Messages(Messages {
                    per_s,
                    messages,
                    among,
                    ..speak.clone()
                })
            }
            Self::Close | Self::Stop | Self::Quit => self.clone(),
        })
    }
}

/// Short connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cycle {
    /// Connections in all; 0: no limit.
    pub connections: u64,
    /// Connections at a time.
    pub lanes: u32,
    /// Exchanges per connection; `None`: as many as time and the other limits allow.
    pub exchanges: Option<u64>,
    /// Exchanges over all connections; 0: no limit.
    pub exchanges_max: u64,
    /// End after this many bytes of answers, over all connections; 0: no limit.
    pub bytes_heard_max: u64,
    /// Instead of the message: this many bytes each way, checked (0: the message).
    pub bulk_bytes: u64,
    /// End after this time; 0: no limit.
    pub for_ms: u64,
}

impl Cycle {
    /// Connections with one exchange each.
    pub fn once(connections: u64, lanes: u32) -> Self {
        Self {
            connections,
            lanes,
            exchanges: Some(1),
            exchanges_max: 0,
            bytes_heard_max: 0,
            bulk_bytes: 0,
            for_ms: 0,
        }
    }
}

/// Messages on held connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Messages {
    /// Messages per second, over all connections.
    pub per_s: f64,
    /// Messages in all; 0: no limit.
    pub messages: u64,
    /// End after this time; 0: when the order to stop arrives.
    pub for_ms: u64,
    /// Send on this many connections only; 0: on all.
    pub among: u32,
    /// Instead of the message: this many bytes each way, checked (0: the message).
    pub bytes: u64,
    /// The name under which latencies are reported.
    pub name: String,
}

/// Message of a generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// It has read its setup.
    Ready,
    /// Counts so far.
    Progress(Tally),
    /// An order was carried out.
    Done(Box<OrderReport>),
    /// It cannot continue.
    Failed(String),
}

/// Counts since the start of the order, except `alive`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Connections that are established now.
    pub alive: u64,
    /// Connections that were started.
    pub begun: u64,
    /// Connections that were established.
    pub established: u64,
    /// Of these, with a resumed session.
    pub resumed: u64,
    /// Connections that were not established.
    pub failed: u64,
    /// Established connections that ended early or gave a wrong answer.
    pub lost: u64,
    /// Connections that ended properly.
    pub closed: u64,
    /// Correct answers.
    pub answers: u64,
    /// Messages that were due but not sent, because the last one had no answer yet.
    pub skipped: u64,
    /// Plaintext bytes sent.
    pub bytes_said: u64,
    /// Plaintext bytes received.
    pub bytes_heard: u64,
}

impl Tally {
    /// Adds another generator's counts.
    pub fn add(&mut self, other: &Self) {
        self.alive += other.alive;
        self.begun += other.begun;
        self.established += other.established;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.lost += other.lost;
        self.closed += other.closed;
        self.answers += other.answers;
        self.skipped += other.skipped;
        self.bytes_said += other.bytes_said;
        self.bytes_heard += other.bytes_heard;
    }
}

/// Result of an order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OrderReport {
    /// Counts.
    pub tally: Tally,
    /// Distributions by name.
    pub latencies: BTreeMap<String, SparseHistogram>,
    /// Failures by reason.
    pub failures: BTreeMap<String, u64>,
    /// Seconds it took.
    pub duration_s: f64,
    /// Why it ended early.
    pub gave_up: Option<String>,
    /// Negotiated parameters of the handshakes: `TLS 1.3 TLS13_AES_128_GCM_SHA256`.
    pub agreed: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_shared_by_the_generators_that_send() {
        for (among, generators) in [(0, 6), (4, 6), (4, 3), (4, 4)] {
            let order = Order::Messages(Messages {
                per_s: 600.0,
                messages: 0,
                for_ms: 1000,
                among,
                bytes: 0,
                name: String::new(),
            });
            let rate = |index| match order.share(index, generators) {
                Some(Order::Messages(part)) => part.per_s,
                _ => 0.0,
            };
            let sum: f64 = (0..generators).map(rate).sum();
            assert!((sum - 600.0).abs() < 1e-6, "{among} of {generators}: {sum}");
        }
    }
}
