//! Parsers of this crate that take strangers' bytes, for `fuzz/` alone: no interface.

use crate::control::http::{self, Parsed};
use crate::errand;
use crate::fleet;
use crate::scout;

/// Reads a request to the admin address: its method, path and query, the response that refuses it, or
/// nothing if more has to come.
#[allow(clippy::type_complexity)] // said once
pub fn http_request(bytes: &[u8]) -> Option<Result<(String, String, usize), Vec<u8>>> {
    match http::parse(bytes, 4 << 10) {
        Parsed::Incomplete => None,
        Parsed::Refused(response) => Some(Err(response.encode())),
        Parsed::Request(request) => Some(Ok((request.method, request.path, request.query.len()))),
    }
}

/// Reads the response of an authority: status and body, or nothing if more has to come.
///
/// # Errors
/// It makes no sense.
pub fn http_response(
    bytes: &[u8],
    is_head: bool,
    ended: bool,
) -> std::io::Result<Option<(u16, Vec<u8>)>> {
    let response = errand::http::read(bytes, is_head, ended)?;
    Ok(response.map(|response| (response.status, response.body)))
}

/// Reads the reply of a store; the error that it holds or that it is, in words.
///
/// # Errors
/// As it says.
pub fn store_reply(mut bytes: &[u8]) -> Result<(), String> {
    fleet::resp::understand(&mut bytes)
}

/// Reads an answer to a question about `example.com` with the id 0: whether it is one.
pub fn dns_answer(bytes: &[u8]) -> bool {
    scout::dns::understands(bytes)
}
