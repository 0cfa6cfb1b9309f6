//! Parsers of this crate that read untrusted bytes, for `fuzz/` only: not an interface.

use crate::load::http::Response;

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
