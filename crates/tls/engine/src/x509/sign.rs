//! Signatures by the caller, for private keys that cannot leave their store.

use std::fmt;
use std::sync::Arc;

use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};

use crate::deferred::{self, SignatureRequest};
use crate::signing_scheme::SigningScheme;
use crate::x509::key_kind::KeyKind;

/// Signs with a private key that the engine never sees.
pub trait Sign: fmt::Debug + Send + Sync {
    /// Signs `message`, which is not hashed yet. ECDSA signatures are DER, as in X.509.
    ///
    /// The connection's thread waits for the result. After an error the handshake fails with internal_error and
    /// this reason.
    fn sign(&self, scheme: SigningScheme, message: &[u8]) -> Result<Vec<u8>, String>;
}

/// A caller's key, as a rustls key.
#[derive(Debug)]
pub(crate) struct ForeignKey {
    key_kind: KeyKind,
    hand: Hand,
}

/// Who signs with a caller's key.
#[derive(Debug, Clone)]
pub(crate) enum Hand {
    /// The caller, while the connection's thread waits.
    Calling(Arc<dyn Sign>),
    /// Elsewhere, while the handshake waits, with the key of this name.
    Elsewhere(Arc<str>),
}

impl ForeignKey {
    pub(crate) fn new(key_kind: KeyKind, hand: Hand) -> ForeignKey {
        ForeignKey { key_kind, hand }
    }
}

/// Returns the schemes for a key, preferred first.
pub(crate) fn schemes(key_kind: KeyKind) -> &'static [SignatureScheme] {
    match key_kind {
        KeyKind::Rsa { .. } => &[
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA256,
        ],
        KeyKind::Ecdsa { bits: 0..=256 } => &[SignatureScheme::ECDSA_NISTP256_SHA256],
        KeyKind::Ecdsa { bits: 257..=384 } => &[SignatureScheme::ECDSA_NISTP384_SHA384],
        KeyKind::Ecdsa { .. } => &[SignatureScheme::ECDSA_NISTP521_SHA512],
        KeyKind::Ed25519 => &[SignatureScheme::ED25519],
    }
}

impl SigningKey for ForeignKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = schemes(self.key_kind)
            .iter()
            .find(|one| offered.contains(one))?;
        Some(Box::new(ForeignSigner {
            scheme: *scheme,
            hand: self.hand.clone(),
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.key_kind {
            KeyKind::Rsa { .. } => SignatureAlgorithm::RSA,
            KeyKind::Ecdsa { .. } => SignatureAlgorithm::ECDSA,
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
        }
    }
}

#[derive(Debug)]
struct ForeignSigner {
    scheme: SignatureScheme,
    hand: Hand,
}

impl Signer for ForeignSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let scheme = SigningScheme(self.scheme);
        match &self.hand {
            Hand::Calling(sign) => sign
                .sign(scheme, message)
                .map_err(|why| Error::General(format!("the caller's key did not sign: {why}"))),
            Hand::Elsewhere(key) => deferred::sign(SignatureRequest {
                key: Arc::clone(key),
                scheme,
                digest: scheme.digest(message).unwrap_or_default(),
            }),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
