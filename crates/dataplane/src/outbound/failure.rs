//! Why a TLS connection to a server did not come about.

use dormouse_engine::HandshakeFailure;
use std::fmt;

/// Why an attempt failed.
pub(crate) enum Failure {
    /// The handshake failed.
    Handshake(HandshakeFailure),
    /// The connection did, or never was.
    Connection(String),
    /// It took too long for us.
    Time(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Handshake(failure) => failure.fmt(f),
            Failure::Connection(why) => f.write_str(why),
            Failure::Time(why) => f.write_str(why),
        }
    }
}
