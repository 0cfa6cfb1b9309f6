//! A stream as bytes, so that it continues in another process or after a restart.
//!
//! ```text
//! | version 1 | suite 1 | resumed 1 | parts | session |
//! parts: ALPN, server name, unsent, unread plaintext, start of a record; the number of certificates; each certificate
//! ```
//!
//! A part has its length before it, and the number is one: 4 bytes, little-endian. The session, which comes last, has 128
//! bytes if it is at rest.

use std::io::{self, ErrorKind};

use dormouse_embed::{EXPORT_MAX, ImportError, NamedSuite, Session, Version};
use zeroize::Zeroizing;

use crate::link::Link;
use crate::negotiated::{Agreed, Negotiated};
use crate::stream::TlsStream;
use crate::tls::{Tls, session_error};

const VERSION: u8 = 1;

impl<IO> TlsStream<IO> {
    /// Ends this stream and returns the bytes with which it continues elsewhere, over the same transport
    /// ([`TlsStream::into_inner`]). They are secret: some 150 bytes, the peer's certificates, and what was not read or
    /// sent.
    ///
    /// Import them exactly once. If two streams continue from them, both use the same key with the same sequence numbers,
    /// which reveals plaintext to an attacker. A stream can be exported only once. Keying material cannot be exported
    /// afterwards, and tickets that have not arrived yet are ignored.
    ///
    /// # Errors
    /// The connection has ended by an error, or was exported.
    pub fn export(&mut self) -> io::Result<Zeroizing<Vec<u8>>> {
        let tls = &mut self.link.tls;
        if let Some(Err(end)) = tls.end() {
            return Err(end);
        }
        if tls.flight().is_some_and(|flight| flight.is_broken) {
            tls.check_writable()?;
        }
        let session = tls.session_mut().export().map_err(session_error)?;
        let flight = std::mem::take(tls.flight_mut());
        tls.rest();
        let agreed = &self.negotiated.agreed;
        let alpn = agreed.alpn.as_deref().unwrap_or_default();
        let server_name = agreed.server_name.as_deref().unwrap_or_default();
        let certificates = agreed.peer_certificates.iter().map(Vec::as_slice);
        let parts = [
            alpn,
            server_name.as_bytes(),
            flight.unsent.bytes(),
            flight.plaintext.bytes(),
            &flight.ciphertext,
        ];
        let lens = parts.iter().copied().chain(certificates.clone());
        let room = 7 + lens.map(|part| 4 + part.len()).sum::<usize>() + session.len();
        // Allocated at full size: a growing vector would leave secrets behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend([
            VERSION,
            NamedSuite::number(agreed.suite),
            u8::from(agreed.is_resumed),
        ]);
        for part in parts {
            write(part, &mut bytes);
        }
        bytes.extend((certificates.len() as u32).to_le_bytes());
        for certificate in certificates {
            write(certificate, &mut bytes);
        }
        bytes.extend_from_slice(&session);
        Ok(bytes)
    }

    /// Continues an exported stream over its transport. Wipe the bytes afterwards, and never use them again.
    ///
    /// # Errors
    /// The bytes are not an exported stream, or one of another version of this crate.
    pub fn import(io: IO, exported: &[u8]) -> io::Result<TlsStream<IO>> {
        let wrong = || invalid(ImportError::Length(exported.len()));
        match exported.first() {
            Some(&VERSION) if exported.len() <= EXPORT_MAX => {}
            Some(other) => {
                return Err(invalid(format!(
                    "the exported stream has version {other}; this crate reads version {VERSION}"
                )));
            }
            None => return Err(wrong()),
        }
        let read = read(exported).ok_or_else(wrong)?;
        let session = Session::import(read.session).map_err(invalid)?;
        let mut agreed = read.agreed;
        agreed.is_tls13 = session.state().version() == Version::Tls13;
        let mut tls = Box::new(Tls::new(session));
        let flight = tls.flight_mut();
        flight.unsent.push(read.unsent);
        flight.plaintext.push(read.plaintext);
        flight.ciphertext = read.ciphertext.to_vec();
        tls.rest();
        Ok(TlsStream {
            link: Link { io, tls },
            negotiated: Negotiated::shared(agreed),
        })
    }
}

struct Read<'a> {
    agreed: Agreed,
    unsent: &'a [u8],
    plaintext: &'a [u8],
    ciphertext: &'a [u8],
    session: &'a [u8],
}

fn read(bytes: &[u8]) -> Option<Read<'_>> {
    let ([_, suite, is_resumed], mut rest) = bytes.split_first_chunk()?;
    let alpn = part(&mut rest)?;
    let server_name = part(&mut rest)?;
    let server_name = std::str::from_utf8(server_name).ok()?;
    let (unsent, plaintext, ciphertext) = (part(&mut rest)?, part(&mut rest)?, part(&mut rest)?);
    let (count, after) = rest.split_first_chunk()?;
    rest = after;
    let mut peer_certificates = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        peer_certificates.push(part(&mut rest)?.to_vec());
    }
    Some(Read {
        agreed: Agreed {
            is_tls13: true,
            suite: NamedSuite::numbered(*suite)?.iana,
            is_resumed: *is_resumed != 0,
            alpn: (!alpn.is_empty()).then(|| alpn.to_vec()),
            server_name: (!server_name.is_empty()).then(|| server_name.to_owned()),
            peer_certificates,
        },
        unsent,
        plaintext,
        ciphertext,
        session: rest,
    })
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let (part, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *rest = after;
    Some(part)
}

fn write(part: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend((part.len() as u32).to_le_bytes());
    bytes.extend_from_slice(part);
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}
