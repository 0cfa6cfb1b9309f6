//! Messages between main and the signer.

use dormouse_config::TokenKey;
use dormouse_handover::SecretText;
use dormouse_handover::signing::SignRequest;
use serde::{Deserialize, Serialize};

/// What main tells the process.
#[derive(Serialize, Deserialize)]
pub struct SignerArguments {
    /// The process's end of the channel to main.
    pub channel: i32,
    /// The keys that it may use.
    pub keys: Vec<KeyAccess>,
}

/// A key, and what opens its token.
#[derive(Serialize, Deserialize)]
pub struct KeyAccess {
    /// The key.
    pub key: TokenKey,
    /// The PIN. `None`: the token needs none.
    pub pin: Option<SecretText>,
}

/// An order of main: sign.
#[derive(Debug, Serialize, Deserialize)]
pub struct SignOrder {
    /// Number of the order.
    pub number: u64,
    /// What to sign.
    pub request: SignRequest,
}

/// The answer to the order with this number. Answers come in the order of their orders.
#[derive(Debug, Serialize, Deserialize)]
pub struct SignReport {
    /// Number of the order.
    pub number: u64,
    /// The signature, or why there is none.
    pub signature: Result<Vec<u8>, String>,
}
