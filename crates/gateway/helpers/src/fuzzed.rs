//! Parsers of untrusted bytes in this crate, exposed for `fuzz/` only; not a public API.

pub use crate::errand::http::Stream;

use crate::control::http::{self, Parsed};
use crate::errand;
use crate::fleet;
use crate::scout;
use crate::spiffe;

/// Parses a request to the admin address. Returns its method, path and number of query parameters, or
/// the response that rejects it, or `None` if the request is incomplete.
#[allow(clippy::type_complexity)] // used once
pub fn http_request(bytes: &[u8]) -> Option<Result<(String, String, usize), Vec<u8>>> {
    match http::parse(bytes, 4 << 10) {
        Parsed::Incomplete => None,
        Parsed::Refused(response) => Some(Err(response.encode())),
        Parsed::Request(request) => Some(Ok((request.method, request.path, request.query.len()))),
    }
}

/// Parses the response of an OCSP responder or ACME server. Returns status and body, or `None` if the
/// response is incomplete.
///
/// # Errors
/// The bytes are not a valid response.
pub fn http_response(
    bytes: &[u8],
    is_head: bool,
    stream: Stream,
) -> std::io::Result<Option<(u16, Vec<u8>)>> {
    let response = errand::http::read(bytes, is_head, stream)?;
    Ok(response.map(|response| (response.status, response.body)))
}

/// Parses the reply of a ticket store.
///
/// # Errors
/// The reply is an error, or not RESP at all; in words.
pub fn store_reply(mut bytes: &[u8]) -> Result<(), String> {
    fleet::resp::understand(&mut bytes)
}

/// Whether bytes are a response of a DNS server from which the zone of `_acme-challenge.example.com` can be found.
pub fn dns_zone(bytes: &[u8]) -> bool {
    errand::dns_update::understands(bytes)
}

/// Reads messages of a SPIFFE agent from a stream, cut at `cut`. Returns the number of reports for main from those that can
/// be used, or why the stream cannot be understood.
///
/// # Errors
/// A message is compressed or too long.
pub fn spiffe_stream(bytes: &[u8], cut: usize) -> Result<usize, String> {
    let (mut frames, mut count) = (spiffe::Frames::default(), 0);
    let mut on_message = |message: &[u8]| {
        count += spiffe::reports(message).map_or(0, |reports| reports.len());
        true
    };
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    frames.take(first, &mut on_message)?;
    frames.take(second, &mut on_message)?;
    Ok(count)
}

/// Verifies a response that claims to be signed with TSIG, and reads a key file. Returns why the key is none.
pub fn tsig(bytes: &[u8]) -> Option<String> {
    errand::tsig::judge_without_key(bytes);
    errand::tsig::TsigKey::parse(&String::from_utf8_lossy(bytes)).err()
}

/// Whether bytes are a valid answer to a question about `example.com` with the id 0.
pub fn dns_answer(bytes: &[u8]) -> bool {
    scout::dns::understands(bytes)
}
