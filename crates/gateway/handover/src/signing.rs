//! Signatures with keys in tokens: a worker asks main, which passes the request to the signer.

use serde::{Deserialize, Serialize};

/// A signature that a worker needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignRequest {
    /// The URI of the key.
    pub key: String,
    /// The signature scheme of TLS, by its number.
    pub scheme: u16,
    /// The digest to sign.
    pub digest: Vec<u8>,
}

/// A signature that a worker asked for, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Signed {
    /// The digest, which distinguishes the answer from one to a predecessor's handshake, or to an earlier attempt.
    pub digest: Vec<u8>,
    /// The signature.
    pub signature: Result<Vec<u8>, String>,
}
