//! Predicts from a client's first bytes whether it will resume a session.
//!
//! A full handshake costs a signature, a resumed one does not. When more clients connect than can be served at
//! once, those with a session go first, so this check must be very cheap and keep nothing. It only affects the
//! order: rustls judges the message later, and a client whose session is not accepted makes a full handshake.

use dormouse_record::Version;

use crate::messages::Reader;
use crate::messages::content_type::HANDSHAKE;
use crate::messages::extension::{PRE_SHARED_KEY, SESSION_TICKET, SUPPORTED_VERSIONS};
use crate::messages::handshake_type::CLIENT_HELLO;

/// The handshake that a client's first bytes indicate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpectedHandshake {
    /// A ClientHello that offers a session: a pre-shared key (RFC 8446 §4.2.11), a ticket (RFC 5077 §3.2), or a
    /// TLS 1.2 session id (RFC 5246 §7.4.1.2).
    Resumption,
    /// A ClientHello without a session, or any other complete message.
    Full,
    /// The message is incomplete.
    Incomplete,
}

const TLS13: [u8; 2] = Version::Tls13.number().to_be_bytes();

impl ExpectedHandshake {
    /// Classifies the bytes that a client has sent so far.
    pub fn of(first: &[u8]) -> ExpectedHandshake {
        let mut record = Reader::new(first);
        let Some([content_type, _, _]) = record.array() else {
            return ExpectedHandshake::Incomplete;
        };
        if content_type != HANDSHAKE {
            return ExpectedHandshake::Full;
        }
        let Some(record_len) = record.u16() else {
            return ExpectedHandshake::Incomplete;
        };
        let Some(message) = record.take(record_len.into()) else {
            return ExpectedHandshake::Incomplete;
        };
        // A message split over several records is rare and counts as full.
        if offers_session(message).unwrap_or(false) {
            ExpectedHandshake::Resumption
        } else {
            ExpectedHandshake::Full
        }
    }
}

/// Returns `None` if the message is no ClientHello, or incomplete.
fn offers_session(message: &[u8]) -> Option<bool> {
    let mut hello = Reader::new(message);
    let [CLIENT_HELLO, _, high, low] = hello.array()? else {
        return None;
    };
    let mut hello = Reader::new(hello.take(u16::from_be_bytes([high, low]).into())?);
    hello.take(2 + 32)?;
    let session_id = hello.vector8()?;
    hello.vector16()?;
    hello.vector8()?;
    let mut extensions = Reader::new(hello.vector16().unwrap_or_default());
    let mut supports_tls13 = false;
    while !extensions.is_empty() {
        let extension = extensions.u16()?;
        let content = extensions.vector16()?;
        match extension {
            PRE_SHARED_KEY => return Some(true),
            SESSION_TICKET if !content.is_empty() => return Some(true),
            SUPPORTED_VERSIONS => {
                let versions = content.get(1..).unwrap_or_default();
                supports_tls13 |= versions.chunks_exact(2).any(|version| version == TLS13);
            }
            _ => {}
        }
    }
    // TLS 1.3 clients fill this field with random bytes for middleboxes (RFC 8446 §4.1.2).
    Some(!session_id.is_empty() && !supports_tls13)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            ExpectedHandshake::of(&bytes);
            let len = (bytes.len() + 4) as u16;
            let mut hello = vec![22, 3, 1];
            hello.extend(len.to_be_bytes());
            hello.extend([1, 0]);
            hello.extend((bytes.len() as u16).to_be_bytes());
            hello.extend(&bytes);
            prop_assert_ne!(ExpectedHandshake::of(&hello), ExpectedHandshake::Incomplete);
        }
    }
}
