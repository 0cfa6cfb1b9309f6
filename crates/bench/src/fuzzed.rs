//! Parsers of this crate that take strangers' bytes, for `fuzz/` alone: no interface.

use crate::load::http::Response;

/// Reads the response of a server that comes in pieces and then ends: its status.
///
/// # Errors
/// It makes no sense.
pub fn http_response(pieces: &[&[u8]]) -> Result<u16, String> {
    let mut response = Response::new();
    for piece in pieces {
        if let Some(end) = response.take(piece)? {
            return Ok(end.status);
        }
    }
    response.end().map(|end| end.status)
}
