//! Queries an OCSP responder (RFC 6960 appendix A.1) and verifies its response.

use super::http::{self, Request};
use dormouse_engine::{check_ocsp, ocsp_question};
use dormouse_handover::unix_time;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the response (DER) and the end of its validity; or the reason why there is no usable response.
pub(super) fn ask(chain: &[Vec<u8>]) -> Result<(Vec<u8>, u64), String> {
    let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
    let (url, question) = ocsp_question(&chain).ok_or("the certificate names no OCSP responder")?;
    let response = http::exchange(
        &Request {
            method: "POST",
            url: &url,
            content_type: Some("application/ocsp-request"),
            body: &question,
        },
        None,
        TIMEOUT,
    )
    .map_err(|error| format!("{url}: {error}"))?;
    if response.status != 200 {
        return Err(format!("{url}: HTTP status {}", response.status));
    }
    let times = check_ocsp(&response.body, &chain, unix_time())
        .map_err(|problem| format!("{url}: the response {problem}"))?;
    Ok((response.body, times.until_s))
}
