//! An order for a certificate: order, challenge, signing request, certificate. Main passes the challenge to the workers or to
//! the redirect process, and reports when they answer it.
//!
//! Main gets the order's URL and the certificate's key as soon as there is an order. A server may take hours to complete it:
//! then this process ends, and the next one continues the same order, when the server wants to be asked again.

use super::{AcmeClient, at_once, failure, in_words, is, other};
use crate::errand::dns_update::{Change, Place};
use crate::errand::messages::{
    CertificateRequest, Challenge, DnsWay, ErrandReport, IssuedCertificate, Job, OrderFailure,
    OrderState, PlacedOrder, PrivateKeyLines,
};
use crate::helper;
use crate::redirect::HttpChallenge;
use dormouse_config::AcmeChallenge;
use dormouse_engine::{CertificateDer, Identity};
use dormouse_handover::message;
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeStatus,
    ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
};
use std::cell::RefCell;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// Time for main to have the challenge answered.
const CHALLENGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for main to have the operator's program write a record, which takes a minute at most.
const HOOK_TIMEOUT: Duration = Duration::from_secs(90);
/// Time in which the server is to validate the name, and the same for the certificate. Then this process ends, so that other
/// names have their turn, and a later one continues the order. The challenge is answered meanwhile.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two polls of an order, at first and at most, if the server names none.
const POLL: Duration = Duration::from_millis(250);
const POLL_MAX: Duration = Duration::from_secs(3);
/// Longest pause in which this process waits.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Pause between two looks at the channel to main.
const MAIN_POLL: Duration = Duration::from_millis(20);
/// Maximum number of tries when the server rejects our nonces (RFC 8555 §6.5).
const NONCE_TRIES: usize = 4;

/// The server has not completed the order yet. Not an error, but what the library returns has no place for it.
#[derive(Debug)]
struct Unfinished;

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server is still processing the order")
    }
}

impl std::error::Error for Unfinished {}

fn is_unfinished(error: &Error) -> bool {
    let is_it = |error: &(dyn std::error::Error + 'static)| error.is::<Unfinished>();
    matches!(error, Error::Other(error) if is_it(&**error))
}

impl AcmeClient {
    /// Obtains a certificate.
    pub(in crate::errand) fn obtain(
        &mut self,
        request: &CertificateRequest,
    ) -> Result<IssuedCertificate, OrderFailure> {
        let mut placed = request.placed.clone();
        let mut has_new_account = false;
        let mut tries = 1;
        loop {
            let is_resumed = placed.is_some();
            let error = match at_once(self.order(request, &mut placed)) {
                Ok(issued) => return Ok(issued),
                Err(error) => error,
            };
            let state = self.state_after(&error, placed.is_some());
            let may_try = tries < NONCE_TRIES;
            tries += 1;
            if may_try && is(&error, "badNonce") {
                continue;
            }
            if may_try && is_resumed && state == OrderState::Over {
                placed = None;
                continue;
            }
            let is_forgotten = is(&error, "accountDoesNotExist")
                || (state == OrderState::Doubted && request.server.is_doubted);
            if may_try && is_forgotten && !has_new_account && self.account.is_some() {
                has_new_account = true;
                placed = None;
                match at_once(self.create(&request.server)) {
                    Ok(account) => {
                        self.account = Some((request.server.directory.clone(), account));
                        continue;
                    }
                    Err(error) => return Err(self.failed(&error, OrderState::Over)),
                }
            }
            return Err(self.failed(&error, state));
        }
    }

    fn failed(&self, error: &Error, state: OrderState) -> OrderFailure {
        OrderFailure {
            why: in_words(error),
            state,
            again_s: self.answered.again().map(|again| again.as_secs()),
        }
    }

    /// What an error means for the order, and for the account.
    fn state_after(&self, error: &Error, is_placed: bool) -> OrderState {
        if is_unfinished(error) {
            return OrderState::Unfinished;
        }
        match (self.answered.status(), is_placed) {
            // There is an account, and its order is not even invalid.
            (404 | 500..=599, false) if self.account.is_some() => OrderState::Doubted,
            (0 | 429 | 500..=599, true) => OrderState::Unreached,
            _ => OrderState::Over,
        }
    }

    /// Runs the order that is placed, or places one.
    async fn order(
        &mut self,
        request: &CertificateRequest,
        placed: &mut Option<PlacedOrder>,
    ) -> Result<IssuedCertificate, Error> {
        let account = self.account(&request.server).await?;
        let (mut order, key) = match placed {
            Some(placed) => (account.order(placed.url.clone()).await?, placed.key.pem()),
            None => {
                let order = new_order(&account, request).await?;
                let (_, key) = Identity::request(&request.name).map_err(other)?;
                let new = PlacedOrder {
                    url: order.url().to_owned(),
                    key: PrivateKeyLines::of(&key),
                };
                self.report(&ErrandReport::Placed {
                    name: request.name.clone(),
                    order: new.clone(),
                })?;
                *placed = Some(new);
                (order, key)
            }
        };
        match order.state().status {
            OrderStatus::Pending => self.prove(&mut order, request).await?,
            _ if request.placed.is_some() && request.challenge == AcmeChallenge::Dns01 => {
                self.remove_records_of_former(&mut order, request).await?;
            }
            _ => {}
        }
        if order.state().status == OrderStatus::Ready {
            let signing_request = Identity::request_with(&request.name, &key).map_err(other)?;
            order.finalize_csr(&signing_request).await?;
        }
        self.until(&mut order, OrderStatus::Valid).await?;
        let chain = order.certificate().await?;
        Ok(IssuedCertificate {
            chain: chain.ok_or(Error::Str("the order is valid, but has no certificate"))?,
            key: PrivateKeyLines::of(&key),
        })
    }

    /// Proves control of the name.
    async fn prove(&self, order: &mut Order, request: &CertificateRequest) -> Result<(), Error> {
        let records = DnsRecords::of(request, self);
        let proven = self.prove_with(order, request, &records).await;
        let goes_on = matches!(&proven, Err(error) if is_unfinished(error));
        if !goes_on {
            records.remove();
        }
        proven
    }

    /// Removes the records that a former process has added, if the server has verified the name since.
    async fn remove_records_of_former(
        &self,
        order: &mut Order,
        request: &CertificateRequest,
    ) -> Result<(), Error> {
        let records = DnsRecords::of(request, self);
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if let (Some(challenge), Ok(place)) = (
                authorization.challenge(ChallengeType::Dns01),
                records.place(),
            ) {
                let value = challenge.key_authorization().dns_value();
                records.added.borrow_mut().push((place, value));
            }
        }
        records.remove();
        Ok(())
    }

    async fn prove_with(
        &self,
        order: &mut Order,
        request: &CertificateRequest,
        records: &DnsRecords<'_>,
    ) -> Result<(), Error> {
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
                AcmeChallenge::Dns01 => ChallengeType::Dns01,
            };
            let challenge = authorization.challenge(kind);
            let mut challenge = challenge.ok_or(Error::Unsupported(request.challenge.as_str()))?;
            match report_of(request, &challenge)? {
                Some(report) => self.show(&report, CHALLENGE_TIMEOUT)?,
                None => records.add(&challenge.key_authorization().dns_value())?,
            }
            // A former process may have told the server.
            if challenge.status == ChallengeStatus::Pending {
                challenge.set_ready().await?;
            }
        }
        self.until(order, OrderStatus::Ready).await
    }

    /// Passes the challenge to main, and waits until main reports that it is answered.
    fn show(&self, challenge: &ErrandReport, timeout: Duration) -> Result<(), Error> {
        self.report(challenge)?;
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            match message::receive(self.channel).map_err(other)? {
                Some(Job::Proceed) => return Ok(()),
                Some(Job::Refused(why)) => return Err(failure(&why)),
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

    fn report(&self, report: &ErrandReport) -> Result<(), Error> {
        helper::report(self.channel, report).map_err(other)
    }

    /// Polls until the order has reached this status, as often as the server wants.
    async fn until(&self, order: &mut Order, wanted: OrderStatus) -> Result<(), Error> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        let mut pause = POLL;
        loop {
            let status = order.refresh().await?.status;
            let again = self.answered.again();
            // What follows after the wanted status.
            let is_further = match wanted {
                OrderStatus::Ready => {
                    matches!(status, OrderStatus::Processing | OrderStatus::Valid)
                }
                _ => false,
            };
            if status == wanted || is_further {
                return Ok(());
            }
            if status == OrderStatus::Invalid {
                return Err(why_invalid(order).await);
            }
            let next = again.unwrap_or(pause);
            let left = deadline.saturating_duration_since(Instant::now());
            if next > PAUSE_MAX || left.is_zero() {
                return Err(other(Unfinished));
            }
            thread::sleep(next.min(left));
            pause = (pause * 3 / 2).min(POLL_MAX);
        }
    }
}

/// The records of an order by dns-01.
struct DnsRecords<'a> {
    request: &'a CertificateRequest,
    client: &'a AcmeClient,
    /// The records that were added: their places, unless main knows them, and their values.
    added: RefCell<Vec<(Option<Place>, String)>>,
}

impl<'a> DnsRecords<'a> {
    fn of(request: &'a CertificateRequest, client: &'a AcmeClient) -> DnsRecords<'a> {
        DnsRecords {
            request,
            client,
            added: RefCell::default(),
        }
    }

    /// Adds the record with this value, and waits until all servers of the zone have it.
    fn add(&self, value: &str) -> Result<(), Error> {
        let way = self.request.dns.as_ref();
        let wait_s = match way {
            Some(DnsWay::Updates(dns)) => dns.wait_s,
            Some(DnsWay::Hook { wait_s }) => *wait_s,
            None => return Err(failure("there is no DNS server for dns-01")),
        };
        let place = self.place().map_err(|why| failure(&why))?;
        let added = self.change(place.as_ref(), value, Change::Add);
        // Also if the response was lost.
        self.added.borrow_mut().push((place, value.to_owned()));
        added.map_err(|why| failure(&why))?;
        thread::sleep(Duration::from_secs(wait_s));
        Ok(())
    }

    /// Where the record is, unless main knows it.
    fn place(&self) -> Result<Option<Place>, String> {
        match &self.request.dns {
            Some(DnsWay::Updates(dns)) => dns.place(&self.request.name).map(Some),
            _ => Ok(None),
        }
    }

    fn change(&self, place: Option<&Place>, value: &str, change: Change) -> Result<(), String> {
        match (&self.request.dns, place) {
            (Some(DnsWay::Updates(dns)), Some(place)) => dns.change(place, value, change),
            _ => {
                let record = ErrandReport::DnsRecord {
                    value: value.to_owned(),
                    is_added: change == Change::Add,
                };
                let shown = self.client.show(&record, HOOK_TIMEOUT);
                shown.map_err(|error| in_words(&error))
            }
        }
    }

    /// Removes what was added.
    fn remove(&self) {
        for (place, value) in self.added.take() {
            if let Err(error) = self.change(place.as_ref(), &value, Change::Remove) {
                let name = self.request.name.as_str();
                tracing::warn!(name, error, "ACME record left in DNS");
            }
        }
    }
}

/// The challenge, in the form that workers or the redirect process need. `None`: it is answered by DNS.
fn report_of(
    request: &CertificateRequest,
    challenge: &ChallengeHandle<'_>,
) -> Result<Option<ErrandReport>, Error> {
    let name = request.name.clone();
    let authorization = challenge.key_authorization();
    Ok(Some(match request.challenge {
        AcmeChallenge::Dns01 => return Ok(None),
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
    }))
}

/// Creates an order. If the server rejects the reference to the replaced certificate, the order is
/// created without it.
async fn new_order(account: &Account, request: &CertificateRequest) -> Result<Order, Error> {
    let names = [Identifier::Dns(request.name.clone())];
    let certificate = request.replaces.as_deref().map(CertificateDer::from);
    let replaced = certificate.as_ref().map(CertificateIdentifier::try_from);
    let new = || match &request.profile {
        Some(profile) => NewOrder::new(&names).profile(profile),
        None => NewOrder::new(&names),
    };
    if let Some(Ok(id)) = replaced {
        let order = account.new_order(&new().replaces(id)).await;
        match order {
            Err(error) if is(&error, "badNonce") || is(&error, "rateLimited") => return Err(error),
            Err(_) => {}
            Ok(order) => return Ok(order),
        }
    }
    account.new_order(&new()).await
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
