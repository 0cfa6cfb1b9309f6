//! A server's CPU time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use dormouse_census::HotSpot;

/// A server's CPU time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuFigures {
    /// Microseconds per connection with a full handshake: accept, handshake, exchange, close.
    pub full_us: f64,
    /// The system part of it.
    pub full_system_us: f64,
    /// The same with a resumed handshake, by version.
    pub resumed_us: BTreeMap<String, Measured<f64>>,
    /// CPU time of the bare cryptography on this machine.
    pub reference: Reference,
    /// What the server's processes did during full handshakes, by share of CPU time.
    #[serde(default)]
    pub profile: Measured<Vec<HotSpot>>,
    /// CPU seconds per gigabyte echoed.
    pub per_gigabyte_s: Measured<f64>,
    /// Microseconds per idle connection and second.
    pub idle_us_per_connection_s: Measured<f64>,
}

/// CPU time of the parts of a handshake on this machine, measured in this process.
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
    /// Memory (PSS) of the process before it.
    pub held_bytes: u64,
    /// The same for the command of `--cmd-larger`.
    pub larger: Option<Box<FirstConnection>>,
}
