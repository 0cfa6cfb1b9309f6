//! Names for which certificates are had from an ACME server: when to ask for one, where it is put,
//! and what workers show meanwhile, so that the server can see that the name is ours.
//!
//! Who asks is an errand (`errand`), one at a time. Nothing here outlives main but the files
//! (`material::acme`): an order that was not finished is begun anew, which ACME servers are made
//! for. A name which failed waits, longer each time, and keeps no other name waiting.

use super::Supervisor;
use super::errands::{Task, backoff_ms};
use crate::material::{acme, certificates_in};
use dormouse_config::Config;
use dormouse_engine::pem_chain;
use dormouse_handover::Pem;
use dormouse_handover::orders::Order;
use dormouse_handover::talk;
use dormouse_handover::unix_time;
use dormouse_helpers::errand::{
    Account, AccountBinding, AcmeServer, CertificateRequest, Challenge, IssuedCertificate, Job,
    RenewalQuery, RenewalWindow,
};
use dormouse_reactor::process;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use zeroize::Zeroizing;

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;
/// When the server is asked about a certificate that has just come, or has said nothing of it.
const ASK_MS: u64 = DAY_MS / 4;
/// Bounds of what the server says about when to ask again (RFC 9773 §4.3.2).
const AGAIN_S: std::ops::RangeInclusive<u64> = 600..=86_400;
/// Certificates about which one errand asks.
const ASKED_AT_ONCE: usize = 32;
/// Asked again after this when a worker was started anew while the server looked.
const DISTURBED_MS: u64 = 1000;
/// Most names that control is told of.
const TOLD_MAX: usize = 64;
/// Of a reason.
const WORDS_MAX: usize = 400;

/// All names.
#[derive(Default)]
pub(super) struct Names {
    all: BTreeMap<String, Name>,
    open: Option<Open>,
    /// Of the challenge that was opened or closed last.
    number: u64,
    issued: u64,
    failed: u64,
    hasher: RandomState,
}

/// What is known of a name.
struct Name {
    /// The certificate that is shown.
    shown: Option<Life>,
    /// When the server wants it renewed.
    advised: Option<RenewalWindow>,
    /// When a certificate is to be had.
    obtain_ms: u64,
    /// When the server is asked about the one that is there.
    ask_ms: u64,
    failures: u32,
    /// Why the last attempt failed.
    why: Option<String>,
}

/// A certificate's time, and what tells it from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Life {
    from_s: u64,
    until_s: u64,
    digest: u64,
}

/// A challenge that workers show, or are about to.
struct Open {
    number: u64,
    /// As workers are told.
    told: Zeroizing<String>,
    /// Whom we sent has been told that all show it.
    is_shown: bool,
    /// A worker was started meanwhile: whoever looked just then may have seen nothing.
    is_disturbed: bool,
}

impl Life {
    /// When it is renewed: within the time that the server wants, else when two thirds are over
    /// and somewhat sooner; in any case before the last tenth begins. `share`, of 2^64, is by how
    /// much machines differ, so that they do not ask all at once.
    fn renew_at_s(self, advised: Option<RenewalWindow>, share: u64) -> u64 {
        let part = |whole_s: u64| ((u128::from(whole_s) * u128::from(share)) >> 64) as u64;
        let life_s = self.until_s.saturating_sub(self.from_s);
        let latest_s = self.until_s.saturating_sub(life_s / 10);
        match advised {
            Some(window) => {
                let from_s = u64::try_from(window.from_s).unwrap_or(0);
                let until_s = u64::try_from(window.until_s).unwrap_or(0);
                let at_s = from_s.saturating_add(part(until_s.saturating_sub(from_s)));
                at_s.min(latest_s)
            }
            None => {
                let third_s = life_s / 3;
                self.until_s.saturating_sub(third_s + part(third_s / 10))
            }
        }
    }
}

impl Names {
    /// The configuration or the certificates have changed.
    pub(super) fn look_through(&mut self, config: &Config, pems: &[Vec<Pem>], now_ms: u64) {
        let mut former = std::mem::take(&mut self.all);
        for name in config.acme_names() {
            let file = acme::file_of(config, name).display().to_string();
            let pem = pems.iter().flatten().find(|pem| pem.name == file);
            let shown = pem.and_then(|pem| self.life(pem));
            let entry = match former.remove(name) {
                Some(entry) if entry.shown == shown => entry,
                known => {
                    let mut entry = Name {
                        shown,
                        advised: None,
                        obtain_ms: now_ms,
                        // One that was there before is asked about at once, a new one later.
                        ask_ms: now_ms + if known.is_some() { ASK_MS } else { 0 },
                        failures: 0,
                        why: None,
                    };
                    entry.plan(&self.hasher, name, now_ms);
                    entry
                }
            };
            self.all.insert(name.to_owned(), entry);
        }
    }

    fn life(&self, pem: &Pem) -> Option<Life> {
        let identity = pem.identity().ok()?;
        Some(Life {
            from_s: identity.begins_at_s(),
            until_s: identity.expires_at_s(),
            digest: self.hasher.hash_one(&pem.chain),
        })
    }

    /// Somebody has reloaded, and may have mended what was wrong.
    pub(super) fn try_at_once(&mut self) {
        let now_ms = process::boottime_ms();
        for (name, entry) in &mut self.all {
            entry.failures = 0;
            entry.ask_ms = entry.ask_ms.min(now_ms);
            entry.plan(&self.hasher, name, now_ms);
        }
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.all.values().map(Name::due_ms).min()
    }

    /// The attempt for this name came to nothing, and the next one is put off.
    fn failed(&mut self, name: &str, why: &str, now_ms: u64) {
        let failures = self.all.get(name).map_or(0, |entry| entry.failures);
        self.failed_until(name, why, now_ms, backoff_ms(failures));
    }

    fn failed_until(&mut self, name: &str, why: &str, now_ms: u64, pause_ms: u64) {
        let Some(entry) = self.all.get_mut(name) else {
            return;
        };
        self.failed += 1;
        entry.failures = entry.failures.saturating_add(1);
        entry.obtain_ms = now_ms + pause_ms;
        entry.why = Some(why.chars().take(WORDS_MAX).collect());
        let again_in_s = pause_ms / 1000;
        match entry.shown {
            None => tracing::warn!(
                name,
                again_in_s,
                "no certificate from the ACME server: {why}; clients which ask for this name are refused"
            ),
            Some(shown) => {
                let left_s = shown.until_s.saturating_sub(unix_time().as_secs());
                tracing::warn!(
                    name,
                    again_in_s,
                    ends_in_s = left_s,
                    "no new certificate from the ACME server: {why}; the one of before is shown"
                );
            }
        }
    }

    /// What control is told: those which fail first, then those which are due first.
    pub(super) fn told(&self) -> Option<talk::Acme> {
        if self.all.is_empty() {
            return None;
        }
        let name = |(name, entry): (&String, &Name)| talk::AcmeName {
            name: name.clone(),
            expires_s: entry.shown.map(|shown| shown.until_s),
            next_ms: entry.obtain_ms,
            failures: entry.failures,
            why: entry.why.clone(),
        };
        let mut names: Vec<talk::AcmeName> = self.all.iter().map(name).collect();
        names.sort_by_key(|name| (name.failures == 0, name.next_ms));
        names.truncate(TOLD_MAX);
        Some(talk::Acme {
            issued: self.issued,
            failed: self.failed,
            names,
        })
    }
}

impl Name {
    fn due_ms(&self) -> u64 {
        match self.shown {
            Some(_) => self.obtain_ms.min(self.ask_ms),
            None => self.obtain_ms,
        }
    }

    /// Decides when the next certificate is to be had. One that failed keeps its turn.
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
                now_ms.saturating_add(in_s.saturating_mul(1000))
            }
        };
    }
}

impl Supervisor {
    /// What is to be done for names now: one certificate, or questions about some.
    pub(super) fn jobs_for_names(&mut self, now_ms: u64) -> Option<(Vec<Job>, Task)> {
        let all = &self.errands.names.all;
        let to_obtain = all.iter().filter(|(_, entry)| entry.obtain_ms <= now_ms);
        if let Some((name, entry)) = to_obtain.min_by_key(|(_, entry)| entry.obtain_ms) {
            let (name, has_one) = (name.clone(), entry.shown.is_some());
            return match self.acme_server() {
                Ok(server) => {
                    let replaces = has_one.then(|| self.leaf_for(&name)).flatten();
                    let task = Task::Obtain {
                        name: name.clone(),
                        directory: server.directory.clone(),
                    };
                    let wanted = CertificateRequest {
                        server,
                        name,
                        replaces,
                    };
                    Some((vec![Job::Obtain(wanted)], task))
                }
                Err(why) => {
                    self.errands.names.failed(&name, &why, now_ms);
                    None
                }
            };
        }
        let is_due = |entry: &Name| entry.shown.is_some() && entry.ask_ms <= now_ms;
        let due = all.iter().filter(|(_, entry)| is_due(entry));
        let due: Vec<String> = due
            .map(|(name, _)| name.clone())
            .take(ASKED_AT_ONCE)
            .collect();
        if due.is_empty() {
            return None;
        }
        // Whatever comes of it.
        for name in &due {
            if let Some(entry) = self.errands.names.all.get_mut(name) {
                entry.ask_ms = now_ms + ASK_MS;
            }
        }
        let server = self.acme_server().ok()?;
        let ask = |name: String| {
            let certificate = self.leaf_for(&name)?;
            let server = server.clone();
            Some(Job::AskRenewal(RenewalQuery {
                server,
                name,
                certificate,
            }))
        };
        let jobs: Vec<Job> = due.into_iter().filter_map(ask).collect();
        tracing::debug!(
            certificates = jobs.len(),
            "the ACME server is asked when to renew"
        );
        (!jobs.is_empty()).then_some((jobs, Task::AskWindows))
    }

    fn acme_server(&self) -> Result<AcmeServer, String> {
        let config = &self.config;
        let key = acme::binding_key(config)?;
        let binding = config.acme.acme_eab_id.clone().zip(key);
        let account = acme::account(config).unwrap_or_else(|why| {
            tracing::warn!("a new account is made at the ACME server: {why}");
            None
        });
        Ok(AcmeServer {
            directory: config.acme.acme_server.clone(),
            email: config.acme.acme_email.clone(),
            account,
            binding: binding.map(|(id, key)| AccountBinding {
                id,
                key: key.as_str().to_owned(),
            }),
        })
    }

    /// The certificate that is shown for a name, DER.
    fn leaf_for(&self, name: &str) -> Option<Vec<u8>> {
        let file = acme::file_of(&self.config, name).display().to_string();
        let pem = self
            .certificates
            .iter()
            .flatten()
            .find(|pem| pem.name == file)?;
        pem_chain(pem.chain.as_bytes())?.into_iter().next()
    }

    // ---- what the errand says ----

    /// There is an account now.
    pub(super) fn on_account(&mut self, account: &Account) {
        if account.directory != self.config.acme.acme_server {
            return;
        }
        match acme::keep_account(&self.config, account) {
            Ok(()) => tracing::info!(
                server = account.directory,
                account = account.id,
                "there is an account at the ACME server now"
            ),
            Err(why) => tracing::error!("the account at the ACME server can't be kept: {why}"),
        }
    }

    /// When a certificate is to be renewed.
    pub(super) fn on_window(&mut self, name: &str, window: Result<Option<RenewalWindow>, String>) {
        let now_ms = process::boottime_ms();
        let names = &mut self.errands.names;
        let Some(entry) = names.all.get_mut(name) else {
            return;
        };
        match window {
            Ok(Some(window)) => {
                let again_s = window.ask_again_s.clamp(*AGAIN_S.start(), *AGAIN_S.end());
                entry.ask_ms = now_ms + again_s * 1000;
                entry.advised = Some(window);
                entry.plan(&names.hasher, name, now_ms);
            }
            Ok(None) => {
                tracing::debug!(name, "the ACME server does not say when to renew");
                entry.ask_ms = now_ms + DAY_MS;
            }
            Err(why) => tracing::info!(name, "the ACME server does not say when to renew: {why}"),
        }
    }

    /// An order has ended.
    pub(super) fn on_certificate(
        &mut self,
        name: &str,
        directory: &str,
        had: Result<IssuedCertificate, String>,
    ) {
        let open = self.errands.names.open.as_ref();
        let is_disturbed = open.is_some_and(|open| open.is_disturbed);
        self.close_challenge();
        // Meanwhile there may be another configuration.
        let is_wanted = self.config.acme.acme_server == directory;
        if !is_wanted || !self.errands.names.all.contains_key(name) {
            return;
        }
        if let Err(why) = had.and_then(|had| self.take_certificate(name, &had)) {
            let (names, now_ms) = (&mut self.errands.names, process::boottime_ms());
            match is_disturbed {
                true => names.failed_until(name, &why, now_ms, DISTURBED_MS),
                false => names.failed(name, &why, now_ms),
            }
        }
        process::return_heap();
    }

    fn take_certificate(&mut self, name: &str, had: &IssuedCertificate) -> Result<(), String> {
        let file = acme::file_of(&self.config, name).display().to_string();
        let pem = Pem {
            name: file.clone(),
            key_name: file,
            chain: certificates_in(&had.chain),
            ocsp: Vec::new(),
            ocsp_from_file: false,
            key: had.key.pem().as_str().to_owned(),
        };
        acme::check_for(&pem, name)?;
        self.errands.names.issued += 1;
        if let Err(why) = acme::keep(&self.config, name, &pem) {
            // It is used all the same, and asked for again when somebody starts anew.
            tracing::error!("a certificate can't be kept: {why}");
        }
        let mut certificates = self.certificates.clone();
        acme::place(&self.config, &mut certificates, name, &pem);
        let (config, plan) = (self.config.clone(), self.plan.clone());
        let trust = self.client_trust.clone();
        self.apply(config, plan, certificates, trust)?;
        tracing::info!(
            name,
            edition = self.edition,
            "a certificate has come from the ACME server, and is used from now on"
        );
        Ok(())
    }

    /// The process that asked for this certificate is gone, and has said nothing of it.
    pub(super) fn order_was_lost(&mut self, name: &str, why: &str) {
        self.close_challenge();
        self.errands.names.failed(name, why, process::boottime_ms());
    }

    // ---- challenges ----

    /// Workers are to show that a name is ours.
    pub(super) fn open_challenge(&mut self, challenge: &Challenge) {
        let names = &mut self.errands.names;
        names.number += 1;
        let key = challenge.key.pem();
        let len = challenge.name.len() + challenge.chain.len() + key.len() + 2;
        let mut told = Zeroizing::new(String::with_capacity(len));
        for part in [&challenge.name, "\n", &challenge.chain, "\n", &*key] {
            told.push_str(part);
        }
        tracing::debug!(
            name = challenge.name,
            "a challenge of the ACME server is open"
        );
        names.open = Some(Open {
            number: names.number,
            told,
            is_shown: false,
            is_disturbed: false,
        });
        for worker in 0..self.pairs.len() {
            self.give_challenge(worker);
        }
    }

    /// A worker has been started anew: it knows of no challenge yet.
    pub(super) fn give_challenge_again(&mut self, worker: usize) {
        if let Some(open) = &mut self.errands.names.open {
            open.is_disturbed = true;
        }
        self.give_challenge(worker);
    }

    /// Tells a worker of the challenge that is open, if one is.
    fn give_challenge(&self, worker: usize) {
        if let (Some(open), Some(pair)) = (&self.errands.names.open, self.pairs.get(worker)) {
            pair.order(&Order::Challenge(open.number, Some(open.told.clone())));
        }
    }

    /// A worker shows it.
    pub(super) fn on_shown(&mut self, worker: usize, number: u64) {
        if let Some(pair) = self.pairs.get_mut(worker) {
            pair.shows = number;
        }
    }

    /// When all workers show it, the server may look. Called once a turn.
    pub(super) fn tell_what_is_shown(&mut self) {
        let Some(open) = &mut self.errands.names.open else {
            return;
        };
        let number = open.number;
        let has_it = |pair: &super::pairs::Pair| pair.shows == number || pair.is_over;
        if !open.is_shown && self.pairs.iter().all(has_it) {
            open.is_shown = true;
            self.errands.say(&Job::Proceed);
        }
    }

    /// Nobody is to ask any more.
    pub(super) fn close_challenge(&mut self) {
        let names = &mut self.errands.names;
        if names.open.take().is_none() {
            return;
        }
        names.number += 1;
        for pair in &self.pairs {
            pair.order(&Order::Challenge(names.number, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;
    const LIFE: Life = Life {
        from_s: 1000 * DAY_S,
        until_s: 1090 * DAY_S,
        digest: 0,
    };

    #[test]
    fn it_is_renewed_when_two_thirds_are_over() {
        assert_eq!(LIFE.renew_at_s(None, 0), 1060 * DAY_S);
        let soonest_s = LIFE.renew_at_s(None, u64::MAX);
        assert!((1057 * DAY_S..1057 * DAY_S + 60).contains(&soonest_s));
    }

    #[test]
    fn it_is_renewed_when_the_server_wants_it_but_never_too_late() {
        let window = |from_day: i64, until_day: i64| {
            let day_s = DAY_S as i64;
            Some(RenewalWindow {
                from_s: from_day * day_s,
                until_s: until_day * day_s,
                ask_again_s: 0,
            })
        };
        assert_eq!(LIFE.renew_at_s(window(1050, 1052), 1 << 63), 1051 * DAY_S);
        assert_eq!(LIFE.renew_at_s(window(-5, 3), 0), 0, "at once");
        assert_eq!(LIFE.renew_at_s(window(2000, 2001), 0), 1081 * DAY_S);
        assert_eq!(LIFE.renew_at_s(window(7, -7), 9), 7 * DAY_S, "senseless");
    }
}
