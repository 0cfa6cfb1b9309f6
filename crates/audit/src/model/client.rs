//! Figures of a client.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::measured::Measured;

/// All figures of a client.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClientFigures {
    /// Connections that the client opened.
    pub connections: u64,
    /// Failed handshakes, by reason.
    pub failed: BTreeMap<String, u64>,
    /// HTTP requests, or with another protocol, connections on which the client sent data.
    pub requests: u64,
    /// Connections with more than one request.
    pub kept_alive: u64,
    /// Connections that offered a session.
    pub offered: u64,
    /// Resumed connections.
    pub resumed: u64,
    /// Distinct sessions among those offered.
    pub sessions_offered: u64,
    /// Maximum number of connections that offered the same session although the client had received newer ones.
    pub same_session_max: u64,
    /// TLS 1.3 tickets that the client offered more than once.
    pub tickets_reused: u64,
    /// Negotiated protocol versions.
    pub versions: BTreeMap<String, u64>,
    /// Versions offered in the first ClientHello.
    pub versions_offered: Vec<String>,
    /// Groups offered in the first ClientHello.
    pub groups_offered: Vec<String>,
    /// Groups with a key share in the first ClientHello.
    pub key_shares: Vec<String>,
    /// Whether a ClientHello offered compression.
    pub compression_offered: bool,
    /// Connections without a server name.
    pub without_sni: u64,
    /// Application protocols offered.
    pub alpn: Vec<String>,
    /// Size of the ClientHello in bytes: minimum and maximum.
    pub hello_bytes: (u64, u64),
    /// Handshakes that took an additional round trip (HelloRetryRequest).
    pub retried: u64,
    /// Total wall time of the handshakes, as the server sees it.
    pub handshake_ms: f64,
    /// Wall time of the whole run.
    pub run_ms: f64,
    /// CPU time of the client and its children.
    pub cpu_ms: Measured<f64>,
    /// CPU time that the client had used when its first connection arrived; included in `cpu_ms`.
    #[serde(default)]
    pub cpu_startup_ms: Measured<f64>,
    /// CPU time of a P-256 signature on this machine, as a measure of its speed.
    #[serde(default)]
    pub signature_us: Measured<f64>,
    /// Processes that opened connections, and the number of connections whose process is known.
    #[serde(default)]
    pub processes: Measured<(u64, u64)>,
    /// Peak memory of the client's process tree (PSS).
    pub memory_max_bytes: Measured<u64>,
    /// Exit status of the command.
    pub exit_status: Measured<i32>,
    /// One entry per connection, for the first thousand.
    pub raw: Vec<ClientConnection>,
}

/// One connection of a client, as the server saw it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClientConnection {
    /// Seconds since the start of the audit.
    pub at_s: f64,
    /// Negotiated version.
    pub version: String,
    /// Short name of the session that the client offered, if any.
    pub offered: Option<String>,
    /// Whether the connection was resumed.
    pub resumed: bool,
    /// Length of the ClientHello.
    pub hello_bytes: u64,
    /// Requests on this connection.
    pub requests: u64,
    /// Wall time of the handshake.
    pub handshake_ms: f64,
    /// CPU time that the process which opened the connection had used when it arrived.
    #[serde(default)]
    pub process_cpu_ms: Option<f64>,
}
