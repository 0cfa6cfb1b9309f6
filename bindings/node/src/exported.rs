//! A connection as bytes: the properties that JavaScript reports, and its state.
//!
//! ```text
//! | version 1 | flags 1 | suite 1 | resumed 1 | problem 1 | ALPN | name | group | count 1, certificates | session |
//! ```
//!
//! The flags are JavaScript's; version 1 has none. Each text and each certificate follows its length, 4 bytes,
//! little-endian. The session, which comes last, has 128 bytes if it is at rest.

use dormouse_embed::Session;
use zeroize::Zeroizing;

use crate::details::Details;
use crate::errors::{self, Result};
use crate::table::Connection;

const VERSION: u8 = 2;
const CHAIN_MAX: usize = 32;

/// Ends the connection here and returns it as bytes.
pub(crate) fn write(connection: &mut Connection, flags: u8) -> Result<Zeroizing<Vec<u8>>> {
    let session = connection.session.export().map_err(errors::session)?;
    let nothing = Details::default();
    let details = connection.details.as_deref().unwrap_or(&nothing);
    let chain = details.peer.iter().take(CHAIN_MAX);
    let texts = [
        details.alpn.as_deref(),
        details.server_name.as_deref().map(str::as_bytes),
        details.group.as_deref().map(str::as_bytes),
    ];
    let texts = texts.map(Option::unwrap_or_default);
    let parts = texts.into_iter().chain(chain.clone().map(Vec::as_slice));
    // Allocated at full size: a growing vector would leave secrets behind.
    let room = 6 + parts.map(|part| 4 + part.len()).sum::<usize>() + session.len();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    bytes.extend([
        VERSION,
        flags,
        connection.suite,
        u8::from(connection.is_resumed),
        connection.problem,
    ]);
    for text in texts {
        put(&mut bytes, text);
    }
    bytes.push(chain.len() as u8);
    for certificate in chain {
        put(&mut bytes, certificate);
    }
    bytes.extend_from_slice(&session);
    Ok(bytes)
}

fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u32).to_le_bytes());
    bytes.extend(part);
}

/// Reads bytes from [`write`], which may be from another version of this package. Returns the flags too.
pub(crate) fn read(bytes: &[u8]) -> Result<(Connection, u8)> {
    let (flags, rest) = match bytes {
        [1, rest @ ..] => (0, rest),
        [VERSION, flags, rest @ ..] => (*flags, rest),
        [] | [VERSION] => return Err(truncated(bytes)),
        [other, ..] => {
            return Err(errors::argument(format!(
                "the exported connection has version {other}; this package reads versions 1 and {VERSION}"
            )));
        }
    };
    let (mut connection, session) = parts(rest).ok_or_else(|| truncated(bytes))?;
    connection.session = Session::import(session)
        .map_err(|error| errors::argument(format!("the exported connection: {error}")))?;
    Ok((connection, flags))
}

/// A connection without its session, and the session's bytes; from the suite on.
fn parts(bytes: &[u8]) -> Option<(Connection, &[u8])> {
    let ([suite, resumed, problem], rest) = bytes.split_first_chunk()?;
    let (alpn, rest) = take(rest)?;
    let (name, rest) = take(rest)?;
    let (group, rest) = take(rest)?;
    let (count, mut rest) = rest.split_first()?;
    let mut peer = Vec::new();
    for _ in 0..*count {
        let (certificate, behind) = take(rest)?;
        peer.push(certificate.to_vec());
        rest = behind;
    }
    let text = |bytes: &[u8]| match bytes {
        [] => Some(None),
        bytes => String::from_utf8(bytes.to_vec()).ok().map(Some),
    };
    let details = Details {
        // Those that the other process trusted are not known here.
        issuers: None,
        server_name: text(name)?,
        alpn: (!alpn.is_empty()).then(|| alpn.to_vec()),
        group: text(group)?,
        peer,
    };
    let mut connection = Connection::new(Session::listen(Default::default()));
    connection.details = details.shared();
    connection.suite = *suite;
    connection.is_resumed = *resumed != 0;
    connection.problem = *problem;
    Some((connection, rest))
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

fn truncated(bytes: &[u8]) -> errors::Error {
    let len = bytes.len();
    errors::argument(format!("{len} bytes are not an exported connection"))
}
