//! What can go wrong with an established session, other than how the peer ended it.

use std::fmt;

use dormouse_record::{Corrupt, Misuse, SealError};

/// Why a call on a [`Session`](crate::Session) did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// The handshake is not done yet.
    Handshaking,
    /// The handshake is done.
    Established,
    /// The session was exported, and goes on elsewhere.
    Exported,
    /// close_notify or a fatal alert was sent, or a fatal one received: nothing more can be sent.
    Closed,
    /// The connection has failed.
    Failed,
    /// The write key has reached its limit. Only TLS 1.2 gets here: the connection has to be closed.
    KeyExhausted,
    /// TLS 1.2 has no KeyUpdate.
    NotTls13,
    /// The output has too little room. Nothing was touched.
    BufferTooSmall {
        /// Bytes that are needed.
        need: usize,
    },
    /// More plaintext than one call takes, 1 GiB.
    TooLong(usize),
    /// The session waits for a choice ([`Session::decide`](crate::Session::decide)), or it does not and
    /// was given one.
    Undecided,
    /// A panic has ended this session, now or earlier. Its secrets are wiped.
    Poisoned,
    /// The cryptographic library refused to work.
    Library,
}

impl From<SealError> for SessionError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Closed => SessionError::Closed,
            SealError::Failed => SessionError::Failed,
            SealError::KeyExhausted => SessionError::KeyExhausted,
            SealError::ContentTooLong(len) => SessionError::TooLong(len),
            SealError::BufferTooSmall { need } => SessionError::BufferTooSmall { need },
            SealError::Misuse(Misuse::NotTls13) => SessionError::NotTls13,
            SealError::Misuse(Misuse::NotEstablished) => SessionError::Exported,
            _ => SessionError::Library,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshaking => f.write_str("the handshake is not done yet"),
            Self::Established => f.write_str("the handshake is done"),
            Self::Exported => f.write_str("the session was exported"),
            Self::Closed => f.write_str("the connection is closed for sending"),
            Self::Failed => f.write_str("the connection has failed"),
            Self::KeyExhausted => f.write_str(
                "no more records may be sealed under this key (RFC 8446 §5.5); close the connection",
            ),
            Self::NotTls13 => f.write_str("only TLS 1.3 has a KeyUpdate"),
            Self::BufferTooSmall { need } => {
                write!(f, "the buffer is too small; {need} bytes are needed")
            }
            Self::TooLong(len) => write!(f, "{len} bytes are too many for one call"),
            Self::Undecided => f.write_str(
                "the session waits for a server context, or has one already and was given another",
            ),
            Self::Poisoned => f.write_str("an internal error has ended this session"),
            Self::Library => f.write_str("the cryptographic library refused to work"),
        }
    }
}

impl std::error::Error for SessionError {}

/// Why bytes are not taken for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportError {
    /// Not as many bytes as they say, or fewer than a state has.
    Length(usize),
    /// The state in them can't be used.
    State(Corrupt),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "{len} bytes are not an exported session"),
            Self::State(corrupt) => write!(f, "not a session that can go on: {corrupt}"),
        }
    }
}

impl std::error::Error for ImportError {}
