//! What can be wrong with a certificate or key.

use std::fmt;

/// A certificate or key which can't be used: which file, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityError {
    /// The file, or whatever the caller called it.
    pub file: String,
    /// What is wrong with it.
    pub problem: IdentityProblem,
}

/// What is wrong with a certificate or key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityProblem {
    /// The operating system does not let it be read.
    Unreadable(String),
    /// Larger than any certificate or key.
    TooLarge,
    /// Nothing in it.
    Empty,
    /// Not PEM, though it should be.
    NotPem,
    /// PEM which is cut off or broken.
    BadPem(String),
    /// There is no certificate in it.
    NoCertificate,
    /// A key was given where the certificate is expected.
    KeyInsteadOfCertificate,
    /// A certificate was given where the key is expected.
    CertificateInsteadOfKey,
    /// There is no private key in it.
    NoKey,
    /// The key is protected by a passphrase.
    EncryptedKey,
    /// More than one key.
    SeveralKeys(usize),
    /// The certificate can't be parsed.
    BadCertificate(String),
    /// The certificate's key is of a kind that is not supported (its OID).
    UnsupportedKey(String),
    /// The private key can't be used.
    UnusableKey(String),
    /// The key belongs to another certificate.
    KeyMismatch {
        /// The certificate's file.
        certificate: String,
    },
    /// A self-signed certificate can't be made for this name.
    BadName(String),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.problem)
    }
}

impl fmt::Display for IdentityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "can't be read: {why}"),
            Self::TooLarge => write!(f, "is larger than 1 MiB, which no certificate or key is"),
            Self::Empty => write!(f, "is empty"),
            Self::NotPem => write!(
                f,
                "is not PEM; convert it: openssl x509 -inform DER (certificate) or openssl pkey -inform DER (key)"
            ),
            Self::BadPem(why) => write!(f, "is broken PEM: {why}"),
            Self::NoCertificate => write!(f, "has no certificate in it"),
            Self::KeyInsteadOfCertificate => {
                write!(
                    f,
                    "is a key, but should be the certificate; are the two swapped?"
                )
            }
            Self::CertificateInsteadOfKey => {
                write!(
                    f,
                    "is a certificate, but should be the key; are the two swapped?"
                )
            }
            Self::NoKey => write!(f, "has no private key in it"),
            Self::EncryptedKey => write!(
                f,
                "is encrypted with a passphrase; write it without one: openssl pkey -in FILE -out FILE"
            ),
            Self::SeveralKeys(count) => {
                write!(f, "has {count} private keys in it; exactly one is needed")
            }
            Self::BadCertificate(why) => write!(f, "the certificate can't be used: {why}"),
            Self::UnsupportedKey(oid) => write!(
                f,
                "the certificate's key is of an unsupported kind ({oid}); RSA, ECDSA and Ed25519 are supported"
            ),
            Self::UnusableKey(why) => write!(f, "the key can't be used: {why}"),
            Self::KeyMismatch { certificate } => write!(
                f,
                "the key does not belong to the certificate in {certificate}"
            ),
            Self::BadName(why) => write!(f, "no certificate can be made for this name: {why}"),
        }
    }
}

impl std::error::Error for IdentityError {}
