//! Settings common to servers and clients: versions, groups, the cryptographic provider.

use std::sync::Arc;

use dormouse_record::Version;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{CipherSuite, NamedGroup, SupportedProtocolVersion, version};

use crate::agreements::PreparedGroup;
use crate::deferred::{self, KeptGroup};
use crate::handshake::scoped_suites::scoped;
use crate::settings_error::SettingsError;

/// The enabled range of TLS versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    pub(crate) fn id(self) -> NamedGroup {
        self.supported().name()
    }

    fn supported(self) -> &'static dyn SupportedKxGroup {
        static X25519_ML_KEM_768: KeptGroup = KeptGroup(&PreparedGroup::X25519MlKem768);
        static X25519: KeptGroup = KeptGroup(&PreparedGroup::X25519);
        static P256: KeptGroup = KeptGroup(kx_group::SECP256R1);
        static P384: KeptGroup = KeptGroup(kx_group::SECP384R1);
        match self {
            Group::X25519MlKem768 => &X25519_ML_KEM_768,
            Group::X25519 => &X25519,
            Group::P256 => &P256,
            Group::P384 => &P384,
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
    provider.secure_random = deferred::random();
    provider.kx_groups = groups.iter().map(|group| group.supported()).collect();
    Ok(Arc::new(provider))
}

/// Returns the groups of which a client sends key shares if it has no hint. `enabled`: preferred first.
pub(crate) fn first_shares(enabled: &[Group]) -> Vec<NamedGroup> {
    let mut shares: Vec<Group> = enabled.first().copied().into_iter().collect();
    // rustls sends the classical half of a hybrid share as a share of its own.
    if shares == [Group::X25519MlKem768] && enabled.contains(&Group::X25519) {
        shares.push(Group::X25519);
    }
    shares.into_iter().map(Group::id).collect()
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
