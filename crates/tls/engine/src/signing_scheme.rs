//! Signature schemes of TLS.

use aws_lc_rs::digest;
use rustls::SignatureScheme;

use crate::signature_name::signature_name;

/// A signature scheme of TLS (RFC 8446 §4.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigningScheme(pub(crate) SignatureScheme);

impl SigningScheme {
    /// Returns its number in TLS.
    pub fn code(self) -> u16 {
        self.0.into()
    }

    /// Returns the digest of a message, as this scheme signs it. `None`: the scheme does not sign a digest.
    pub fn digest(self, message: &[u8]) -> Option<Vec<u8>> {
        let algorithm = match self.0 {
            SignatureScheme::ECDSA_NISTP256_SHA256
            | SignatureScheme::RSA_PSS_SHA256
            | SignatureScheme::RSA_PKCS1_SHA256 => &digest::SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384
            | SignatureScheme::RSA_PSS_SHA384
            | SignatureScheme::RSA_PKCS1_SHA384 => &digest::SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512
            | SignatureScheme::RSA_PSS_SHA512
            | SignatureScheme::RSA_PKCS1_SHA512 => &digest::SHA512,
            _ => return None,
        };
        Some(digest::digest(algorithm, message).as_ref().to_vec())
    }

    /// Returns its name in RFC 8446, such as `ecdsa_secp256r1_sha256`.
    pub fn name(self) -> &'static str {
        signature_name(self.0)
    }
}
