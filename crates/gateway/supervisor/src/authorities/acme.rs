//! Certificates from an ACME server: which names need one, and when to order the next.
//!
//! An errand talks to the server. An order that the server has not completed within seconds is continued by a later errand,
//! after a growing pause in which other names have their turn. Only the files (`material::acme`) outlive main: then an
//! unfinished order starts again, as ACME servers expect. A failed name is retried after a growing pause, too.

use super::renewal::Validity;
use super::retry::backoff_ms;
use super::unsaved::Unsaved;
use crate::configuration::edition::Edition;
use crate::material::{Certificates, acme};
use dormouse_config::Config;
use dormouse_engine::{PemFile, pem_chain};
use dormouse_handover::control;
use dormouse_handover::unix_time;
use dormouse_handover::{Pem, PemContents};
use dormouse_helpers::errand::{
    Account, AccountBinding, AcmeServer, CertificateRequest, IssuedCertificate, Job, OrderFailure,
    OrderState, PlacedOrder, RenewalQuery, RenewalWindow,
};
use dormouse_reactor::process;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;
/// Delay of the first renewal query for a new certificate, and of the next query after a failed one.
const ASK_MS: u64 = DAY_MS / 4;
/// Bounds for the server's Retry-After (RFC 9773 §4.3.2).
const ASK_AGAIN_S: std::ops::RangeInclusive<u64> = 600..=86_400;
/// Maximum number of certificates in one errand's renewal queries.
const ASKED_AT_ONCE: usize = 32;
/// Minimum time between two certificates for a name, unless the server wants another one sooner. By a clock that is
/// ahead, a new certificate is due for renewal or has expired already.
const ISSUED_MS: u64 = MINUTE_MS;
/// Pause after an order during which a worker restarted.
const DISTURBED_MS: u64 = 1000;
/// Bounds for the server's Retry-After while it works on an order, and the first pause without one. Each further pause is
/// twice as long.
const CONTINUED_S: std::ops::RangeInclusive<u64> = 5..=3_600;
const CONTINUE_S: u64 = 5;
/// Time after which an order that the server never completes is given up.
const ORDER_MS: u64 = DAY_MS;
/// Refused orders after which the server may no longer know the account, and time in which one account is replaced.
const DOUBTS: u32 = 2;
const REPLACED_MS: u64 = DAY_MS;
/// Maximum number of names reported to control.
const REPORTED_MAX: usize = 64;
/// Maximum length of a reason, in characters.
const WORDS_MAX: usize = 400;

/// All ACME names of the configuration.
#[derive(Default)]
pub(super) struct AcmeNames {
    all: BTreeMap<String, AcmeName>,
    issued: u64,
    failed: u64,
    hasher: RandomState,
    unsaved: Unsaved,
    /// Whether the files were compared with what is in use, which the former binary may have been unable to save.
    is_compared: bool,
    /// Orders in a row that the server has refused as if it did not know the account.
    doubts: u32,
    /// When a doubted account was replaced.
    replaced_ms: Option<u64>,
}

/// A name, its certificate, and the next steps.
struct AcmeName {
    /// Validity of the current certificate.
    shown: Option<Validity>,
    /// The server's renewal window.
    advised: Option<RenewalWindow>,
    /// When to order a certificate.
    obtain_ms: u64,
    /// When to ask the server for the renewal window.
    ask_ms: u64,
    /// When this process got a certificate. `None`: not yet.
    issued_ms: Option<u64>,
    failures: u32,
    /// Why the last attempt failed.
    why: Option<String>,
    /// The order that the server has not completed.
    placed: Option<Placed>,
}

/// An order that the server has accepted.
struct Placed {
    order: PlacedOrder,
    /// URL of the server's directory.
    directory: String,
    at_ms: u64,
    /// How often an errand left it to the next one.
    continued: u32,
}

/// Work of an errand.
pub(super) enum AcmeWork {
    /// Order a certificate.
    Order(Box<CertificateRequest>),
    /// Query renewal windows.
    AskRenewals(Vec<Job>),
}

impl AcmeNames {
    /// Takes over another configuration or other certificates.
    pub(super) fn follow(&mut self, edition: &Edition, now_ms: u64) {
        let (config, pems) = (&edition.config, &edition.material.certificates);
        let is_first = !std::mem::replace(&mut self.is_compared, true);
        let mut former = std::mem::take(&mut self.all);
        for name in config.acme_names() {
            let file = acme::file_of(config, name).display().to_string();
            let pem = pems.iter().flatten().find(|pem| pem.name == file);
            let shown = pem.and_then(|pem| self.validity(pem));
            if is_first && pem.is_some_and(|pem| !acme::is_saved(config, name, pem)) {
                self.unsaved.add_name(name, now_ms);
            }
            let entry = match former.remove(name) {
                Some(mut entry) if entry.shown == shown => {
                    let is_current = |placed: &Placed| placed.directory == config.acme.acme_server;
                    entry.placed = entry.placed.filter(is_current);
                    entry
                }
                known => {
                    let mut entry = AcmeName {
                        shown,
                        advised: None,
                        obtain_ms: now_ms,
                        // A certificate from a previous run is queried at once, a new one later.
                        ask_ms: now_ms + if known.is_some() { ASK_MS } else { 0 },
                        issued_ms: known.and_then(|known| known.issued_ms),
                        failures: 0,
                        why: None,
                        placed: None,
                    };
                    entry.plan(&self.hasher, name, now_ms);
                    entry
                }
            };
            self.all.insert(name.to_owned(), entry);
        }
    }

    fn validity(&self, pem: &Pem) -> Option<Validity> {
        let identity = pem.identity().ok()?;
        Some(Validity {
            from_s: identity.begins_at_s(),
            until_s: identity.expires_at_s(),
            digest: self.hasher.hash_one(&pem.chain),
        })
    }

    /// Retries failed names at once, because a reload may have removed the cause.
    pub(super) fn retry_now(&mut self) {
        let now_ms = process::boottime_ms();
        self.unsaved.retry_now(now_ms);
        for (name, entry) in &mut self.all {
            entry.failures = 0;
            entry.ask_ms = entry.ask_ms.min(now_ms);
            entry.plan(&self.hasher, name, now_ms);
        }
    }

    /// When to save again what could not be saved.
    pub(super) fn save_due_ms(&self) -> Option<u64> {
        self.unsaved.due_ms()
    }

    pub(super) fn save(&mut self, edition: &Edition, now_ms: u64) {
        self.unsaved.save(edition, now_ms);
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.all.values().map(AcmeName::due_ms).min()
    }

    /// Records a failed order, and schedules the next.
    pub(super) fn note_failure(&mut self, name: &str, why: &str, now_ms: u64) {
        let failures = self.all.get(name).map_or(0, |entry| entry.failures);
        self.note_failure_until(name, why, now_ms, backoff_ms(failures));
    }

    fn note_failure_until(&mut self, name: &str, why: &str, now_ms: u64, pause_ms: u64) {
        // A reload may have removed the name.
        let Some(entry) = self.all.get_mut(name) else {
            return;
        };
        self.failed += 1;
        entry.failures = entry.failures.saturating_add(1);
        entry.obtain_ms = now_ms + pause_ms;
        entry.why = Some(why.chars().take(WORDS_MAX).collect());
        let retry_in_s = pause_ms / 1000;
        match entry.shown {
            None => tracing::warn!(
                name,
                retry_in_s,
                error = why,
                "ACME order failed; clients that ask for this name are refused"
            ),
            Some(shown) => {
                let expires_in_s = shown.until_s.saturating_sub(unix_time().as_secs());
                tracing::warn!(
                    name,
                    retry_in_s,
                    expires_in_s,
                    error = why,
                    "ACME order failed; keeping the current certificate"
                );
            }
        }
    }

    /// The report for control: failing names first, then by the time of the next order.
    pub(super) fn report(&self) -> Option<control::Acme> {
        if self.all.is_empty() {
            return None;
        }
        let name = |(name, entry): (&String, &AcmeName)| control::AcmeName {
            name: name.clone(),
            expires_s: entry.shown.map(|shown| shown.until_s),
            next_ms: entry.obtain_ms,
            failures: entry.failures,
            why: entry.why.clone(),
        };
        let mut names: Vec<control::AcmeName> = self.all.iter().map(name).collect();
        names.sort_by_key(|name| (name.failures == 0, name.next_ms));
        names.truncate(REPORTED_MAX);
        Some(control::Acme {
            issued: self.issued,
            failed: self.failed,
            names,
        })
    }
}

impl AcmeName {
    fn due_ms(&self) -> u64 {
        match self.shown {
            Some(_) => self.obtain_ms.min(self.ask_ms),
            None => self.obtain_ms,
        }
    }

    /// Schedules the next order. A failed name keeps its schedule.
    fn plan(&mut self, hasher: &RandomState, name: &str, now_ms: u64) {
        if self.failures > 0 {
            return;
        }
        self.obtain_ms = match self.shown {
            None => now_ms,
            Some(shown) => {
                let share = hasher.hash_one((name, shown.digest));
                let at_s = shown.renew_at_s(self.advised, share);
                let in_s = at_s.saturating_sub(unix_time().as_secs());
                let at_ms = now_ms.saturating_add(in_s.saturating_mul(1000));
                match (self.advised, self.issued_ms) {
                    (None, Some(issued_ms)) => at_ms.max(issued_ms + ISSUED_MS),
                    _ => at_ms,
                }
            }
        };
    }
}

impl AcmeNames {
    /// Returns the work that is due: one order, or renewal queries.
    pub(super) fn work(&mut self, edition: &Edition, now_ms: u64) -> Option<AcmeWork> {
        let to_order = self
            .all
            .iter()
            .filter(|(_, entry)| entry.obtain_ms <= now_ms);
        if let Some((name, entry)) = to_order.min_by_key(|(_, entry)| entry.obtain_ms) {
            let (name, has_one) = (name.clone(), entry.shown.is_some());
            let placed = entry.placed.as_ref().map(|placed| placed.order.clone());
            let server = self.server(&edition.config, now_ms);
            let dns = acme::dns_way(&edition.config);
            return match server.and_then(|server| Ok((server, dns?))) {
                Ok((server, dns)) => Some(AcmeWork::Order(Box::new(CertificateRequest {
                    placed,
                    server,
                    replaces: has_one.then(|| leaf(edition, &name)).flatten(),
                    challenge: edition.config.acme.acme_challenge,
                    dns,
                    profile: edition.config.acme.acme_profile.clone(),
                    name,
                }))),
                Err(why) => {
                    self.note_failure(&name, &why, now_ms);
                    None
                }
            };
        }
        let questions = self.questions(edition, now_ms);
        (!questions.is_empty()).then_some(AcmeWork::AskRenewals(questions))
    }

    /// The names whose renewal windows are due. They are also planned again: the wall clock may have been wrong before.
    fn take_due(&mut self, now_ms: u64) -> Vec<String> {
        let is_due = |entry: &AcmeName| entry.shown.is_some() && entry.ask_ms <= now_ms;
        let due = self.all.iter_mut().filter(|(_, entry)| is_due(entry));
        let mut names = Vec::new();
        for (name, entry) in due.take(ASKED_AT_ONCE) {
            // Scheduled before the result is known, so that a failure does not repeat at once.
            entry.ask_ms = now_ms + ASK_MS;
            entry.plan(&self.hasher, name, now_ms);
            names.push(name.clone());
        }
        names
    }

    fn questions(&mut self, edition: &Edition, now_ms: u64) -> Vec<Job> {
        let names = self.take_due(now_ms);
        if names.is_empty() {
            return Vec::new();
        }
        // An order reports it.
        let Ok(server) = self.server(&edition.config, now_ms) else {
            return Vec::new();
        };
        let ask = |name: String| {
            let certificate = leaf(edition, &name)?;
            let server = server.clone();
            Some(Job::AskRenewal(RenewalQuery {
                server,
                name,
                certificate,
            }))
        };
        let jobs: Vec<Job> = names.into_iter().filter_map(ask).collect();
        tracing::debug!(certificates = jobs.len(), "querying ACME renewal windows");
        jobs
    }

    /// Records the server's renewal window.
    pub(super) fn note_window(
        &mut self,
        name: &str,
        window: Result<Option<RenewalWindow>, String>,
    ) {
        let now_ms = process::boottime_ms();
        // A reload may have removed the name.
        let Some(entry) = self.all.get_mut(name) else {
            return;
        };
        match window {
            Ok(Some(window)) => {
                let again_s = window
                    .ask_again_s
                    .clamp(*ASK_AGAIN_S.start(), *ASK_AGAIN_S.end());
                entry.ask_ms = now_ms + again_s * 1000;
                entry.advised = Some(window);
                entry.plan(&self.hasher, name, now_ms);
            }
            Ok(None) => {
                tracing::debug!(name, "no ACME renewal window");
                entry.ask_ms = now_ms + DAY_MS;
            }
            Err(error) => tracing::info!(name, error, "ACME renewal query failed"),
        }
    }

    /// Handles the result of an order: saves the certificate, and returns the certificates of all routes with
    /// it. `None`: the order failed, or the configuration no longer has the name. `is_disturbed`: a worker
    /// restarted during the validation.
    pub(super) fn note_order(
        &mut self,
        name: &str,
        directory: &str,
        issued: Result<IssuedCertificate, OrderFailure>,
        is_disturbed: bool,
        edition: &Edition,
    ) -> Option<Certificates> {
        let is_wanted = edition.config.acme.acme_server == directory;
        if !is_wanted || !self.all.contains_key(name) {
            return None;
        }
        let now_ms = process::boottime_ms();
        let issued = match issued {
            Ok(issued) => {
                self.forget_placed(name);
                self.keep(name, &issued, edition)
            }
            Err(failure) if failure.state == OrderState::Unfinished => {
                self.continue_later(name, failure.again_s, now_ms);
                return None;
            }
            Err(failure) => {
                match failure.state {
                    OrderState::Over => self.forget_placed(name),
                    OrderState::Doubted => self.doubts = self.doubts.saturating_add(1),
                    OrderState::Unfinished | OrderState::Unreached => {}
                }
                let failures = self.all.get(name).map_or(0, |entry| entry.failures);
                let again_s = failure
                    .again_s
                    .map_or(0, |again_s| again_s.min(DAY_MS / 1000));
                let pause_ms = match is_disturbed {
                    true => DISTURBED_MS,
                    false => backoff_ms(failures).max(again_s * 1000),
                };
                self.note_failure_until(name, &failure.why, now_ms, pause_ms);
                return None;
            }
        };
        issued
            .inspect_err(|why| self.note_failure(name, why, now_ms))
            .ok()
    }

    /// Records an order that the server has accepted. Its account is known.
    pub(super) fn note_placed(&mut self, name: &str, directory: &str, order: PlacedOrder) {
        self.doubts = 0;
        if let Some(entry) = self.all.get_mut(name) {
            entry.placed = Some(Placed {
                order,
                directory: directory.to_owned(),
                at_ms: process::boottime_ms(),
                continued: 0,
            });
        }
    }

    /// Whether the server has not completed an order for this name.
    pub(super) fn has_order(&self, name: &str) -> bool {
        let entry = self.all.get(name);
        entry.is_some_and(|entry| entry.placed.is_some())
    }

    fn forget_placed(&mut self, name: &str) {
        if let Some(entry) = self.all.get_mut(name) {
            entry.placed = None;
        }
    }

    /// Has another errand continue the order when the server wants to be asked again, and other names have had their turn.
    fn continue_later(&mut self, name: &str, again_s: Option<u64>, now_ms: u64) {
        let entry = self.all.get_mut(name);
        let Some((entry, placed)) = entry.and_then(|entry| entry.placed.take().map(|p| (entry, p)))
        else {
            return self.note_failure(name, "the server has not completed the order", now_ms);
        };
        if now_ms >= placed.at_ms + ORDER_MS {
            let why = "the server has not completed the order within a day";
            return self.note_failure(name, why, now_ms);
        }
        let pause_s = CONTINUE_S << placed.continued.min(10);
        let again_s = again_s.unwrap_or(pause_s);
        let again_s = again_s.clamp(*CONTINUED_S.start(), *CONTINUED_S.end());
        entry.obtain_ms = now_ms + again_s * 1000;
        entry.placed = Some(Placed {
            continued: placed.continued.saturating_add(1),
            ..placed
        });
        tracing::info!(name, again_s, "ACME server is processing the order");
    }

    fn keep(
        &mut self,
        name: &str,
        issued: &IssuedCertificate,
        edition: &Edition,
    ) -> Result<Certificates, String> {
        let config = &edition.config;
        let file = acme::file_of(config, name).display().to_string();
        let chain = PemFile::of(issued.chain.as_bytes(), "the issued certificate");
        let pem = Pem::from(PemContents {
            name: file.clone(),
            key_name: file,
            chain: chain.chain().map_err(|error| error.to_string())?,
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: false,
            key: issued.key.pem().as_str().to_owned(),
        });
        acme::check_for(&pem, name)?;
        self.issued += 1;
        if let Some(entry) = self.all.get_mut(name) {
            entry.issued_ms = Some(process::boottime_ms());
        }
        if let Err(error) = acme::keep(config, name, &pem) {
            // The certificate is used anyway.
            tracing::error!(
                name,
                error,
                "ACME certificate could not be saved; in use, and trying again"
            );
            self.unsaved.add_name(name, process::boottime_ms());
        }
        let mut certificates = edition.material.certificates.clone();
        acme::place(config, &mut certificates, name, &pem);
        Ok(certificates)
    }
}

impl AcmeNames {
    /// Saves a new account.
    pub(super) fn keep_account(&mut self, account: Account, config: &Config) {
        if account.directory != config.acme.acme_server {
            return;
        }
        let now_ms = process::boottime_ms();
        if self.is_doubted(now_ms) {
            self.replaced_ms = Some(now_ms);
        }
        self.doubts = 0;
        tracing::info!(
            server = account.directory,
            account = account.id,
            "ACME account created"
        );
        if let Err(error) = acme::keep_account(config, &account) {
            tracing::error!(
                error,
                "ACME account could not be saved; in use, and trying again"
            );
            self.unsaved.add_account(account, now_ms);
        }
    }

    /// Whether the server may no longer know the account. At most one account a day is replaced for that reason: servers
    /// limit new accounts, and have other reasons to fail.
    fn is_doubted(&self, now_ms: u64) -> bool {
        let is_new = self
            .replaced_ms
            .is_some_and(|at_ms| now_ms < at_ms + REPLACED_MS);
        self.doubts >= DOUBTS && !is_new
    }

    fn server(&self, config: &Config, now_ms: u64) -> Result<AcmeServer, String> {
        let key = acme::binding_key(config)?;
        let binding = config.acme.acme_eab_id.clone().zip(key);
        let directory = &config.acme.acme_server;
        let account = match self.unsaved.account(directory) {
            Some(account) => Some(account.clone()),
            None => acme::account(config).unwrap_or_else(|error| {
                tracing::warn!(error, "ACME account file unusable; creating a new account");
                None
            }),
        };
        Ok(AcmeServer {
            directory: directory.clone(),
            email: config.acme.acme_email.clone(),
            account,
            binding: binding.map(|(id, key)| AccountBinding {
                id,
                key: key.as_str().to_owned(),
            }),
            is_doubted: self.is_doubted(now_ms),
        })
    }
}

/// The current certificate of a name, DER.
fn leaf(edition: &Edition, name: &str) -> Option<Vec<u8>> {
    let file = acme::file_of(&edition.config, name).display().to_string();
    let mut pems = edition.material.certificates.iter().flatten();
    let pem = pems.find(|pem| pem.name == file)?;
    let chain = pem_chain(pem.chain.as_bytes(), &pem.name).ok()?;
    chain.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Validity = Validity {
        from_s: 86_400_000,
        until_s: 94_176_000,
        digest: 0,
    };

    /// A machine without a battery starts in 1970, until it has asked a time server.
    #[test]
    fn a_renewal_follows_a_clock_that_was_set() {
        let mut names = AcmeNames::default();
        let entry = AcmeName {
            shown: Some(LIFE),
            advised: None,
            // From a clock that was 50 years behind.
            obtain_ms: 50 * 365 * DAY_MS,
            ask_ms: 0,
            issued_ms: None,
            failures: 0,
            why: None,
            placed: None,
        };
        names.all.insert("example.org".to_owned(), entry);
        assert_eq!(names.take_due(7), ["example.org"]);
        // The certificate has expired, so another one is due now.
        assert_eq!(names.all["example.org"].obtain_ms, 7);
    }

    /// An order that the server never completes is asked for less and less often, and given up after a day. Meanwhile the
    /// other names have their turn, also those that are due later.
    #[test]
    fn an_order_that_hangs_delays_no_other_name() {
        let mut names = AcmeNames::default();
        let entry = |obtain_ms| AcmeName {
            shown: None,
            advised: None,
            obtain_ms,
            ask_ms: 0,
            issued_ms: None,
            failures: 0,
            why: None,
            placed: None,
        };
        names.all.insert("a.example".to_owned(), entry(0));
        names.all.insert("b.example".to_owned(), entry(1));
        let order = r#"{"url":"https://ca.example/order/1","key":["a"]}"#;
        let order = serde_json::from_str(order).expect("an order");
        names.note_placed("a.example", "https://ca.example/dir", order);
        let begun_ms = names.all["a.example"].placed.as_ref().map(|p| p.at_ms);
        let mut now_ms = begun_ms.expect("placed");
        names.all.get_mut("b.example").expect("there").obtain_ms = now_ms + 1;
        let mut pauses = Vec::new();
        while names.has_order("a.example") {
            names.continue_later("a.example", None, now_ms);
            assert_eq!(
                names.next_due_ms(),
                Some(begun_ms.expect("placed") + 1),
                "b"
            );
            let next_ms = names.all["a.example"].obtain_ms;
            pauses.push((next_ms - now_ms) / 1000);
            now_ms = next_ms;
        }
        assert_eq!(pauses[..4], [5, 10, 20, 40]);
        assert!(pauses.len() < 40 && pauses.contains(&3_600), "{pauses:?}");
        assert_eq!(names.all["a.example"].failures, 1);
    }

    #[test]
    fn a_certificate_that_is_due_at_its_issue_is_not_renewed_at_once() {
        let mut entry = AcmeName {
            // It expired long ago, by this clock.
            shown: Some(LIFE),
            advised: None,
            obtain_ms: 0,
            ask_ms: 0,
            issued_ms: Some(5_000),
            failures: 0,
            why: None,
            placed: None,
        };
        let hasher = RandomState::new();
        entry.plan(&hasher, "example.org", 5_001);
        assert_eq!(entry.obtain_ms, 5_000 + ISSUED_MS);
        entry.plan(&hasher, "example.org", 99_000);
        assert_eq!(entry.obtain_ms, 99_000);
        // The server may want it at once: it is about to revoke the certificate.
        entry.advised = Some(RenewalWindow {
            from_s: 1,
            until_s: 2,
            ask_again_s: 600,
        });
        entry.plan(&hasher, "example.org", 5_001);
        assert_eq!(entry.obtain_ms, 5_001);
    }

    /// A server may refuse orders for other reasons, and limits new accounts.
    #[test]
    fn a_doubted_account_is_replaced_once_a_day() {
        let mut names = AcmeNames::default();
        let doubted =
            |names: &AcmeNames| [0, DAY_MS].map(|after_ms| names.is_doubted(5 + after_ms));
        names.doubts = DOUBTS - 1;
        assert_eq!(doubted(&names), [false, false]);
        names.doubts = DOUBTS;
        assert_eq!(doubted(&names), [true, true]);
        names.replaced_ms = Some(5);
        assert_eq!(doubted(&names), [false, true]);
        let order = || {
            let order = r#"{"url":"https://ca.example/order/1","key":["a"]}"#;
            serde_json::from_str(order).expect("an order")
        };
        names.note_placed("a.example", "https://ca.example/dir", order());
        assert_eq!(names.doubts, 0, "the account is known");
    }
}
