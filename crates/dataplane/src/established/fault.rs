//! What ends a connection out of turn.

use dormouse_record::{AlertDescription, Refusal};
use std::fmt;
use std::io;

/// The result of a part of a step: the connection goes on, or it has failed.
pub(crate) type Flow<T = ()> = Result<T, Fault>;

/// Why a connection cannot go on.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The TLS side ended its TCP stream without close_notify: a truncation (RFC 8446 §6.1).
    TlsTruncated,
    /// The TLS side's TCP connection failed.
    TlsFailed(io::Error),
    /// The TLS peer sent a fatal alert.
    TlsAlert(u8),
    /// What the TLS peer sent is against the protocol; the alert is to be sent.
    Refused(Refusal),
    /// The plain side failed: reset, or gone.
    PlainFailed(io::Error),
    /// No key may be used any further, and the protocol version has no key update.
    KeyExhausted,
    /// Pending memory could not take what had been received. (Reads are reserved before, so this
    /// is our own fault.)
    NoPendingMemory,
    /// Epoll refused a change. Without it the connection would spin or never be heard of again.
    NotWatched(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TlsTruncated => {
                f.write_str("the TLS peer closed the connection without close_notify")
            }
            Fault::TlsFailed(e) => write!(f, "the TLS peer's connection failed: {e}"),
            Fault::TlsAlert(code) => match AlertDescription::from_code(*code) {
                Some(alert) => write!(f, "the TLS peer sent a fatal alert: {alert}"),
                None => write!(f, "the TLS peer sent a fatal alert: {code}"),
            },
            Fault::Refused(refusal) => {
                write!(f, "the TLS peer broke the protocol: {refusal}")
            }
            Fault::PlainFailed(e) => write!(f, "the plaintext side's connection failed: {e}"),
            Fault::KeyExhausted => {
                f.write_str("the key has reached its record limit (RFC 8446 §5.5)")
            }
            Fault::NoPendingMemory => f.write_str("no pending memory left for received bytes"),
            Fault::NotWatched(e) => write!(f, "socket poll failed: {e}"),
        }
    }
}
