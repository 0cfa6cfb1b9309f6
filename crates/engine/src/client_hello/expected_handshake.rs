//! Whether a client is about to resume a session, seen from its first bytes.
//!
//! A full handshake costs a signature, a resumed one does not. When more clients connect than can be
//! served at once, those with a session go first; so this must cost next to nothing and keep
//! nothing. It decides the order only: rustls judges the message itself, later, and a client whose
//! session is not accepted makes a full handshake.

use crate::reader::Reader;

/// The handshake that a client's first bytes announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpectedHandshake {
    /// A ClientHello which offers a session: a pre-shared key (RFC 8446 §4.2.11), a ticket
    /// (RFC 5077 §3.2), or a session id of TLS 1.2 (RFC 5246 §7.4.1.2).
    Resumption,
    /// A ClientHello without a session, or something else that is whole.
    Full,
    /// The message is not all there.
    Incomplete,
}

const SUPPORTED_VERSIONS: u16 = 43;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const TLS13: [u8; 2] = [3, 4];

impl ExpectedHandshake {
    /// Looks at what a client sent first, as much of it as there is.
    pub fn of(first: &[u8]) -> ExpectedHandshake {
        let mut record = Reader::new(first);
        let Some([content_type, _, _]) = record.array() else {
            return ExpectedHandshake::Incomplete;
        };
        if content_type != 22 {
            return ExpectedHandshake::Full;
        }
        let Some(record_len) = record.u16() else {
            return ExpectedHandshake::Incomplete;
        };
        let Some(message) = record.take(record_len.into()) else {
            return ExpectedHandshake::Incomplete;
        };
        // A message cut into several records is rare and counts as full.
        if offers_session(message).unwrap_or(false) {
            ExpectedHandshake::Resumption
        } else {
            ExpectedHandshake::Full
        }
    }
}

/// `None`: it is no ClientHello, or not whole.
fn offers_session(message: &[u8]) -> Option<bool> {
    let mut hello = Reader::new(message);
    let [1, _, high, low] = hello.array()? else {
        return None;
    };
    let mut hello = Reader::new(hello.take(u16::from_be_bytes([high, low]).into())?);
    hello.take(2 + 32)?;
    let session_id = hello.vector8()?;
    hello.vector16()?;
    hello.vector8()?;
    let mut extensions = Reader::new(hello.vector16().unwrap_or_default());
    let mut speaks_tls13 = false;
    while !extensions.is_empty() {
        let extension = extensions.u16()?;
        let content = extensions.vector16()?;
        match extension {
            PRE_SHARED_KEY => return Some(true),
            SESSION_TICKET if !content.is_empty() => return Some(true),
            SUPPORTED_VERSIONS => {
                let versions = content.get(1..).unwrap_or_default();
                speaks_tls13 |= versions.chunks_exact(2).any(|version| version == TLS13);
            }
            _ => {}
        }
    }
    // Clients of 1.3 fill this field with random bytes, for middleboxes (RFC 8446 §4.1.2).
    Some(!session_id.is_empty() && !speaks_tls13)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
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
