//! Errors of an established session, other than the peer's end.

use std::fmt;

use dormouse_record::{Corrupt, Misuse, SealError};

/// Why a call on a [`Session`](crate::Session) had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// The handshake is not done yet.
    Handshaking,
    /// The handshake is done.
    Established,
    /// The session was exported, and continues elsewhere.
    Exported,
    /// A close_notify or fatal alert was sent, or a fatal alert received: nothing more can be sent.
    Closed,
    /// The connection has failed.
    Failed,
    /// The write key reached its limit. Only TLS 1.2 gets here: the connection must be closed.
    KeyExhausted,
    /// There is output that must be sent first.
    Unsent,
    /// TLS 1.2 has no KeyUpdate.
    NotTls13,
    /// The output has too little room. Nothing has changed.
    BufferTooSmall {
        /// Bytes that are required.
        need: usize,
    },
    /// The plaintext exceeds the limit of one call, 1 GiB.
    TooLong(usize),
    /// The session waits for [`Session::decide`](crate::Session::decide), or `decide` was called on a session
    /// that does not wait for it.
    Undecided,
    /// A panic ended this session, now or earlier. Its secrets are wiped.
    Poisoned,
    /// The cryptographic library reported an error.
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
                "this key cannot seal any more records (RFC 8446 §5.5); close the connection",
            ),
            Self::Unsent => f.write_str("there is output that must be sent first"),
            Self::NotTls13 => f.write_str("only TLS 1.3 has a KeyUpdate"),
            Self::BufferTooSmall { need } => {
                write!(f, "the buffer is too small; {need} bytes are needed")
            }
            Self::TooLong(len) => write!(
                f,
                "{len} bytes are too many for one call; the limit is 1 GiB"
            ),
            Self::Undecided => {
                f.write_str("the session waits for a server context, or already has one")
            }
            Self::Poisoned => f.write_str("an internal error ended this session"),
            Self::Library => f.write_str("the cryptographic library reported an error"),
        }
    }
}

impl std::error::Error for SessionError {}

/// Why bytes cannot be imported as a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportError {
    /// The length does not match the lengths in the bytes, or is shorter than a state.
    Length(usize),
    /// The state in the bytes cannot be used.
    State(Corrupt),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "{len} bytes are not an exported session"),
            Self::State(corrupt) => write!(f, "the exported session cannot continue: {corrupt}"),
        }
    }
}

impl std::error::Error for ImportError {}
