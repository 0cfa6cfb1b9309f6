//! Queries an OCSP responder (RFC 6960 appendix A.1) and verifies its response.

use super::http::{self, Request, Response};
use super::messages::NoResponse;
use dormouse_engine::{OcspProblem, check_ocsp, ocsp_question};
use dormouse_handover::unix_time;
use std::collections::HashSet;
use std::io;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(15);

/// The responders that an errand queries.
#[derive(Default)]
pub(super) struct Responders {
    /// URLs that did not answer in time. They are not queried again, because the errand's other jobs wait meanwhile.
    silent: HashSet<String>,
}

impl Responders {
    /// Returns the response (DER) and the end of its validity; or the reason why there is no usable response.
    pub(super) fn ask(&mut self, chain: &[Vec<u8>]) -> Result<(Vec<u8>, u64), NoResponse> {
        let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        let failed = |why: String| NoResponse::Failed(why);
        let (url, question) = ocsp_question(&chain)
            .ok_or_else(|| failed("the certificate names no OCSP responder".to_owned()))?;
        let response = self.query(&url, || send(&url, &question)).map_err(failed)?;
        if response.status != 200 {
            return Err(failed(format!("{url}: HTTP status {}", response.status)));
        }
        match check_ocsp(&response.body, &chain, unix_time()) {
            Ok(times) => Ok((response.body, times.until_s)),
            Err(problem) => {
                let why = format!("{url}: the response {problem}");
                Err(match problem {
                    OcspProblem::Revoked => NoResponse::Revoked(why),
                    _ => NoResponse::Failed(why),
                })
            }
        }
    }

    /// Calls `send`, unless the responder has been silent before.
    fn query(
        &mut self,
        url: &str,
        send: impl FnOnce() -> io::Result<Response>,
    ) -> Result<Response, String> {
        if self.silent.contains(url) {
            return Err(format!(
                "{url}: not queried, because it has just not answered for another certificate"
            ));
        }
        send().map_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut {
                self.silent.insert(url.to_owned());
            }
            format!("{url}: {error}")
        })
    }
}

fn send(url: &str, question: &[u8]) -> io::Result<Response> {
    let request = Request {
        method: "POST",
        url,
        content_type: Some("application/ocsp-request"),
        body: question,
    };
    http::exchange(&request, None, TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_responder_is_queried_once() {
        let mut responders = Responders::default();
        let mut calls = 0;
        for (url, kind) in [
            ("http://silent/", io::ErrorKind::TimedOut),
            ("http://silent/", io::ErrorKind::TimedOut),
            ("http://down/", io::ErrorKind::ConnectionRefused),
            ("http://down/", io::ErrorKind::ConnectionRefused),
        ] {
            let failing = || {
                calls += 1;
                Err(kind.into())
            };
            responders.query(url, failing).expect_err("no response");
        }
        assert_eq!(calls, 3);
    }
}
