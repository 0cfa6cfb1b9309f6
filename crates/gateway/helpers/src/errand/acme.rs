//! A client of ACME servers (RFC 8555): obtains certificates by tls-alpn-01 (RFC 8737) or http-01, and
//! asks when to renew them (RFC 9773).
//!
//! A library implements the protocol. This module sends its requests over our own TLS, and runs an
//! order in sequence: account, order, challenge, signing request, certificate. Main passes the challenge
//! to the workers or to the redirect process, and reports when they answer it. Keys are generated here and
//! passed to main; this process exits soon and keeps none.
//!
//! The library is asynchronous, but nothing in it ever waits: the HTTP client completes each request
//! before it returns the future.

use super::http::{self, Request, Response};
use super::messages::{
    AcmeServer, CertificateRequest, Challenge, ErrandReport, IssuedCertificate, Job,
    PrivateKeyLines, RenewalQuery, RenewalWindow,
};
use crate::helper;
use crate::redirect::HttpChallenge;
use crate::transport::Connector;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use dormouse_config::AcmeChallenge;
use dormouse_engine::{CertificateDer, Identity, Roots};
use dormouse_handover::message;
use dormouse_reactor::Fd;
use http_body_util::BodyExt as _;
use instant_acme::{
    Account, AccountBuilder, AuthorizationStatus, BodyWrapper, BytesResponse,
    CertificateIdentifier, ChallengeHandle, ChallengeType, Error, ExternalAccountKey, HttpClient,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem,
};
use std::future::{Future, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Time for one request and its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Time from the first request to the certificate. Main waits a little longer.
const ORDER_TIMEOUT: Duration = Duration::from_secs(100);
/// Pause between two polls of an order, at first and at most.
const POLL: Duration = Duration::from_millis(250);
const POLL_MAX: Duration = Duration::from_secs(3);
/// Pause between two looks at the channel to main.
const MAIN_POLL: Duration = Duration::from_millis(20);
/// Maximum number of orders when the server rejects our nonces (RFC 8555 §6.5).
const NONCE_TRIES: usize = 4;
/// Maximum characters of a server's error message.
const WORDS_MAX: usize = 1000;

/// A client of ACME servers.
pub(super) struct AcmeClient {
    connector: Arc<Connector>,
    channel: Fd,
    /// The account used last, and its directory.
    account: Option<(String, Account)>,
}

impl AcmeClient {
    /// `trust` is PEM of the authorities for the servers' certificates.
    pub(super) fn new(trust: &str, channel: Fd) -> Result<AcmeClient, String> {
        Ok(AcmeClient {
            connector: Arc::new(Connector::tls(Roots::Pem(trust.as_bytes().to_vec()))?),
            channel,
            account: None,
        })
    }

    /// Obtains a certificate.
    pub(super) fn obtain(
        &mut self,
        request: &CertificateRequest,
    ) -> Result<IssuedCertificate, String> {
        let deadline = Instant::now() + ORDER_TIMEOUT;
        let mut tries = 1;
        loop {
            match at_once(self.order(request, deadline)) {
                Ok(issued) => return Ok(issued),
                Err(error) if tries < NONCE_TRIES && is(&error, "badNonce") => tries += 1,
                // The server no longer knows the account: create a new one.
                Err(error) if self.account.is_some() && is(&error, "accountDoesNotExist") => {
                    let made = at_once(self.create(&request.server));
                    self.account = None;
                    let account = made.map_err(|error| in_words(&error))?;
                    self.account = Some((request.server.directory.clone(), account));
                    tries += 1;
                    if tries > NONCE_TRIES {
                        return Err(in_words(&error));
                    }
                }
                Err(error) => return Err(in_words(&error)),
            }
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

    async fn order(
        &mut self,
        request: &CertificateRequest,
        deadline: Instant,
    ) -> Result<IssuedCertificate, Error> {
        let account = self.account(&request.server).await?;
        let mut order = new_order(&account, request).await?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                _ => return Err(Error::Str("the authorization is neither pending nor valid")),
            }
            let kind = match request.challenge {
                AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
                AcmeChallenge::Http01 => ChallengeType::Http01,
            };
            let challenge = authorization.challenge(kind);
            let mut challenge = challenge.ok_or(Error::Unsupported(request.challenge.as_str()))?;
            let report = report_of(request, &challenge)?;
            self.show(&report, deadline)?;
            challenge.set_ready().await?;
        }
        until(&mut order, OrderStatus::Ready, deadline).await?;
        let (signing_request, key) = Identity::request(&request.name).map_err(other)?;
        if order.state().status == OrderStatus::Ready {
            order.finalize_csr(&signing_request).await?;
        }
        until(&mut order, OrderStatus::Valid, deadline).await?;
        let chain = order.certificate().await?;
        Ok(IssuedCertificate {
            chain: chain.ok_or(Error::Str("the order is valid, but has no certificate"))?,
            key: PrivateKeyLines::of(&key),
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
        Account::builder_with_http(Box::new(Http(Arc::clone(&self.connector))))
    }

    /// Passes the challenge to main, and waits until main reports that it is answered.
    fn show(&self, challenge: &ErrandReport, deadline: Instant) -> Result<(), Error> {
        helper::report(self.channel, challenge).map_err(other)?;
        while Instant::now() < deadline {
            match message::receive(self.channel).map_err(other)? {
                Some(Job::Proceed) => return Ok(()),
                Some(_) => {
                    return Err(failure(
                        "the main process sent another job instead of a confirmation of the challenge",
                    ));
                }
                None => thread::sleep(MAIN_POLL),
            }
        }
        Err(failure(
            "the main process did not confirm the challenge in time",
        ))
    }
}

/// Refuses a window that ends before it begins: the client must treat it as if there were no answer (RFC 9773 §4.2).
fn in_order(window: RenewalWindow) -> Result<RenewalWindow, Error> {
    match window.from_s < window.until_s {
        true => Ok(window),
        false => Err(Error::Str("the renewal window ends before it begins")),
    }
}

/// The challenge, in the form that workers or the redirect process need.
fn report_of(
    request: &CertificateRequest,
    challenge: &ChallengeHandle<'_>,
) -> Result<ErrandReport, Error> {
    let name = request.name.clone();
    let authorization = challenge.key_authorization();
    Ok(match request.challenge {
        AcmeChallenge::TlsAlpn01 => {
            let digest = authorization.digest();
            let made = Identity::acme_challenge_pem(&name, digest.as_ref());
            let (chain, key) = made.map_err(other)?;
            let key = PrivateKeyLines::of(&key);
            ErrandReport::Challenge(Challenge { name, chain, key })
        }
        AcmeChallenge::Http01 => ErrandReport::HttpChallenge(HttpChallenge {
            name,
            token: challenge.token.clone(),
            key_authorization: authorization.as_str().to_owned(),
        }),
    })
}

/// Creates an order. If the server rejects the reference to the replaced certificate, the order is
/// created without it.
async fn new_order(account: &Account, request: &CertificateRequest) -> Result<Order, Error> {
    let names = [Identifier::Dns(request.name.clone())];
    let certificate = request.replaces.as_deref().map(CertificateDer::from);
    let replaced = certificate.as_ref().map(CertificateIdentifier::try_from);
    if let Some(Ok(id)) = replaced {
        let order = account.new_order(&NewOrder::new(&names).replaces(id)).await;
        match order {
            Err(error) if is(&error, "badNonce") || is(&error, "rateLimited") => return Err(error),
            Err(_) => {}
            Ok(order) => return Ok(order),
        }
    }
    account.new_order(&NewOrder::new(&names)).await
}

/// Polls until the order has reached this status.
async fn until(order: &mut Order, wanted: OrderStatus, deadline: Instant) -> Result<(), Error> {
    let mut pause = POLL;
    loop {
        let status = order.refresh().await?.status;
        if status == wanted || status == OrderStatus::Valid {
            return Ok(());
        }
        if status == OrderStatus::Invalid {
            return Err(why_invalid(order).await);
        }
        if Instant::now() + pause >= deadline {
            return Err(failure("the server did not complete the order in time"));
        }
        thread::sleep(pause);
        pause = (pause * 3 / 2).min(POLL_MAX);
    }
}

/// The reason why the server has invalidated the order.
async fn why_invalid(order: &mut Order) -> Error {
    let of_order = order.state().error.clone();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else {
            continue;
        };
        let mut problems = state.challenges.iter().filter_map(|one| one.error.clone());
        if let Some(problem) = problems.next() {
            return Error::Api(problem);
        }
    }
    of_order.map_or(
        failure("the server rejected the order without a reason"),
        Error::Api,
    )
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
struct Http(Arc<Connector>);

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
        let response = http::exchange(&request, Some(&self.0), REQUEST_TIMEOUT)
            .map_err(|error| failure(&format!("{url}: {error}")))?;
        if let Some(error) = refusal(parts.method.as_str(), &url, &response) {
            return Err(error);
        }
        let mut built = ::http::Response::builder().status(response.status);
        for (name, value) in &response.headers {
            built = built.header(name, value.as_slice());
        }
        let (parts, ()) = built.body(())?.into_parts();
        Ok(BytesResponse {
            parts,
            body: Box::new(Bytes::from(response.body)),
        })
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
