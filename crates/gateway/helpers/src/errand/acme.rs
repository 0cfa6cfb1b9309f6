//! A client of ACME servers (RFC 8555): obtains certificates by tls-alpn-01 (RFC 8737) or http-01, and
//! asks when to renew them (RFC 9773).
//!
//! A library implements the protocol. This module sends its requests over our own TLS, and has the account;
//! `order` runs an order. Keys are generated here and passed to main; this process exits soon and keeps none.
//!
//! The library is asynchronous, but nothing in it ever waits: the HTTP client completes each request
//! before it returns the future.

mod order;

use super::http::{self, Request, Response};
use super::messages::{AcmeServer, ErrandReport, RenewalQuery, RenewalWindow};
use crate::helper;
use crate::transport::Connector;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use dormouse_engine::CertificateDer;
use dormouse_reactor::Fd;
use http_body_util::BodyExt as _;
use instant_acme::{
    Account, AccountBuilder, BodyWrapper, BytesResponse, CertificateIdentifier, Error,
    ExternalAccountKey, HttpClient, NewAccount, Problem,
};
use std::future::{Future, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// Time for one request and its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum characters of a server's error message.
const WORDS_MAX: usize = 1000;

/// A client of ACME servers.
pub(super) struct AcmeClient {
    connector: Arc<Connector>,
    channel: Fd,
    /// The account used last, and its directory.
    account: Option<(String, Account)>,
    answered: Arc<LastAnswer>,
}

/// What the library does not pass on of the server's last response.
#[derive(Default)]
struct LastAnswer {
    status: AtomicU16,
    /// Retry-After. 0: there was none.
    again_s: AtomicU64,
}

impl LastAnswer {
    fn note(&self, response: &Response) {
        let is_it = |(name, _): &&(String, Vec<u8>)| name.eq_ignore_ascii_case("retry-after");
        let value = response.headers.iter().find(is_it);
        let value = value.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let again_s = value.and_then(|text| pause_s(text.trim(), SystemTime::now()));
        self.again_s.store(again_s.unwrap_or(0), Ordering::Relaxed);
        self.status.store(response.status, Ordering::Relaxed);
    }

    /// The status; 0: the server did not answer.
    fn status(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }

    /// Time after which the server is to be asked again.
    fn again(&self) -> Option<Duration> {
        let again_s = self.again_s.load(Ordering::Relaxed);
        (again_s > 0).then(|| Duration::from_secs(again_s))
    }
}

/// The seconds in Retry-After, which are a number, or those until a date (RFC 9110 §10.2.3).
fn pause_s(value: &str, now: SystemTime) -> Option<u64> {
    value.parse().ok().or_else(|| {
        let until = httpdate::parse_http_date(value).ok()?;
        Some(until.duration_since(now).ok()?.as_secs())
    })
}

impl AcmeClient {
    /// A client without an account.
    pub(super) fn new(connector: Connector, channel: Fd) -> AcmeClient {
        AcmeClient {
            connector: Arc::new(connector),
            channel,
            account: None,
            answered: Arc::default(),
        }
    }

    /// Asks when the server wants a certificate renewed. `None`: the server does not say.
    pub(super) fn ask_renewal(
        &mut self,
        query: &RenewalQuery,
    ) -> Result<Option<RenewalWindow>, String> {
        match at_once(self.renewal_window(query)) {
            Ok(window) => Ok(Some(window)),
            Err(Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(in_words(&error)),
        }
    }

    async fn renewal_window(&mut self, query: &RenewalQuery) -> Result<RenewalWindow, Error> {
        if query.server.account.is_none() {
            return Err(Error::Unsupported("there is no account yet"));
        }
        let account = self.account(&query.server).await?;
        let certificate = CertificateDer::from(query.certificate.as_slice());
        let Ok(id) = CertificateIdentifier::try_from(&certificate) else {
            return Err(Error::Unsupported("the certificate names no issuer's key"));
        };
        let (info, again) = account.renewal_info(&id).await?;
        in_order(RenewalWindow {
            from_s: info.suggested_window.start.unix_timestamp(),
            until_s: info.suggested_window.end.unix_timestamp(),
            ask_again_s: again.as_secs(),
        })
    }

    /// Returns the account that main knows, or creates one.
    async fn account(&mut self, server: &AcmeServer) -> Result<Account, Error> {
        if let Some((directory, account)) = &self.account
            && *directory == server.directory
        {
            return Ok(account.clone());
        }
        let account = match &server.account {
            Some(credentials) => {
                let text = Zeroizing::new(serde_json::to_vec(credentials)?);
                let credentials = serde_json::from_slice(&text)?;
                self.builder().from_credentials(credentials).await?
            }
            None => self.create(server).await?,
        };
        self.account = Some((server.directory.clone(), account.clone()));
        Ok(account)
    }

    async fn create(&self, server: &AcmeServer) -> Result<Account, Error> {
        let contact = server.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let binding = server.binding.as_ref().map(|binding| {
            let key = BASE64_URL_SAFE_NO_PAD.decode(binding.key.trim().trim_end_matches('='));
            let key = Zeroizing::new(key.map_err(other)?);
            Ok::<_, Error>(ExternalAccountKey::new(binding.id.clone(), &key))
        });
        let made = self
            .builder()
            .create(
                &new,
                server.directory.clone(),
                binding.transpose()?.as_ref(),
            )
            .await;
        let (account, credentials) = made?;
        let text = Zeroizing::new(serde_json::to_vec(&credentials)?);
        helper::report(
            self.channel,
            &ErrandReport::Account(serde_json::from_slice(&text)?),
        )
        .map_err(other)?;
        Ok(account)
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(Http {
            connector: Arc::clone(&self.connector),
            answered: Arc::clone(&self.answered),
        }))
    }
}

/// Refuses a window that ends before it begins: the client must treat it as if there were no answer (RFC 9773 §4.2).
fn in_order(window: RenewalWindow) -> Result<RenewalWindow, Error> {
    match window.from_s < window.until_s {
        true => Ok(window),
        false => Err(Error::Str("the renewal window ends before it begins")),
    }
}

/// Whether the error is this ACME problem (RFC 8555 §6.7).
fn is(error: &Error, problem: &str) -> bool {
    match error {
        Error::Api(Problem { r#type, .. }) => r#type
            .as_deref()
            .and_then(|kind| kind.strip_prefix("urn:ietf:params:acme:error:"))
            .is_some_and(|kind| kind == problem),
        _ => false,
    }
}

fn in_words(error: &Error) -> String {
    let words = match error {
        Error::Api(problem) => {
            let kind = problem.r#type.as_deref().unwrap_or_default();
            let kind = kind.rsplit(':').next().unwrap_or_default();
            let mut words = format!("the server answered {kind}");
            if let Some(detail) = &problem.detail {
                words = format!("{words}: {detail}");
            }
            for one in &problem.subproblems {
                words = format!("{words}; {one}");
            }
            words
        }
        Error::Str(why) => format!("the server's answer is not valid: {why}"),
        Error::Unsupported(what) => format!("the server does not support {what}"),
        Error::Json(error) => format!("the server's answer is not valid: {error}"),
        error => error.to_string(),
    };
    dormouse_printable::line_up_to(&words, WORDS_MAX).to_string()
}

fn failure(why: &str) -> Error {
    other(io::Error::other(why.to_owned()))
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}

/// HTTP client of the library. Each request has its own connection, and is complete when its future is
/// returned.
struct Http {
    connector: Arc<Connector>,
    answered: Arc<LastAnswer>,
}

impl HttpClient for Http {
    fn request(
        &self,
        request: ::http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(ready(self.exchange(request)))
    }
}

impl Http {
    fn exchange(
        &self,
        request: ::http::Request<BodyWrapper<Bytes>>,
    ) -> Result<BytesResponse, Error> {
        let (parts, body) = request.into_parts();
        let body = at_once(async { body.collect().await.map_err(other) })?.to_bytes();
        let kind = parts.headers.get(::http::header::CONTENT_TYPE);
        let url = parts.uri.to_string();
        let request = Request {
            method: parts.method.as_str(),
            url: &url,
            content_type: kind.and_then(|kind| kind.to_str().ok()),
            body: &body,
        };
        self.answered.status.store(0, Ordering::Relaxed);
        let response = http::exchange(&request, Some(&self.connector), REQUEST_TIMEOUT)
            .map_err(|error| failure(&format!("{url}: {error}")))?;
        self.answered.note(&response);
        if let Some(error) = refusal(parts.method.as_str(), &url, &response) {
            return Err(error);
        }
        let mut built = ::http::Response::builder().status(response.status);
        for (name, value) in &response.headers {
            built = match name.eq_ignore_ascii_case("location") {
                true => built.header(name, absolute(&url, value)),
                false => built.header(name, value.as_slice()),
            };
        }
        let (parts, ()) = built.body(())?.into_parts();
        Ok(BytesResponse {
            parts,
            body: Box::new(Bytes::from(response.body)),
        })
    }
}

/// The place in a response's `Location`, as a URL: it may be relative to that of the request (RFC 9110 §10.2.2).
fn absolute(url: &str, location: &[u8]) -> Vec<u8> {
    let origin = || {
        let (scheme, rest) = url.split_once("://")?;
        Some((scheme, rest.split('/').next()?))
    };
    match (location, origin()) {
        ([b'/', b'/', ..], Some((scheme, _))) => [scheme.as_bytes(), b":", location].concat(),
        ([b'/', ..], Some((scheme, authority))) => {
            [scheme.as_bytes(), b"://", authority.as_bytes(), location].concat()
        }
        _ => location.to_vec(),
    }
}

/// The error in a response that the library would misunderstand: it follows no redirects, looks for errors only in
/// responses to POST, and expects all of them to be problem documents (RFC 8555 §6.7). A proxy in front of the server
/// sends others.
fn refusal(method: &str, url: &str, response: &Response) -> Option<Error> {
    if response.status / 100 == 2 {
        return None;
    }
    match serde_json::from_slice::<Problem>(&response.body) {
        Ok(_) if method == "POST" => None,
        Ok(problem) => Some(Error::Api(problem)),
        Err(_) => Some(failure(&format!("{url}: HTTP status {}", response.status))),
    }
}

/// The result of a future that never waits.
fn at_once<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(failure("a future waits that must complete at once")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_has_its_pause() {
        let answer = LastAnswer::default();
        for (value, pause) in [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("0", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
        ] {
            answer.note(&Response {
                status: 503,
                headers: vec![("Retry-After".to_owned(), value.as_bytes().to_vec())],
                body: Vec::new(),
            });
            assert_eq!(answer.again(), pause.map(Duration::from_secs), "{value}");
        }
        answer.note(&Response {
            status: 200,
            headers: Vec::new(),
            body: Vec::new(),
        });
        assert_eq!((answer.status(), answer.again()), (200, None));
    }

    #[test]
    fn a_pause_may_end_at_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, pause) in [
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:51:37 GMT", Some(120)),
            ("Sun, 06 Nov 1994 08:49:36 GMT", None),
            ("Sun, 36 Nov 1994 08:49:37 GMT", None),
        ] {
            assert_eq!(pause_s(value, now), pause, "{value}");
        }
    }

    #[test]
    fn a_relative_place_is_at_the_server_of_the_request() {
        for (location, expected) in [
            ("/order/1", "https://ca.example:9000/order/1"),
            ("//other.example/1", "https://other.example/1"),
            ("https://other.example/1", "https://other.example/1"),
        ] {
            let found = absolute("https://ca.example:9000/acme/new", location.as_bytes());
            assert_eq!(found, expected.as_bytes());
        }
    }

    #[test]
    fn an_acme_problem_is_described_in_words() {
        let problem =
            r#"{"type":"urn:ietf:params:acme:error:malformed","detail":"no","status":400}"#;
        let error = Error::Api(serde_json::from_str(problem).expect("a problem"));
        assert_eq!(in_words(&error), "the server answered malformed: no");
        assert!(is(&error, "malformed") && !is(&error, "formed"));
    }

    #[test]
    fn an_error_of_a_proxy_is_named_by_its_status() {
        let problem = r#"{"type":"urn:ietf:params:acme:error:badNonce","detail":"no"}"#;
        let by_status = |status: u16| format!("https://ca.example/x: HTTP status {status}");
        let (moved, busy) = (by_status(301), by_status(503));
        for (method, status, body, expected) in [
            ("GET", 200, "{}", None),
            ("POST", 400, problem, None),
            (
                "GET",
                404,
                problem,
                Some("the server answered badNonce: no"),
            ),
            ("POST", 503, "<html>", Some(busy.as_str())),
            ("HEAD", 503, "", Some(&busy)),
            ("GET", 301, "<html>", Some(&moved)),
        ] {
            let response = Response {
                status,
                headers: Vec::new(),
                body: body.as_bytes().to_vec(),
            };
            let error = refusal(method, "https://ca.example/x", &response);
            let words = error.as_ref().map(in_words);
            assert_eq!(words.as_deref(), expected, "{method} {status}");
        }
    }

    #[test]
    fn a_reversed_renewal_window_counts_as_no_answer() {
        let window = |from_s, until_s| RenewalWindow {
            from_s,
            until_s,
            ask_again_s: 600,
        };
        assert!(in_order(window(1, 2)).is_ok());
        for (from_s, until_s) in [(2, 1), (1, 1)] {
            let error = in_order(window(from_s, until_s)).err().expect("refused");
            assert!(in_words(&error).contains("ends before it begins"));
        }
    }

    #[test]
    fn a_future_that_waits_is_an_error() {
        let waits = at_once(std::future::pending::<Result<(), Error>>());
        assert!(in_words(&waits.expect_err("a future that waits")).contains("waits"));
    }
}
