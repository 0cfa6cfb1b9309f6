//! Extensions that a server must not send, in messages where rustls does not check for them.

use crate::messages::Reader;
use crate::messages::extension::PSK_KEY_EXCHANGE_MODES;
use crate::messages::handshake_type::{ENCRYPTED_EXTENSIONS, SERVER_HELLO};

/// Whether a ServerHello or EncryptedExtensions contains psk_key_exchange_modes. "A server MUST NOT send" it
/// (RFC 8446 §4.2.9), and an extension in the wrong message is refused (§4.2).
///
/// `content` is a record of the server. A message split over several records is not checked.
pub(super) fn has_psk_modes(content: &[u8]) -> bool {
    let mut reader = Reader::new(content);
    let message = reader.u8().zip(reader.vector24());
    let extensions = match message {
        Some((SERVER_HELLO, body)) => server_hello_extensions(body),
        Some((ENCRYPTED_EXTENSIONS, body)) => Reader::new(body).vector16(),
        _ => None,
    };
    extensions.is_some_and(|extensions| has_extension(extensions, PSK_KEY_EXCHANGE_MODES))
}

fn server_hello_extensions(body: &[u8]) -> Option<&[u8]> {
    let mut hello = Reader::new(body);
    // Version and random, then suite and compression.
    hello.take(2 + 32)?;
    hello.vector8()?;
    hello.take(2 + 1)?;
    hello.vector16()
}

fn has_extension(extensions: &[u8], wanted: u16) -> bool {
    let mut rest = Reader::new(extensions);
    while let Some((kind, _)) = rest.u16().zip(rest.vector16()) {
        if kind == wanted {
            return true;
        }
    }
    false
}
