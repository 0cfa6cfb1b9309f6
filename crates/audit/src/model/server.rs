//! Figures of a server.

use std::collections::BTreeMap;

use dormouse_engine::UnixTime;
use serde::{Deserialize, Serialize};

use super::cpu::{CpuFigures, FirstConnection};
use super::measured::Measured;
use super::memory::MemoryFigures;
use dormouse_census::CensusReport;

/// Everything about a server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ServerFigures {
    /// Offered versions, suites and extensions.
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

/// Offer of a server: versions, suites, extensions, certificates.
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
    /// Whether it makes a second handshake when its client renegotiates, in TLS 1.2.
    #[serde(default)]
    pub client_renegotiation: Option<bool>,
    /// Its answer.
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
    /// What is not known, and why.
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

impl Certificate {
    /// Seconds until it expires; negative when it has.
    pub(crate) fn left_s(&self) -> i64 {
        let now_s = UnixTime::now().as_secs();
        self.expires_at_s - i64::try_from(now_s).unwrap_or(i64::MAX)
    }
}

/// Whether sessions are resumed, for one version and one way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resumption {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// `ticket` or `session id`.
    pub by: String,
    /// Result of the trials.
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

    /// The 95 % interval of the share that would be resumed in the long run (Wilson): 0 to 1 without trials.
    pub fn interval(&self) -> (f64, f64) {
        const Z: f64 = 1.96;
        if self.offered == 0 {
            return (0.0, 1.0);
        }
        let (n, share) = (self.offered as f64, self.share());
        let scale = 1.0 + Z * Z / n;
        let middle = (share + Z * Z / (2.0 * n)) / scale;
        let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        ((middle - half).max(0.0), (middle + half).min(1.0))
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
    /// Result of the trials.
    pub trials: Measured<Trials>,
}

/// Whether a ticket is still taken after a while.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgedTicket {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// Its age when it was offered, in seconds.
    pub age_s: f64,
    /// Lifetime that the server announced; 0: none.
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
