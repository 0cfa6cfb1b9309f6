//! Reasons for which an attempt failed.

use dormouse_engine::HandshakeFailure;
use std::fmt;

/// Reason for which an attempt failed.
pub(crate) enum Failure {
    /// The handshake failed.
    Handshake(HandshakeFailure),
    /// The connection failed, or could not be established.
    Connection(String),
    /// A timeout was reached.
    Time(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Handshake(failure) => failure.fmt(f),
            Failure::Connection(reason) => f.write_str(reason),
            Failure::Time(reason) => f.write_str(reason),
        }
    }
}
