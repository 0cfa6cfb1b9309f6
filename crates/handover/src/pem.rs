//! Certificates, keys and trust as text: what main has read, for processes that can't read files.

use dormouse_config::ClientMatch;
use dormouse_engine::{ClientCertificates, Identity, IdentityError};
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroize as _;

/// A chain and its key as PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pem {
    /// Where the chain was read, for messages.
    pub name: String,
    /// Where the key was read.
    pub key_name: String,
    /// The certificate chain, PEM, the leaf first.
    pub chain: String,
    /// What the authority says of it (OCSP), DER; empty: nothing is known.
    #[serde(default)]
    pub ocsp: Vec<u8>,
    /// That was read from a file; it is not asked for.
    #[serde(default)]
    pub ocsp_from_file: bool,
    /// An administrator pushed it through the admin socket: no file has it.
    #[serde(default)]
    pub is_pushed: bool,
    /// The private key, PEM. It passes with the secrets, never as JSON, and is wiped on drop.
    #[serde(skip)]
    pub key: String,
}

/// Text that may hold a private key, on its way to main. It is wiped on drop, and never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret bytes", self.0.len())
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Whom an origination trusts, and what it shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginPem {
    /// Authorities; `None`: any certificate is taken.
    pub roots: Option<String>,
    /// The own certificate and key; `None`: no certificate is shown.
    pub identity: Option<Pem>,
}

/// Who may vouch for clients, and who of those may come in.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientTrust {
    /// Whether a client without a certificate is refused.
    pub required: bool,
    /// PEM.
    pub roots: String,
    /// Revocation lists: where each was read, and what was there, PEM.
    pub crls: Vec<(String, String)>,
    /// Certificates that are accepted; empty: every one that the authorities vouch for.
    #[serde(default)]
    pub allow: Vec<ClientMatch>,
}

impl ClientTrust {
    /// As the engine takes it.
    pub fn settings(&self) -> ClientCertificates {
        ClientCertificates {
            required: self.required,
            roots: self.roots.clone().into_bytes(),
            crls: self
                .crls
                .iter()
                .map(|(name, pem)| (name.clone(), pem.clone().into_bytes()))
                .collect(),
            allow: self.allow.iter().map(ClientMatch::rule).collect(),
        }
    }
}

impl Pem {
    /// The identity that it holds.
    pub fn identity(&self) -> Result<Identity, IdentityError> {
        let mut identity = Identity::from_pem(
            self.chain.as_bytes(),
            self.key.as_bytes(),
            &self.name,
            &self.key_name,
        )?;
        if !self.ocsp.is_empty() {
            // Its time may be over since it was looked at: the certificate is good without it.
            let _ = identity.staple(&self.ocsp, crate::unix_time());
        }
        Ok(identity)
    }
}

impl Drop for Pem {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}
