//! Figures of a server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cpu::{CpuFigures, FirstConnection};
use super::handshakes::SilentClients;
use super::measured::Measured;
use super::memory::MemoryFigures;
use super::records::RecordFigures;
use dormouse_census::CensusReport;

/// All figures of a server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ServerFigures {
    /// Offered versions, suites and extensions.
    pub offer: Measured<Offer>,
    /// Resumption results: one entry per version and mechanism.
    pub resumption: Vec<Resumption>,
    /// Tickets of each address of the name, offered to that address and to the others.
    #[serde(default)]
    pub addresses: Measured<Vec<AddressTrials>>,
    /// Tickets that were offered again after a delay.
    #[serde(default)]
    pub aged: Measured<Vec<AgedTicket>>,
    /// Bytes of handshakes.
    pub flights: Vec<FlightRow>,
    /// Records of the server's answers.
    #[serde(default)]
    pub records: Measured<RecordFigures>,
    /// Whether clients that say nothing block others.
    #[serde(default)]
    pub silent_clients: Measured<SilentClients>,
    /// Memory in each phase.
    pub memory: Measured<MemoryFigures>,
    /// Where the memory is.
    pub census: Measured<CensusReport>,
    /// CPU time.
    pub cpu: Measured<CpuFigures>,
    /// The first connection after the server's start.
    pub first: Measured<FirstConnection>,
}

/// Offer of a server: versions, suites, extensions, certificates.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Offer {
    /// Versions: `TLS 1.0` to `TLS 1.3`, and whether each is accepted.
    pub versions: BTreeMap<String, bool>,
    /// Cipher suites of TLS 1.2 and below, in the server's order of preference.
    pub suites_12: Vec<String>,
    /// Cipher suites of TLS 1.3.
    pub suites_13: Vec<String>,
    /// Key exchange groups of TLS 1.3.
    pub groups: Vec<String>,
    /// Whether the server chooses DEFLATE when a client offers it.
    pub compression: Option<bool>,
    /// Whether the server announces secure renegotiation (RFC 5746) in TLS 1.2.
    pub secure_renegotiation: Option<bool>,
    /// Whether the server starts a second handshake when a TLS 1.2 client renegotiates.
    #[serde(default)]
    pub client_renegotiation: Option<bool>,
    /// The server's answer to a client that renegotiates.
    #[serde(default)]
    pub client_renegotiation_answer: Option<String>,
    /// Whether the server announces a ticket in TLS 1.2.
    pub tickets_12: Option<bool>,
    /// Whether the server sends a session id in TLS 1.2.
    pub session_ids_12: Option<bool>,
    /// Tickets that the server sends after a TLS 1.3 handshake.
    pub tickets_13: Option<u32>,
    /// The same after a resumed handshake. A client that uses each ticket once makes a full handshake again when it has none.
    /// Missing in audits by older versions.
    #[serde(default)]
    pub tickets_13_resumed: Option<u32>,
    /// Lifetime of these tickets.
    pub ticket_lifetime_s: Option<u32>,
    /// Maximum size of the 0-RTT data that the server accepts; 0: it accepts none.
    pub early_data_max_bytes: Option<u32>,
    /// Whether the server requests a client certificate.
    pub client_certificate_asked: Option<bool>,
    /// The server's certificate chain.
    pub chain: Vec<Certificate>,
    /// Properties that were not measured, and why.
    pub not_measured: BTreeMap<String, String>,
}

impl Offer {
    /// Kind and size of the key in the server's own certificate.
    pub fn key(&self) -> Option<String> {
        self.chain.first().map(|first| first.key.clone())
    }
}

/// A certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// The certificate's subject.
    pub subject: String,
    /// Kind and size of the certificate's key: `ECDSA 256`, `RSA 2048`.
    pub key: String,
    /// The certificate's length.
    pub bytes: u64,
    /// Expiry time, in seconds since 1970-01-01 UTC.
    pub expires_at_s: i64,
}

impl Certificate {
    /// Seconds until the certificate expires, from this time on; negative if it has expired by then.
    pub(crate) fn left_s(&self, at_s: u64) -> i64 {
        let at_s = i64::try_from(at_s).unwrap_or(i64::MAX);
        self.expires_at_s.saturating_sub(at_s)
    }

    /// Describes the time that is left.
    pub(crate) fn left_words(&self, at_s: u64) -> String {
        const DAY_S: i64 = 86_400;
        match self.left_s(at_s) {
            left_s @ 0.. => format!("{} days left", left_s / DAY_S),
            left_s => format!("expired {} days ago", left_s.unsigned_abs() / DAY_S as u64),
        }
    }
}

/// Whether the server resumes sessions, for one version and one mechanism.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resumption {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// `ticket` or `session id`.
    pub by: String,
    /// Result of the trials.
    pub trials: Measured<Trials>,
}

impl Resumption {
    /// The best share of each version: by ticket, or by session id where a server resumes more sessions in that way.
    pub(crate) fn best_shares(all: &[Self]) -> Vec<(&str, f64)> {
        let mut best: Vec<(&str, f64)> = Vec::new();
        for entry in all {
            let Some(share) = entry.trials.value().map(Trials::share) else {
                continue;
            };
            match best.iter_mut().find(|known| known.0 == entry.version) {
                Some(known) => known.1 = known.1.max(share),
                None => best.push((&entry.version, share)),
            }
        }
        best
    }
}

/// Results of the connections that offered a session.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Trials {
    /// Connections that offered a session.
    pub offered: u64,
    /// Connections, of those, that the server resumed, as the handshake itself shows.
    pub resumed: u64,
    /// Result of each connection, in order, without the connections made under load.
    pub outcomes: Vec<bool>,
    /// Why no connection that offers a session is established, although those without one are. `None`: they are.
    #[serde(default)]
    pub refusal: Option<String>,
}

impl Trials {
    /// The share of connections that were resumed.
    pub fn share(&self) -> f64 {
        self.resumed as f64 / (self.offered.max(1)) as f64
    }

    /// The 95 % confidence interval (Wilson) of the share that is resumed in the long run; 0 to 1 without trials.
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

/// Whether one address of a name accepts the tickets of another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AddressTrials {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// The address that issued the ticket.
    pub from: String,
    /// The address that was offered the ticket; the same address for comparison.
    pub to: String,
    /// Result of the trials.
    pub trials: Measured<Trials>,
}

/// Whether the server still accepts a ticket after a delay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgedTicket {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// The ticket's age when it was offered, in seconds.
    pub age_s: f64,
    /// Lifetime that the server announced; 0: it announced none.
    pub lifetime_s: u32,
    /// Whether the audit put load on the server in between.
    pub load_between: bool,
    /// Whether the server accepted the ticket.
    pub resumed: Measured<bool>,
}

/// Bytes of each flight of one kind of handshake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlightRow {
    /// `TLS 1.3` or `TLS 1.2`.
    pub version: String,
    /// Whether the handshake resumed a session.
    pub resumed: bool,
    /// Whether the client sent a certificate.
    pub client_certificate: bool,
    /// Bytes of each flight, alternating from the client's first.
    pub bytes: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: HAProxy with Debian's `no-tls-tickets` resumes sessions of TLS 1.2 by id.
    #[test]
    fn a_version_counts_by_its_best_way_to_resume() {
        let entry = |version: &str, by: &str, offered, resumed| Resumption {
            version: version.into(),
            by: by.into(),
            trials: Measured::Value(Trials {
                offered,
                resumed,
                ..Trials::default()
            }),
        };
        let all = [
            entry("TLS 1.3", "ticket", 40, 40),
            entry("TLS 1.2", "ticket", 0, 0),
            entry("TLS 1.2", "session id", 40, 38),
        ];
        let best = Resumption::best_shares(&all);
        assert_eq!(best, [("TLS 1.3", 1.0), ("TLS 1.2", 0.95)]);
    }
}
