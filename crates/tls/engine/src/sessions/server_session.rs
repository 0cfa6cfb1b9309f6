//! Parses rustls' encoding of a session in tickets and caches.
//!
//! rustls uses everything that it finds in a session, including the client's certificates, but checks only
//! server name and suite. This crate makes the other checks before a session is resumed, so it must parse the
//! encoding. The encoding is rustls' own (`ServerSessionValue`); a test compares this parser with the version
//! in use, and a session that does not parse exactly is not resumed.

use crate::messages::Reader;

/// The fields of a session; all of them point into its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session<'a> {
    /// The server name that the client requested.
    pub(crate) server_name: Option<&'a [u8]>,
    /// The protocol version's code point.
    pub(crate) version: u16,
    /// The cipher suite's code point.
    pub(crate) suite: u16,
    /// TLS 1.2: the master secret. TLS 1.3: the pre-shared key.
    pub(crate) secret: &'a [u8],
    /// Whether the master secret is an extended one (RFC 7627).
    pub(crate) extended_master_secret: bool,
    /// The client's certificates, its own first; empty if it sent none.
    pub(crate) client_chain: Vec<&'a [u8]>,
    /// The application protocol.
    pub(crate) alpn: Option<&'a [u8]>,
    /// When it was created, in seconds of Unix time.
    pub(crate) created_s: u64,
    /// The value that TLS 1.3 clients add to the ticket age (RFC 8446 §4.2.11.1).
    pub(crate) age_add: u32,
}

impl<'a> Session<'a> {
    /// Parses all of `bytes`; `None` if they are anything else.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Session<'a>> {
        let mut reader = Reader::new(bytes);
        let server_name = optional(&mut reader)?;
        let version = reader.u16()?;
        let suite = reader.u16()?;
        let secret = reader.vector8()?;
        let extended_master_secret = flag(&mut reader)?;
        let client_chain = if flag(&mut reader)? {
            chain(&mut reader)?
        } else {
            Vec::new()
        };
        let alpn = optional(&mut reader)?;
        // Application data, which we never set.
        let 0 = reader.u16()? else { return None };
        let created_s = u64::from_be_bytes(reader.array()?);
        let age_add = u32::from_be_bytes(reader.array()?);
        reader.is_empty().then_some(Session {
            server_name,
            version,
            suite,
            secret,
            extended_master_secret,
            client_chain,
            alpn,
            created_s,
            age_add,
        })
    }
}

fn flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.array()? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn optional<'a>(reader: &mut Reader<'a>) -> Option<Option<&'a [u8]>> {
    if flag(reader)? {
        reader.vector8().map(Some)
    } else {
        Some(None)
    }
}

fn chain<'a>(reader: &mut Reader<'a>) -> Option<Vec<&'a [u8]>> {
    let mut list = Reader::new(reader.vector24()?);
    let mut chain = Vec::new();
    while !list.is_empty() {
        chain.push(list.vector24()?);
    }
    Some(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a session as in rustls' source. The tests of this crate in `resumption` use real sessions.
    fn encoded() -> Vec<u8> {
        let mut bytes = vec![1, 6];
        bytes.extend_from_slice(b"a.test");
        bytes.extend_from_slice(&[3, 4, 0x13, 1]);
        bytes.push(32);
        bytes.extend_from_slice(&[7; 32]);
        bytes.extend_from_slice(&[0, 1]);
        bytes.extend_from_slice(&[0, 0, 10, 0, 0, 2, 0x30, 0, 0, 0, 2, 0x30, 1]);
        bytes.extend_from_slice(&[1, 2, b'h', b'2', 0, 0]);
        bytes.extend_from_slice(&1_800_000_000_u64.to_be_bytes());
        bytes.extend_from_slice(&9_u32.to_be_bytes());
        bytes
    }

    #[test]
    fn a_session_is_parsed() {
        let bytes = encoded();
        let session = Session::read(&bytes).unwrap();
        assert_eq!(session.server_name, Some(&b"a.test"[..]));
        assert_eq!((session.version, session.suite), (0x0304, 0x1301));
        assert_eq!(session.secret, [7; 32]);
        assert_eq!(session.client_chain, [[0x30, 0], [0x30, 1]]);
        assert_eq!(session.alpn, Some(&b"h2"[..]));
        assert_eq!((session.created_s, session.age_add), (1_800_000_000, 9));
    }

    #[test]
    fn only_exact_encodings_are_sessions() {
        let bytes = encoded();
        for len in 0..bytes.len() {
            assert_eq!(Session::read(&bytes[..len]), None, "cut at {len}");
        }
        assert_eq!(Session::read(&[&bytes[..], &[0]].concat()), None);
    }
}
