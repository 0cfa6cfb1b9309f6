//! What authorities are asked, and when: which certificates need an OCSP response, and the process
//! that goes and asks (`errand`).

use super::{Supervisor, TOKEN_ERRAND};
use crate::beside::{self, Standing};
use crate::control::talk;
use crate::errand::{Found, Job, Told};
use crate::handover::{Pem, unix_time};
use dormouse_engine::{ocsp_question, pem_chain};
use dormouse_reactor::poller::Interest;
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;

/// An errand that takes longer is ended.
const PATIENCE_MS: u64 = 120_000;
/// Asked again after this when there was no answer, then ever later, up to an hour.
const AGAIN_MS: u64 = 60_000;
const AGAIN_MAX_MS: u64 = 3_600_000;
/// An answer is renewed in the middle of its time, but after so long at most, and at least.
const RENEW_MS: std::ops::Range<u64> = 60_000..12 * 3_600_000;

/// What is known of a chain.
struct Entry {
    /// DER. Empty: it names no responder, or a file has the answer.
    chain: Vec<Vec<u8>>,
    due_ms: u64,
    failures: u32,
}

/// The process, while there is one.
struct Running {
    pid: Pid,
    channel: Fd,
    by_ms: u64,
}

/// What is to be asked, and who asks.
#[derive(Default)]
pub(super) struct Errands {
    entries: HashMap<u64, Entry>,
    hasher: RandomState,
    running: Option<Running>,
    /// The edition of certificates that was looked through last.
    edition: Option<u64>,
}

impl Errands {
    /// Which of these certificates have an authority that can be asked.
    fn look_through(&mut self, certificates: &[Vec<Pem>], edition: u64) {
        self.edition = Some(edition);
        let mut former = std::mem::take(&mut self.entries);
        for pem in certificates
            .iter()
            .flatten()
            .filter(|pem| !pem.ocsp_from_file)
        {
            let id = self.hasher.hash_one(&pem.chain);
            let entry = former.remove(&id).unwrap_or_else(|| Entry::of(pem));
            self.entries.entry(id).or_insert(entry);
        }
    }

    fn next_due_ms(&self) -> Option<u64> {
        let asks = |entry: &&Entry| !entry.chain.is_empty();
        self.entries
            .values()
            .filter(asks)
            .map(|entry| entry.due_ms)
            .min()
    }
}

impl Entry {
    fn of(pem: &Pem) -> Entry {
        let chain = pem_chain(pem.chain.as_bytes()).unwrap_or_default();
        let slices: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        let has_responder = ocsp_question(&slices).is_some();
        Entry {
            chain: if has_responder { chain } else { Vec::new() },
            due_ms: 0,
            failures: 0,
        }
    }
}

impl Supervisor {
    /// When something has to be done for it.
    pub(super) fn next_errand_ms(&self) -> Option<u64> {
        if self.stopping || self.upgrade.is_some() || !self.config.process.ocsp_fetch {
            return None;
        }
        match &self.errands.running {
            Some(running) => Some(running.by_ms),
            None if self.errands.edition != Some(self.edition) => Some(0),
            None => self.errands.next_due_ms(),
        }
    }

    /// Sends somebody, if it is time. Called once a turn.
    pub(super) fn attend_to_errands(&mut self) {
        let now_ms = process::boottime_ms();
        if self.next_errand_ms().is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        if let Some(running) = &self.errands.running {
            tracing::warn!("an errand takes too long, and is ended");
            let _ = process::send_signal(running.pid, Signal::Kill);
            // Its end is heard of by SIGCHLD.
            if let Some(running) = &mut self.errands.running {
                running.by_ms = u64::MAX;
            }
            return;
        }
        if self.errands.edition != Some(self.edition) {
            self.errands.look_through(&self.certificates, self.edition);
        }
        if self
            .errands
            .next_due_ms()
            .is_some_and(|at_ms| at_ms <= now_ms)
            && let Err(error) = self.send_errand(now_ms)
        {
            tracing::warn!(%error, "authorities can't be asked about certificates");
            self.put_off(now_ms);
        }
    }

    fn put_off(&mut self, now_ms: u64) {
        for entry in self
            .errands
            .entries
            .values_mut()
            .filter(|e| e.due_ms <= now_ms)
        {
            entry.failed(now_ms);
        }
    }

    fn send_errand(&mut self, now_ms: u64) -> io::Result<()> {
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        let due = self
            .errands
            .entries
            .iter()
            .filter(|(_, entry)| !entry.chain.is_empty() && entry.due_ms <= now_ms);
        for (&id, entry) in due {
            let job = Job::Ocsp {
                id,
                chain: entry.chain.clone(),
            };
            // What does not fit goes with the next one.
            if !matches!(talk::send(ours, &job), Ok(Attempt::Done(()))) {
                break;
            }
        }
        let standing = Standing::nobody(&self.config);
        let told = Told { channel: theirs.0 };
        let started = beside::start("errand", &standing, &told, vec![theirs]);
        theirs.close();
        let pid = started.inspect_err(|_| ours.close())?;
        self.poller.add(ours, TOKEN_ERRAND, Interest::READ)?;
        self.errands.running = Some(Running {
            pid,
            channel: ours,
            by_ms: now_ms + PATIENCE_MS,
        });
        Ok(())
    }

    /// It says what it found.
    pub(super) fn on_errand(&mut self) {
        let mut news = false;
        while let Some(running) = &self.errands.running {
            match talk::receive::<Found>(running.channel) {
                Ok(Some(Found::Ocsp { id, answer })) => news |= self.on_answer(id, answer),
                Ok(None) => break,
                // Its end is heard of by SIGCHLD.
                Err(_) => {
                    let _ = self.poller.remove(running.channel);
                    break;
                }
            }
        }
        if news {
            let (config, plan) = (self.config.clone(), self.plan.clone());
            let (certificates, trust) = (self.certificates.clone(), self.client_trust.clone());
            if let Err(error) = self.apply(config, plan, certificates, trust) {
                tracing::error!("new OCSP responses can't be used: {error}");
            }
            process::return_heap();
        }
    }

    /// True: it is to be shown from now on.
    fn on_answer(&mut self, id: u64, answer: Result<(Vec<u8>, u64), String>) -> bool {
        let now_ms = process::boottime_ms();
        let Some(entry) = self.errands.entries.get_mut(&id) else {
            return false;
        };
        let hasher = &self.errands.hasher;
        let pems = self.certificates.iter_mut().flatten();
        let mut pems = pems.filter(|pem| hasher.hash_one(&pem.chain) == id);
        match answer {
            Ok((response, until_s)) => {
                let left_ms = until_s.saturating_sub(unix_time().as_secs()) * 1000;
                let in_ms = (left_ms / 2).clamp(RENEW_MS.start, RENEW_MS.end);
                entry.due_ms = now_ms + jitter(&self.errands.hasher, now_ms, in_ms);
                entry.failures = 0;
                let mut is_new = false;
                for pem in pems {
                    tracing::info!(
                        certificate = pem.name,
                        "the authority's OCSP response is stapled"
                    );
                    is_new |= pem.ocsp != response;
                    pem.ocsp.clone_from(&response);
                }
                is_new
            }
            Err(why) => {
                entry.failed(now_ms);
                let name = pems.next().map_or("", |pem| pem.name.as_str());
                tracing::warn!(certificate = name, "no new OCSP response: {why}");
                false
            }
        }
    }

    /// Was this an errand? Then it has ended.
    pub(super) fn is_errand(&mut self, pid: Pid, ended: Ended) -> bool {
        if self
            .errands
            .running
            .as_ref()
            .is_none_or(|running| running.pid != pid)
        {
            return false;
        }
        // It may have said something before.
        self.on_errand();
        if let Some(running) = self.errands.running.take() {
            let _ = self.poller.remove(running.channel);
            running.channel.close();
        }
        if ended != Ended::Exited(0) {
            tracing::warn!("an errand ended: {ended}");
            self.put_off(process::boottime_ms());
        }
        true
    }
}

impl Entry {
    fn failed(&mut self, now_ms: u64) {
        let again_ms = (AGAIN_MS << self.failures.min(6)).min(AGAIN_MAX_MS);
        self.failures = self.failures.saturating_add(1);
        self.due_ms = now_ms + again_ms;
    }
}

/// Up to a tenth sooner, so that a fleet does not ask all at once.
fn jitter(hasher: &RandomState, seed: u64, in_ms: u64) -> u64 {
    in_ms - hasher.hash_one(seed) % (in_ms / 10).max(1)
}
