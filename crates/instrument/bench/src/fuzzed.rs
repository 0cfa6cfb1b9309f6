//! Parsers of this crate that read untrusted bytes, for `fuzz/` only: not an interface.

use crate::load::http::Response;
use crate::load::{Dialogue, Starttls};

/// Reads a response that arrives in pieces and then ends. Returns its status.
///
/// # Errors
/// It is not a valid response.
pub fn http_response(pieces: &[&[u8]]) -> Result<u16, String> {
    let mut response = Response::new();
    for piece in pieces {
        if let Some(end) = response.take(piece)? {
            return Ok(end.status);
        }
    }
    response.end().map(|end| end.status)
}

/// Passes what a server sends before TLS to the dialogue of a protocol. Returns whether the handshake would begin.
pub fn starttls(protocol: u8, pieces: &[&[u8]]) -> bool {
    let protocol = Starttls::ALL
        .into_iter()
        .cycle()
        .nth(protocol.into())
        .unwrap_or(Starttls::Smtp);
    let mut dialogue = Dialogue::new(protocol, "example.org");
    pieces.iter().all(|piece| {
        dialogue.output_sent(dialogue.output().len());
        dialogue.handle_input(piece).is_ok()
    }) && {
        dialogue.output_sent(dialogue.output().len());
        dialogue.is_done()
    }
}
