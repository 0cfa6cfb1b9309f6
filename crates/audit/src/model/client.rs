//! Figures of a client.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::measured::Measured;

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
    /// Of this, what it had used when its first connection came: its start.
    #[serde(default)]
    pub cpu_startup_ms: Measured<f64>,
    /// Most memory of its process tree (PSS).
    pub memory_max_bytes: Measured<u64>,
    /// Exit status of the command.
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
