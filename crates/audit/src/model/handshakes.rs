//! How many handshakes a server makes at a time.

use serde::{Deserialize, Serialize};

use super::measured::Measured;

/// Another client's handshake, beside clients that connect and say nothing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SilentClients {
    /// Maximum number of silent clients that were connected at a time.
    pub tried: u64,
    /// Number of silent clients beside which another client's ClientHello got no answer; `None`: it always got one.
    pub blocked_by: Option<u64>,
    /// How long the audit waited for that answer.
    pub waited_ms: f64,
    /// Time to the answer without silent clients.
    pub alone_ms: f64,
    /// Whether one established idle connection blocks other clients too; `None`: not tried.
    pub established_blocks: Option<bool>,
}

/// Connections per second of one client, and of several at a time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ParallelHandshakes {
    /// Number of clients at a time.
    pub clients: u32,
    /// Connections per second of one client: handshake, exchange, close.
    pub alone_per_s: f64,
    /// The same of all clients together.
    pub together_per_s: f64,
    /// Cores that the server used meanwhile.
    pub server_cores: f64,
    /// Cores that the audit's clients used meanwhile.
    pub client_cores: f64,
    /// Cores that the server may use and that were idle meanwhile.
    pub idle_cores: f64,
    /// Cores whose time the server's control group lets it use; `None`: it sets no limit. Missing in audits by older
    /// versions.
    #[serde(default)]
    pub quota_cores: Option<f64>,
    /// Threads of the server that waited for a lock meanwhile.
    pub lock: Measured<LockWaits>,
}

/// Threads that waited for the same lock, sampled.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LockWaits {
    /// Number of samples.
    pub samples: u64,
    /// Share of the samples in which two or more threads waited for the same lock.
    pub share: f64,
    /// Mean number of threads that waited for it, in these samples.
    pub threads: f64,
    /// Share of the samples in which they waited while no thread of the server was running or ready to run: so the one
    /// that held the lock waited for something else than a core. `None`: not looked at.
    #[serde(default)]
    pub asleep_share: Option<f64>,
}
