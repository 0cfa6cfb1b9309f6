//! Signatures by the caller, for private keys that cannot leave their store.

use std::fmt;
use std::sync::Arc;

use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};

use crate::signature_name::signature_name;
use crate::x509::key_kind::KeyKind;

/// Signs with a private key that the engine never sees.
pub trait Sign: fmt::Debug + Send + Sync {
    /// Signs `message`, which is not hashed yet. ECDSA signatures are DER, as in X.509.
    ///
    /// The connection's thread waits for the result. After an error the handshake fails with internal_error and
    /// this reason.
    fn sign(&self, scheme: SigningScheme, message: &[u8]) -> Result<Vec<u8>, String>;
}

/// A signature scheme of TLS (RFC 8446 §4.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigningScheme(SignatureScheme);

impl SigningScheme {
    /// Returns its number in TLS.
    pub fn code(self) -> u16 {
        self.0.into()
    }

    /// Returns its name in RFC 8446, such as `ecdsa_secp256r1_sha256`.
    pub fn name(self) -> &'static str {
        signature_name(self.0)
    }
}

/// A caller's key, as a rustls key.
#[derive(Debug)]
pub(crate) struct ForeignKey {
    key_kind: KeyKind,
    sign: Arc<dyn Sign>,
}

impl ForeignKey {
    pub(crate) fn new(key_kind: KeyKind, sign: Arc<dyn Sign>) -> ForeignKey {
        ForeignKey { key_kind, sign }
    }

    /// Returns the schemes for this key, preferred first.
    fn schemes(&self) -> &'static [SignatureScheme] {
        match self.key_kind {
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
}

impl SigningKey for ForeignKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = self.schemes().iter().find(|one| offered.contains(one))?;
        Some(Box::new(ForeignSigner {
            scheme: *scheme,
            sign: Arc::clone(&self.sign),
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
    sign: Arc<dyn Sign>,
}

impl Signer for ForeignSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signed = self.sign.sign(SigningScheme(self.scheme), message);
        signed.map_err(|why| Error::General(format!("the caller's key did not sign: {why}")))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
