//! Certificates, keys and trust settings as PEM: main reads them for processes that can't read files.

use crate::lists::RevocationList;
use base64::prelude::*;
use dormouse_config::{ClientMatch, TokenKey};
use dormouse_engine::{
    ClientCertificates, Identity, IdentityError, ServerCertificates, SettingsError, TrustStore,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroize as _;

/// A certificate chain and its key, as read. Routes and editions that have the same one share it, and it is parsed once.
#[derive(Clone)]
pub struct Pem(Arc<Shared>);

struct Shared {
    contents: PemContents,
    identity: OnceLock<Result<Identity, IdentityError>>,
    digest: OnceLock<[u8; 32]>,
    chain_digest: OnceLock<[u8; 32]>,
    /// Digest of the files that it was read from, as they were.
    source: Option<[u8; 32]>,
}

/// What a [`Pem`] consists of.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PemContents {
    /// File of the chain, for messages.
    pub name: String,
    /// File of the key.
    pub key_name: String,
    /// The certificate chain, PEM, the leaf first.
    pub chain: String,
    /// The OCSP response, DER; empty: none.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub ocsp: Vec<u8>,
    /// Whether the OCSP response comes from a file, so that it is not fetched.
    pub ocsp_from_file: bool,
    /// An administrator pushed it through the admin socket: no file has it.
    pub is_pushed: bool,
    /// The private key, PEM, or the URI of a key in a token. It passes with the secrets, never as JSON, and is wiped on drop.
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
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginPem {
    /// Trusted authorities, PEM. `None`: any certificate is accepted.
    pub roots: Option<String>,
    /// What refuses certificates of these authorities.
    #[serde(default)]
    pub revocation: Revocation,
    /// The own certificate and key. `None`: no certificate is sent.
    pub identity: Option<Pem>,
}

/// Revocation of servers' certificates.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Revocation {
    /// Revocation lists.
    pub crls: Vec<RevocationList>,
    /// Whether a server must staple a valid OCSP response.
    pub ocsp_required: bool,
}

impl OriginPem {
    /// Parses the trusted authorities and the revocation lists. `None`: any certificate is accepted.
    pub fn trust(&self) -> Result<Option<TrustStore>, SettingsError> {
        let Some(roots) = &self.roots else {
            return Ok(None);
        };
        let demanded = ServerCertificates {
            roots: roots.clone().into_bytes(),
            crls: as_bytes(&self.revocation.crls),
            ocsp_required: self.revocation.ocsp_required,
        };
        demanded.store().map(Some)
    }
}

/// Trust settings for client certificates.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientTrust {
    /// Whether a client without a certificate is refused.
    pub required: bool,
    /// Trusted authorities, PEM.
    pub roots: String,
    /// Revocation lists.
    pub crls: Vec<RevocationList>,
    /// Rules for accepted certificates; empty: every certificate of the authorities is accepted.
    pub allow: Vec<ClientMatch>,
}

impl ClientTrust {
    /// Converts to the engine's settings.
    pub fn settings(&self) -> ClientCertificates {
        ClientCertificates {
            crls: as_bytes(&self.crls),
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

fn as_bytes(crls: &[RevocationList]) -> Vec<(String, Vec<u8>)> {
    crls.iter()
        .map(|list| (list.name.clone(), list.pem().as_bytes().to_vec()))
        .collect()
}

impl Pem {
    /// Contents that were read from files with this digest.
    pub fn of_files(contents: PemContents, source: [u8; 32]) -> Pem {
        Pem::new(contents, Some(source))
    }

    fn new(contents: PemContents, source: Option<[u8; 32]>) -> Pem {
        Pem(Arc::new(Shared {
            contents,
            identity: OnceLock::new(),
            digest: OnceLock::new(),
            chain_digest: OnceLock::new(),
            source,
        }))
    }

    /// The digest of the files that it was read from, if it was read by this process.
    pub fn source(&self) -> Option<[u8; 32]> {
        self.0.source
    }

    /// The certificate chain and the key, parsed when they are first needed.
    pub fn identity(&self) -> Result<&Identity, &IdentityError> {
        let Shared {
            contents, identity, ..
        } = &*self.0;
        identity.get_or_init(|| contents.parse()).as_ref()
    }

    /// The SHA-256 digest of everything in it, computed when it is first needed.
    pub fn digest(&self) -> [u8; 32] {
        let Shared {
            contents, digest, ..
        } = &*self.0;
        *digest.get_or_init(|| dormouse_engine::digest(&contents.fields()))
    }

    /// The SHA-256 digest of the chain as it is written, computed when it is first needed.
    pub fn chain_digest(&self) -> [u8; 32] {
        let Shared {
            contents,
            chain_digest,
            ..
        } = &*self.0;
        *chain_digest.get_or_init(|| dormouse_engine::digest(&[contents.chain.as_bytes()]))
    }

    /// Changes this one; others that share its contents keep them.
    pub fn change(&mut self, change: impl FnOnce(&mut PemContents)) {
        let shared = Arc::make_mut(&mut self.0);
        shared.identity = OnceLock::new();
        (shared.digest, shared.chain_digest) = (OnceLock::new(), OnceLock::new());
        change(&mut shared.contents);
    }
}

impl Clone for Shared {
    fn clone(&self) -> Shared {
        Shared {
            contents: self.contents.clone(),
            identity: OnceLock::new(),
            digest: OnceLock::new(),
            chain_digest: OnceLock::new(),
            source: self.source,
        }
    }
}

impl PemContents {
    /// Everything in it, in the order of a handover's file.
    pub(crate) fn fields(&self) -> [&[u8]; 6] {
        let flags: &[u8] = match (self.ocsp_from_file, self.is_pushed) {
            (false, false) => &[0],
            (true, false) => &[1],
            (false, true) => &[2],
            (true, true) => &[3],
        };
        [
            flags,
            self.name.as_bytes(),
            self.key_name.as_bytes(),
            self.chain.as_bytes(),
            &self.ocsp,
            self.key.as_bytes(),
        ]
    }

    /// The contents that consist of these fields.
    pub(crate) fn of_fields(fields: [&[u8]; 6]) -> io::Result<PemContents> {
        let [flags, name, key_name, chain, ocsp, key] = fields;
        let &[flags @ 0..=3] = flags else {
            return Err(io::Error::other(
                "a certificate of the handover is malformed",
            ));
        };
        let text = |bytes: &[u8]| str::from_utf8(bytes).map(str::to_owned);
        let text = |bytes| text(bytes).map_err(io::Error::other);
        Ok(PemContents {
            ocsp_from_file: flags & 1 != 0,
            is_pushed: flags & 2 != 0,
            name: text(name)?,
            key_name: text(key_name)?,
            chain: text(chain)?,
            ocsp: ocsp.to_vec(),
            key: text(key)?,
        })
    }

    fn parse(&self) -> Result<Identity, IdentityError> {
        let chain = self.chain.as_bytes();
        let mut identity = match TokenKey::is_uri(Path::new(&self.key)) {
            true => Identity::with_deferred_key(chain, &self.key, &self.name)?,
            false => {
                let key = self.key.as_bytes();
                Identity::from_pem(chain, key, &self.name, &self.key_name)?
            }
        };
        if !self.ocsp.is_empty() {
            // The response may have expired since main checked it. The certificate works without it.
            let _ = identity.staple(&self.ocsp, crate::unix_time());
        }
        Ok(identity)
    }
}

impl From<PemContents> for Pem {
    fn from(contents: PemContents) -> Pem {
        Pem::new(contents, None)
    }
}

impl Deref for Pem {
    type Target = PemContents;

    fn deref(&self) -> &PemContents {
        &self.0.contents
    }
}

impl PartialEq for Pem {
    fn eq(&self, other: &Pem) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Pem {}

impl Serialize for Pem {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        PemContents::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for Pem {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pem, D::Error> {
        PemContents::deserialize(from).map(Pem::from)
    }
}

impl Drop for PemContents {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// Writes bytes as base64, which is a third longer. JSON's lists of numbers are more than three times as long.
fn to_base64<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&BASE64_STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    BASE64_STANDARD.decode(text).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The material of all routes has to fit into one part of the handover.
    #[test]
    fn a_response_is_little_longer_in_json() {
        let pem = Pem::from(PemContents {
            name: String::new(),
            key_name: String::new(),
            chain: String::new(),
            ocsp: (0..=255).cycle().take(3_000).collect(),
            ocsp_from_file: false,
            is_pushed: false,
            key: String::new(),
        });
        let text = serde_json::to_string(&pem).expect("JSON");
        assert!(text.len() < 4_200, "{}", text.len());
        let back: Pem = serde_json::from_str(&text).expect("JSON");
        assert!(back == pem);
    }
}
