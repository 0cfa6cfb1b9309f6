//! The ways in which the peer's direction of a connection ends.

use std::fmt;

use dormouse_record::Refusal;

use crate::alert_name::alert_name;
use crate::failure::HandshakeFailure;

/// Why the peer sends nothing more.
///
/// Only [`End::Closed`] means that everything the peer sent has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The peer sent close_notify (RFC 8446 §6.1). The other direction is still open.
    Closed,
    /// The transport ended without close_notify: bytes may be missing (RFC 8446 §6.1).
    Truncated,
    /// The peer sent this fatal alert; [`alert_name`] returns its name. Both directions are closed.
    Alert(u8),
    /// The peer violated the protocol. The alert for the peer was sealed.
    Refused(Refusal),
    /// The handshake failed, on either side. The alert, if any, is in the output.
    Handshake(Box<HandshakeFailure>),
}

impl End {
    /// Whether everything the peer sent has arrived.
    pub fn is_clean(&self) -> bool {
        matches!(self, End::Closed)
    }

    /// Returns the alert, received or sent, that ended the connection or the handshake.
    pub fn alert(&self) -> Option<u8> {
        match self {
            End::Alert(alert) => Some(*alert),
            End::Handshake(failure) => failure.alert(),
            _ => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed => f.write_str("the peer closed the connection"),
            End::Truncated => f.write_str("the connection ended without close_notify"),
            End::Alert(number) => {
                write!(f, "the peer sent the fatal alert {}", alert_name(*number))
            }
            End::Refused(refusal) => write!(f, "record refused: {refusal}"),
            End::Handshake(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for End {}
