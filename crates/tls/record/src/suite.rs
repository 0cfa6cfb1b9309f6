//! Version, role and suite: the results of a handshake that the state keeps.

use core::fmt;

use aws_lc_rs::{aead, hmac};

/// A version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// RFC 5246, with AEAD suites only (RFC 5288, RFC 7905).
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Our role in the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// We accepted the handshake.
    Server,
    /// We began the handshake.
    Client,
}

/// AEAD and hash. TLS 1.2 uses the same three AEADs; the hash has no role there after the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// AES-128-GCM with SHA-256.
    Aes128GcmSha256,
    /// AES-256-GCM with SHA-384.
    Aes256GcmSha384,
    /// ChaCha20-Poly1305 with SHA-256.
    Chacha20Poly1305Sha256,
}

impl Version {
    /// Returns the name as OpenSSL writes it: `TLSv1.3`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }

    /// Returns the number in the protocol (RFC 8446 §4.2.1): 0x0304 for TLS 1.3.
    pub const fn number(self) -> u16 {
        match self {
            Self::Tls12 => 0x0303,
            Self::Tls13 => 0x0304,
        }
    }

    /// Returns the version with this number.
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            0x0303 => Some(Self::Tls12),
            0x0304 => Some(Self::Tls13),
            _ => None,
        }
    }

    /// The number in the state.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Tls12 => 1,
            Self::Tls13 => 2,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Tls12),
            2 => Some(Self::Tls13),
            _ => None,
        }
    }
}

/// `TLS 1.3`.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        })
    }
}

impl Role {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Server => 1,
            Self::Client => 2,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Server),
            2 => Some(Self::Client),
            _ => None,
        }
    }
}

impl Suite {
    /// All suites, for tests and tables.
    pub const ALL: [Self; 3] = [
        Self::Aes128GcmSha256,
        Self::Aes256GcmSha384,
        Self::Chacha20Poly1305Sha256,
    ];

    /// Returns the length of the AEAD key in bytes.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128GcmSha256 => 16,
            Self::Aes256GcmSha384 | Self::Chacha20Poly1305Sha256 => 32,
        }
    }

    /// Returns the length of a TLS 1.3 traffic secret in bytes: the hash's output length (RFC 8446 §7.1).
    pub const fn secret_len(self) -> usize {
        match self {
            Self::Aes256GcmSha384 => 48,
            Self::Aes128GcmSha256 | Self::Chacha20Poly1305Sha256 => 32,
        }
    }

    pub(crate) const fn is_gcm(self) -> bool {
        !matches!(self, Self::Chacha20Poly1305Sha256)
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Aes128GcmSha256 => 1,
            Self::Aes256GcmSha384 => 2,
            Self::Chacha20Poly1305Sha256 => 3,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Aes128GcmSha256),
            2 => Some(Self::Aes256GcmSha384),
            3 => Some(Self::Chacha20Poly1305Sha256),
            _ => None,
        }
    }

    pub(crate) fn aead(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128GcmSha256 => &aead::AES_128_GCM,
            Self::Aes256GcmSha384 => &aead::AES_256_GCM,
            Self::Chacha20Poly1305Sha256 => &aead::CHACHA20_POLY1305,
        }
    }

    pub(crate) fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Aes256GcmSha384 => hmac::HMAC_SHA384,
            Self::Aes128GcmSha256 | Self::Chacha20Poly1305Sha256 => hmac::HMAC_SHA256,
        }
    }
}
