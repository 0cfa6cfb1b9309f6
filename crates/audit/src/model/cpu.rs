//! A server's CPU time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::handshakes::ParallelHandshakes;
use super::measured::Measured;
use dormouse_census::HotSpot;

/// A server's CPU time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuFigures {
    /// Microseconds per connection with a full handshake: accept, handshake, exchange, close.
    pub full_us: f64,
    /// System time included in `full_us`.
    pub full_system_us: f64,
    /// The same with a resumed handshake, by version.
    pub resumed_us: BTreeMap<String, Measured<f64>>,
    /// CPU time of the cryptography alone on this machine.
    pub reference: Reference,
    /// Where the server's processes spent CPU time during full handshakes, by share.
    #[serde(default)]
    pub profile: Measured<Vec<HotSpot>>,
    /// Connections per second of one client and of several.
    #[serde(default)]
    pub parallel: Measured<ParallelHandshakes>,
    /// CPU seconds per echoed gigabyte.
    pub per_gigabyte_s: Measured<f64>,
    /// Threads that used CPU time and never slept while the connections were idle.
    #[serde(default)]
    pub polling_threads: Measured<u64>,
    /// CPU microseconds per idle connection and second; of a JVM without its compilers and collectors.
    pub idle_us_per_connection_s: Measured<f64>,
}

/// CPU time of the parts of a handshake on this machine, measured in the audit's own process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reference {
    /// Kind of the key in the certificate.
    pub key: String,
    /// One signature with a key of this kind.
    pub signature_us: f64,
    /// One X25519 key exchange, server side.
    pub exchange_us: f64,
    /// One full TLS 1.3 handshake of `dormouse`, server side, without sockets.
    pub handshake_us: f64,
    /// System time for accepting a TCP connection, moving the bytes of a handshake and closing it.
    pub tcp_us: f64,
}

/// The first connection after the server's start, compared with later ones.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FirstConnection {
    /// Wall time of the first handshake.
    pub first_ms: f64,
    /// CPU time that the server used for the first handshake.
    pub first_cpu_ms: f64,
    /// Median wall time of the next handshakes.
    pub later_ms: f64,
    /// Mean CPU time of the next handshakes.
    pub later_cpu_ms: f64,
    /// Memory of the process before the first connection (PSS).
    pub held_bytes: u64,
    /// The same comparison for the server of `--cmd-larger`.
    pub larger: Option<Box<FirstConnection>>,
}

#[cfg(test)]
impl CpuFigures {
    /// Creates figures in which only the profile is measured.
    pub(crate) fn with_profile(profile: Vec<HotSpot>) -> Self {
        let not = || Measured::not("not asked");
        Self {
            full_us: 0.0,
            full_system_us: 0.0,
            resumed_us: BTreeMap::new(),
            reference: Reference {
                key: "ECDSA 256".into(),
                signature_us: 0.0,
                exchange_us: 0.0,
                handshake_us: 0.0,
                tcp_us: 0.0,
            },
            profile: Measured::Value(profile),
            parallel: Measured::not("not asked"),
            polling_threads: Measured::not("not asked"),
            per_gigabyte_s: not(),
            idle_us_per_connection_s: not(),
        }
    }
}
