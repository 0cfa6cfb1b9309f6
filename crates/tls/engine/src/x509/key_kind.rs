//! The kinds of certificate keys.

use std::fmt;

use x509_parser::prelude::X509Certificate;
use x509_parser::public_key::PublicKey;

/// The kind of a certificate's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA.
    Rsa {
        /// The length of the modulus.
        bits: usize,
    },
    /// ECDSA on a NIST curve.
    Ecdsa {
        /// The length of the curve's field.
        bits: usize,
    },
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// Returns the kind of this certificate's key; `None` if it is not supported.
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Option<KeyKind> {
        const ED25519: &str = "1.3.101.112";
        let info = certificate.public_key();
        if info.algorithm.algorithm.to_id_string() == ED25519 {
            return Some(KeyKind::Ed25519);
        }
        match info.parsed().ok()? {
            PublicKey::RSA(rsa) => Some(KeyKind::Rsa {
                bits: rsa.key_size(),
            }),
            PublicKey::EC(point) => Some(KeyKind::Ecdsa {
                bits: point.key_size(),
            }),
            _ => None,
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyKind::Rsa { bits } => write!(f, "RSA-{bits}"),
            KeyKind::Ecdsa { bits } => write!(f, "ECDSA P-{bits}"),
            KeyKind::Ed25519 => write!(f, "Ed25519"),
        }
    }
}
