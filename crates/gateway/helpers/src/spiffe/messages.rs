//! Messages from the SPIFFE client to main.

use dormouse_handover::SecretText;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What main tells the process.
#[derive(Serialize, Deserialize)]
pub struct SpiffeArguments {
    /// The process's end of the channel to main.
    pub channel: i32,
    /// Path of the agent's socket.
    pub path: PathBuf,
}

/// What the process has learned. A response of the agent is several reports, because a message to main has little room.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpiffeReport {
    /// There is no connection to the agent, or it has ended. The process tries again.
    Away(String),
    /// A response cannot be used.
    Refused(String),
    /// A response begins, and takes the place of the one before.
    Begin,
    /// A certificate.
    Certificate {
        /// Its id.
        id: String,
        /// The chain, PEM.
        chain: String,
        /// Its key, PEM.
        key: SecretText,
    },
    /// Authorities.
    Authorities {
        /// Their trust domain.
        domain: String,
        /// They, PEM.
        certificates: String,
    },
    /// The response is complete.
    Complete {
        /// Revocation lists in it, which are not used.
        revocation_lists: usize,
    },
}
