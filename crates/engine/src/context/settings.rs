//! Settings common to servers and clients: versions, groups, the cryptographic provider.

use std::fmt;
use std::sync::Arc;

use dormouse_record::Version;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{CipherSuite, SupportedProtocolVersion, version};

use crate::handshake::scoped_suites::scoped;

/// The enabled range of TLS versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    /// The oldest version.
    pub min: Version,
    /// The newest version.
    pub max: Version,
}

impl Protocols {
    /// TLS 1.2 and 1.3.
    pub const ALL: Protocols = Protocols {
        min: Version::Tls12,
        max: Version::Tls13,
    };
    /// TLS 1.2 only.
    pub const TLS12: Protocols = Protocols {
        min: Version::Tls12,
        max: Version::Tls12,
    };
    /// TLS 1.3 only.
    pub const TLS13: Protocols = Protocols {
        min: Version::Tls13,
        max: Version::Tls13,
    };

    pub(crate) fn supported(self) -> Result<Vec<&'static SupportedProtocolVersion>, SettingsError> {
        match (self.min, self.max) {
            (Version::Tls12, Version::Tls13) => Ok(vec![&version::TLS13, &version::TLS12]),
            (Version::Tls12, Version::Tls12) => Ok(vec![&version::TLS12]),
            (Version::Tls13, Version::Tls13) => Ok(vec![&version::TLS13]),
            (Version::Tls13, Version::Tls12) => Err(SettingsError::VersionsReversed),
        }
    }
}

impl Default for Protocols {
    fn default() -> Self {
        Protocols::ALL
    }
}

/// A key exchange group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// ML-KEM-768 and X25519 together: safe against quantum computers.
    X25519MlKem768,
    /// X25519 (RFC 7748).
    X25519,
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
}

impl Group {
    /// All groups, preferred first.
    pub const ALL: [Group; 4] = [
        Group::X25519MlKem768,
        Group::X25519,
        Group::P256,
        Group::P384,
    ];

    /// Returns the group's IANA name.
    pub const fn name(self) -> &'static str {
        match self {
            Group::X25519MlKem768 => "X25519MLKEM768",
            Group::X25519 => "x25519",
            Group::P256 => "secp256r1",
            Group::P384 => "secp384r1",
        }
    }

    fn supported(self) -> &'static dyn SupportedKxGroup {
        match self {
            Group::X25519MlKem768 => kx_group::X25519MLKEM768,
            Group::X25519 => kx_group::X25519,
            Group::P256 => kx_group::SECP256R1,
            Group::P384 => kx_group::SECP384R1,
        }
    }
}

/// Returns the provider for one context: all AEAD suites, wrapped, and the given groups in order.
///
/// AES-128 comes before AES-256, as in browsers: its secrets are shorter, and a connection that wakes expands
/// them in less than half the time. (Servers follow the client's order.)
pub(crate) fn provider(groups: &[Group]) -> Result<Arc<CryptoProvider>, SettingsError> {
    if groups.is_empty() {
        return Err(SettingsError::NoGroups);
    }
    // Seeds the generator at startup, so that the first connection does not pay for it.
    ::aws_lc_rs::rand::fill(&mut [0; 32])
        .map_err(|_| SettingsError::Library("no random bytes".to_owned()))?;
    let mut provider = aws_lc_rs::default_provider();
    let suites = &mut provider.cipher_suites;
    suites.iter_mut().for_each(|suite| *suite = scoped(*suite));
    suites.sort_by_key(|suite| (suite.tls13().is_none(), is_aes_256(suite.suite())));
    provider.kx_groups = groups.iter().map(|group| group.supported()).collect();
    Ok(Arc::new(provider))
}

fn is_aes_256(suite: CipherSuite) -> bool {
    suite.as_str().is_some_and(|name| name.contains("AES_256"))
}

/// ALPN identifiers are 1 to 255 bytes long (RFC 7301 §3.1).
pub(crate) fn check_alpn(protocols: &[Vec<u8>]) -> Result<(), SettingsError> {
    match protocols
        .iter()
        .find(|name| name.is_empty() || name.len() > 255)
    {
        Some(name) => Err(SettingsError::BadAlpn(name.escape_ascii().to_string())),
        None => Ok(()),
    }
}

/// Unusable settings, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// The oldest version is newer than the newest.
    VersionsReversed,
    /// No key exchange group.
    NoGroups,
    /// No cipher suite.
    NoSuites,
    /// No certificate.
    NoIdentity,
    /// An ALPN identifier with a wrong length.
    BadAlpn(String),
    /// A ticket lifetime of zero, or over a week (RFC 8446 §4.6.1).
    BadTicketLifetime(u32),
    /// Too many tickets per handshake.
    TooManyTickets(usize),
    /// Ticket keys that are not in the export format.
    BadTicketKeys,
    /// The trusted certificates cannot be used.
    Roots(String),
    /// The authorities for client certificates cannot be used.
    ClientRoots(String),
    /// A revocation list cannot be used.
    ClientCrl(String),
    /// Neither a host name nor an IP address.
    BadServerName(String),
    /// The cryptographic library reported an error.
    Library(String),
}

impl From<rustls::Error> for SettingsError {
    fn from(error: rustls::Error) -> Self {
        SettingsError::Library(error.to_string())
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VersionsReversed => {
                write!(f, "the oldest enabled TLS version is newer than the newest")
            }
            Self::NoGroups => write!(f, "no key exchange group is enabled; enable at least one"),
            Self::NoSuites => write!(f, "no cipher suite is enabled; enable at least one"),
            Self::NoIdentity => write!(f, "no certificate; a TLS server needs at least one"),
            Self::BadAlpn(name) => write!(
                f,
                "the ALPN protocol \"{name}\" is not between 1 and 255 bytes long"
            ),
            Self::BadTicketLifetime(s) => write!(
                f,
                "a ticket lifetime of {s} s is not between 1 s and 604800 s (7 days, RFC 8446 §4.6.1)"
            ),
            Self::TooManyTickets(n) => {
                write!(f, "{n} tickets per handshake are too many; the limit is 16")
            }
            Self::BadTicketKeys => write!(f, "the ticket keys are not in the export format"),
            Self::Roots(why) => write!(f, "the trusted certificates cannot be used: {why}"),
            Self::ClientRoots(why) => {
                write!(
                    f,
                    "the authorities for client certificates cannot be used: {why}"
                )
            }
            Self::ClientCrl(why) => write!(f, "a revocation list cannot be used: {why}"),
            Self::BadServerName(name) => {
                write!(f, "\"{name}\" is neither a host name nor an IP address")
            }
            Self::Library(why) => write!(f, "the cryptographic library reported an error: {why}"),
        }
    }
}

impl std::error::Error for SettingsError {}
