//! Unusable settings.

use std::fmt;

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
    Crl(String),
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
            Self::Crl(why) => write!(f, "a revocation list cannot be used: {why}"),
            Self::BadServerName(name) => {
                write!(f, "\"{name}\" is neither a host name nor an IP address")
            }
            Self::Library(why) => write!(f, "the cryptographic library reported an error: {why}"),
        }
    }
}

impl std::error::Error for SettingsError {}
