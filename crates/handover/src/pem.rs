//! Certificates, keys and trust settings as PEM: main reads them for processes that can't read files.

use dormouse_config::ClientMatch;
use dormouse_engine::{ClientCertificates, Identity, IdentityError};
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroize as _;

/// A certificate chain and its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pem {
    /// File of the chain, for messages.
    pub name: String,
    /// File of the key.
    pub key_name: String,
    /// The certificate chain, PEM, the leaf first.
    pub chain: String,
    /// The OCSP response, DER; empty: none.
    #[serde(default)]
    pub ocsp: Vec<u8>,
    /// Whether the OCSP response comes from a file, so that it is not fetched.
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

/// Trust and own certificate of an origination.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginPem {
    /// Trusted authorities, PEM. `None`: any certificate is accepted.
    pub roots: Option<String>,
    /// The own certificate and key. `None`: no certificate is sent.
    pub identity: Option<Pem>,
}

/// Trust settings for client certificates.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientTrust {
    /// Whether a client without a certificate is refused.
    pub required: bool,
    /// Trusted authorities, PEM.
    pub roots: String,
    /// Revocation lists: file and content, PEM.
    pub crls: Vec<(String, String)>,
    /// Rules for accepted certificates; empty: every certificate of the authorities is accepted.
    #[serde(default)]
    pub allow: Vec<ClientMatch>,
}

impl ClientTrust {
    /// Converts to the engine's settings.
    pub fn settings(&self) -> ClientCertificates {
        let crls = self.crls.iter();
        ClientCertificates {
            crls: crls
                .map(|(name, pem)| (name.clone(), pem.clone().into_bytes()))
                .collect(),
            ..self.settings_without_lists()
        }
    }

    /// As [`ClientTrust::settings`], for a context that gets the revocation lists in its verifier.
    pub fn settings_without_lists(&self) -> ClientCertificates {
        ClientCertificates {
            required: self.required,
            roots: self.roots.clone().into_bytes(),
            crls: Vec::new(),
            allow: self.allow.iter().map(ClientMatch::rule).collect(),
        }
    }
}

impl Pem {
    /// Parses the certificate chain and the key.
    pub fn identity(&self) -> Result<Identity, IdentityError> {
        let mut identity = Identity::from_pem(
            self.chain.as_bytes(),
            self.key.as_bytes(),
            &self.name,
            &self.key_name,
        )?;
        if !self.ocsp.is_empty() {
            // The response may have expired since main checked it. The certificate works without it.
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
