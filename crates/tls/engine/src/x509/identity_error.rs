//! Problems with a certificate or key.

use std::fmt;

/// An unusable certificate or key: the file, the problem and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityError {
    /// The file, or the caller's name for the source.
    pub file: String,
    /// The problem.
    pub problem: IdentityProblem,
}

/// A problem with a certificate or key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityProblem {
    /// The file cannot be read.
    Unreadable(String),
    /// The file is larger than what is read of its kind.
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// The file is empty.
    Empty,
    /// The file is in this format, which is not PEM, and this converts it.
    NotPem(&'static str),
    /// The file is text without a section of PEM.
    NoSection,
    /// The PEM is truncated or damaged, or has something that cannot be used.
    BadPem {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The file contains no certificate.
    NoCertificate,
    /// The file contains a key instead of the certificate.
    KeyInsteadOfCertificate,
    /// The file contains a request for a certificate instead of the certificate.
    RequestInsteadOfCertificate,
    /// The file contains a certificate instead of the key.
    CertificateInsteadOfKey,
    /// The file contains a public key instead of the private one.
    PublicKeyInsteadOfKey,
    /// The file contains no private key.
    NoKey,
    /// The key is protected by a passphrase.
    EncryptedKey,
    /// The passphrase does not fit the key.
    WrongPassphrase,
    /// The key is encrypted in another way than PBES2 with PBKDF2 and AES.
    UnknownEncryption,
    /// The passphrase would have to be hashed too many times.
    CostlyEncryption {
        /// The iterations that the file asks for.
        iterations: u32,
        /// Those that are allowed.
        max: u32,
    },
    /// More than one key.
    SeveralKeys {
        /// The lines that begin them.
        lines: Vec<usize>,
    },
    /// The file contains no revocation list.
    NoRevocationList,
    /// The certificate cannot be parsed.
    BadCertificate(String),
    /// The certificate's key is of an unsupported kind (its OID).
    UnsupportedKey(String),
    /// The private key cannot be used.
    UnusableKey(String),
    /// The key belongs to another certificate.
    KeyMismatch {
        /// The certificate's file.
        certificate: String,
    },
    /// The key belongs to another certificate of the chain than the first.
    WrongOrder {
        /// The certificate's file.
        certificate: String,
        /// The place of the key's certificate in it, from 1.
        place: usize,
    },
    /// No certificate can be generated for this name.
    BadName(String),
}

impl IdentityProblem {
    pub(crate) fn bad_pem(line: usize, why: impl Into<String>) -> IdentityProblem {
        let why = why.into();
        IdentityProblem::BadPem { line, why }
    }

    /// Returns the error for a file with this problem.
    pub(crate) fn of(self, file: &str) -> IdentityError {
        let file = file.to_owned();
        IdentityError {
            file,
            problem: self,
        }
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            IdentityProblem::BadPem { line, why } => write!(f, "{}:{line}: {why}", self.file),
            problem => write!(f, "{}: {problem}", self.file),
        }
    }
}

impl fmt::Display for IdentityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::TooLarge { max } => {
                write!(
                    f,
                    "is larger than {} MiB, the limit for this file",
                    max >> 20
                )
            }
            Self::Empty => write!(f, "is empty"),
            Self::NotPem(format) => write!(f, "is not PEM but {format}"),
            Self::NoSection => write!(
                f,
                "is not PEM: no line begins a section, as -----BEGIN CERTIFICATE----- does"
            ),
            Self::BadPem { line, why } => write!(f, "line {line}: {why}"),
            Self::NoCertificate => write!(f, "contains no certificate"),
            Self::KeyInsteadOfCertificate => {
                write!(
                    f,
                    "contains a key instead of the certificate; the two files may be swapped"
                )
            }
            Self::RequestInsteadOfCertificate => write!(
                f,
                "contains a request for a certificate; the certificate is what the authority answers"
            ),
            Self::PublicKeyInsteadOfKey => {
                write!(f, "contains a public key; the private key is required")
            }
            Self::CertificateInsteadOfKey => {
                write!(
                    f,
                    "contains a certificate instead of the key; the two files may be swapped"
                )
            }
            Self::NoKey => write!(f, "contains no private key"),
            Self::EncryptedKey => write!(
                f,
                "is encrypted with a passphrase; remove it with: openssl pkey -in FILE -out FILE"
            ),
            Self::WrongPassphrase => write!(f, "the passphrase does not fit the key"),
            Self::UnknownEncryption => write!(
                f,
                "the key is encrypted in a way that is not supported; convert it: openssl pkcs8 -topk8 -v2 aes-256-cbc -in \
                 FILE -out FILE"
            ),
            Self::CostlyEncryption { iterations, max } => write!(
                f,
                "the passphrase would be hashed {iterations} times, but at most {max} times are allowed; convert the key: \
                 openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 600000 -in FILE -out FILE"
            ),
            Self::SeveralKeys { lines } => {
                let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
                write!(
                    f,
                    "contains {} different private keys, which begin at lines {}; exactly one is required",
                    lines.len(),
                    lines.join(", ")
                )
            }
            Self::NoRevocationList => write!(
                f,
                "contains no revocation list, a section that begins with -----BEGIN X509 CRL-----"
            ),
            Self::BadCertificate(why) => write!(f, "the certificate cannot be used: {why}"),
            Self::UnsupportedKey(oid) => write!(
                f,
                "the certificate's key is of an unsupported kind ({oid}); RSA, ECDSA and Ed25519 are supported"
            ),
            Self::UnusableKey(why) => write!(f, "the key cannot be used: {why}"),
            Self::KeyMismatch { certificate } => write!(
                f,
                "the key does not belong to the certificate in {certificate}"
            ),
            Self::WrongOrder { certificate, place } => write!(
                f,
                "the key belongs to certificate {place} of {certificate}, but the server's own certificate must be the \
                 first"
            ),
            Self::BadName(why) => write!(f, "no certificate can be generated for this name: {why}"),
        }
    }
}

impl std::error::Error for IdentityError {}
