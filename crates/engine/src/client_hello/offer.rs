//! A look at a ClientHello before anything is done for it: does the client come back?
//!
//! A full handshake costs a signature, a resumed one does not. When more clients want in than can
//! be served at once, those who bring a ticket go first; so the question must cost next to nothing
//! and keep nothing. It is a question of order only: rustls judges the message itself, later, and
//! who claims a session that is none gets a full handshake.

use crate::reader::Reader;

/// What the first bytes of a client say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hello {
    /// A ClientHello which offers a session: a pre-shared key (RFC 8446 §4.2.11), a ticket
    /// (RFC 5077 §3.2), or a session id of TLS 1.2 (RFC 5246 §7.4.1.2).
    Resumption,
    /// A ClientHello without a session, or something else that is whole: what it costs is not
    /// known to be little.
    Full,
    /// The message is not all there.
    Incomplete,
}

const SUPPORTED_VERSIONS: u16 = 43;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const TLS13: [u8; 2] = [3, 4];

impl Hello {
    /// Looks at what a client sent first, as much of it as there is.
    pub fn of(first: &[u8]) -> Hello {
        let mut record = Reader::new(first);
        let Some([content_type, _, _]) = record.array() else {
            return Hello::Incomplete;
        };
        if content_type != 22 {
            return Hello::Full;
        }
        let Some(record_len) = record.u16() else {
            return Hello::Incomplete;
        };
        let Some(message) = record.take(record_len.into()) else {
            return Hello::Incomplete;
        };
        // A message cut into several records is rare and counts as full.
        if offers_session(message).unwrap_or(false) {
            Hello::Resumption
        } else {
            Hello::Full
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
            Hello::of(&bytes);
            let len = (bytes.len() + 4) as u16;
            let mut hello = vec![22, 3, 1];
            hello.extend(len.to_be_bytes());
            hello.extend([1, 0]);
            hello.extend((bytes.len() as u16).to_be_bytes());
            hello.extend(&bytes);
            prop_assert_ne!(Hello::of(&hello), Hello::Incomplete);
        }
    }
}
