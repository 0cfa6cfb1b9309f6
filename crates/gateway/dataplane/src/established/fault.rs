//! Faults that abort a connection.

use crate::memory::backlog;
use dormouse_record::{AlertDescription, Refusal};
use std::fmt;
use std::io;

/// Result of a part of a step.
pub(crate) type Flow<T = ()> = Result<T, Fault>;

/// Reason for which a connection is aborted.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The TLS side ended its TCP stream without close_notify: a truncation (RFC 8446 §6.1).
    TlsTruncated,
    /// The TLS side's TCP connection failed.
    TlsFailed(io::Error),
    /// The TLS peer sent a fatal alert.
    TlsAlert(u8),
    /// The TLS peer broke the protocol; the refusal has the alert to send.
    Refused(Refusal),
    /// The plain side's connection failed.
    PlainFailed(io::Error),
    /// The key has reached its record limit, and the protocol version has no key update.
    KeyExhausted,
    /// Pending memory could not take received bytes. (Memory is reserved before each receive, so this
    /// is a bug.)
    NoPendingMemory,
    /// No local client needs the warm connection.
    NotNeeded,
    /// An epoll_ctl call failed. Without it the connection would spin, or get no more events.
    NotWatched(io::Error),
}

impl From<backlog::NoPendingMemory> for Fault {
    fn from(_: backlog::NoPendingMemory) -> Fault {
        Fault::NoPendingMemory
    }
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
            Fault::NotNeeded => f.write_str("no longer needed"),
            Fault::NotWatched(e) => write!(f, "socket poll failed: {e}"),
        }
    }
}
