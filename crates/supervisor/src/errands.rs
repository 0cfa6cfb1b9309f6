//! What authorities are asked, and when: which certificates need an OCSP response, and the process
//! that goes and asks (`errand`), also for certificates of ACME servers (`names`).

use super::names::Names;
use super::{Supervisor, TOKEN_ERRAND};
use crate::material;
use dormouse_config::Ca;
use dormouse_engine::{ocsp_question, pem_chain};
use dormouse_handover::talk;
use dormouse_handover::unix_time;
use dormouse_handover::{Pem, parts};
use dormouse_helpers::errand::{ErrandArguments, ErrandReport, IssuedCertificate, Job};
use dormouse_helpers::helper::{self, Privileges};
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

/// What somebody was sent for.
pub(crate) enum Task {
    /// OCSP responses.
    Ocsp,
    /// A certificate for this name from this server. Until it has said what came of it.
    Obtain { name: String, directory: String },
    /// When certificates are to be renewed.
    AskWindows,
}

/// The process, while there is one.
struct Running {
    pid: Pid,
    channel: Fd,
    by_ms: u64,
    task: Option<Task>,
}

/// What is to be asked, and who asks.
#[derive(Default)]
pub(super) struct Errands {
    entries: HashMap<u64, Entry>,
    hasher: RandomState,
    running: Option<Running>,
    /// Names for which certificates are had.
    pub(super) names: Names,
    /// The edition of certificates that was looked through last.
    edition: Option<u64>,
}

impl Errands {
    /// Says something to whom was sent.
    pub(super) fn say(&self, job: &Job) {
        if let Some(running) = &self.running {
            // Its end is heard of otherwise.
            let _ = talk::send(running.channel, job);
        }
    }

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

    /// When a responder is to be asked.
    fn ocsp_due_ms(&self) -> Option<u64> {
        let asks = |entry: &&Entry| !entry.chain.is_empty();
        let due = self.entries.values().filter(asks);
        due.map(|entry| entry.due_ms).min()
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
        if self.stopping || self.upgrade.is_some() {
            return None;
        }
        match &self.errands.running {
            Some(running) => Some(running.by_ms),
            // Nobody could look whether a name is ours.
            None if self.drain.is_some() => None,
            None if self.errands.edition != Some(self.edition) => Some(0),
            None => {
                let due = [self.ocsp_due_ms(), self.errands.names.next_due_ms()];
                due.into_iter().flatten().min()
            }
        }
    }

    fn ocsp_due_ms(&self) -> Option<u64> {
        let asks = self.config.process.ocsp_fetch;
        asks.then(|| self.errands.ocsp_due_ms()).flatten()
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
            let (config, certificates) = (&self.config, &self.certificates);
            self.errands
                .names
                .look_through(config, certificates, now_ms);
        }
        // Whatever is due for longer goes first, so that neither waits for the other for ever.
        let names_ms = self.errands.names.next_due_ms();
        let ocsp_ms = self.ocsp_due_ms().filter(|&at_ms| at_ms <= now_ms);
        let is_for_names = names_ms.is_some_and(|at_ms| at_ms <= ocsp_ms.unwrap_or(now_ms));
        let (jobs, task) = match is_for_names {
            true => match self.jobs_for_names(now_ms) {
                Some(jobs) => jobs,
                None => return,
            },
            false if ocsp_ms.is_some() => (self.ocsp_jobs(now_ms), Task::Ocsp),
            false => return,
        };
        if let Err((task, error)) = self.send_errand(jobs, task, now_ms) {
            self.not_done(task, &format!("nobody can be sent to ask: {error}"));
        }
    }

    fn ocsp_jobs(&self, now_ms: u64) -> Vec<Job> {
        let entries = self.errands.entries.iter();
        let due = entries.filter(|(_, entry)| !entry.chain.is_empty() && entry.due_ms <= now_ms);
        due.map(|(&id, entry)| Job::Ocsp {
            id,
            chain: entry.chain.clone(),
        })
        .collect()
    }

    /// Whoever was sent, or should have been, has not come back with everything.
    fn not_done(&mut self, task: Task, why: &str) {
        match task {
            Task::Obtain { name, .. } => self.order_was_lost(&name, why),
            Task::Ocsp => {
                tracing::warn!("authorities can't be asked about certificates: {why}");
                self.put_off(process::boottime_ms());
            }
            Task::AskWindows => tracing::warn!("the ACME server can't be asked: {why}"),
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

    /// Sends a process with these jobs. What does not fit goes with the next one.
    fn send_errand(
        &mut self,
        jobs: Vec<Job>,
        task: Task,
        now_ms: u64,
    ) -> Result<(), (Task, io::Error)> {
        let acme_ca = match task {
            Task::Ocsp => None,
            Task::Obtain { .. } | Task::AskWindows => Some(&self.config.acme.acme_ca),
        };
        match self.start_errand(&jobs, acme_ca) {
            Ok((pid, channel)) => {
                self.errands.running = Some(Running {
                    pid,
                    channel,
                    by_ms: now_ms + PATIENCE_MS,
                    task: Some(task),
                });
                Ok(())
            }
            Err(error) => Err((task, error)),
        }
    }

    fn start_errand(&self, jobs: &[Job], acme_ca: Option<&Ca>) -> io::Result<(Pid, Fd)> {
        let trust = match acme_ca {
            Some(ca) => Some(trusted(ca)?),
            None => None,
        };
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        for job in jobs {
            if !matches!(talk::send(ours, job), Ok(Attempt::Done(()))) {
                break;
            }
        }
        let privileges = Privileges::nobody(&self.config);
        let told = ErrandArguments {
            channel: theirs.0,
            trust: trust.map(|fd| fd.0),
        };
        let inherited = trust.into_iter().chain([theirs]).collect();
        let started = helper::start("errand", &privileges, &told, inherited);
        trust.into_iter().for_each(Fd::close);
        theirs.close();
        let pid = started.inspect_err(|_| ours.close())?;
        self.poller.add(ours, TOKEN_ERRAND, Interest::READ)?;
        Ok((pid, ours))
    }

    /// An upgrade begins, or the end: what is under way is begun anew after it.
    pub(super) fn call_back_errand(&mut self) {
        if let Some(running) = &mut self.errands.running {
            running.task = None;
            let _ = process::send_signal(running.pid, Signal::Kill);
        }
        self.close_challenge();
    }

    /// It says what it found.
    pub(super) fn on_errand(&mut self) {
        let mut news = false;
        while let Some(running) = &self.errands.running {
            match talk::receive::<ErrandReport>(running.channel) {
                // It was called back.
                Ok(Some(_)) if running.task.is_none() => {}
                Ok(Some(ErrandReport::Ocsp { id, response })) => {
                    news |= self.on_answer(id, response)
                }
                Ok(Some(ErrandReport::Account(account))) => self.on_account(&account),
                Ok(Some(ErrandReport::Challenge(challenge))) => {
                    // For no other name than the one that is wanted.
                    let is_for = |task: &Task| matches!(task, Task::Obtain { name, .. } if *name == challenge.name);
                    if running.task.as_ref().is_some_and(is_for) {
                        self.open_challenge(&challenge);
                    }
                }
                Ok(Some(ErrandReport::Renewal { name, window })) => self.on_window(&name, window),
                Ok(Some(ErrandReport::Certificate { issued, .. })) => self.on_order_done(issued),
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

    /// Only what was asked for is taken.
    fn on_order_done(&mut self, had: Result<IssuedCertificate, String>) {
        let running = self.errands.running.as_mut();
        let task = running.and_then(|running| running.task.replace(Task::AskWindows));
        if let Some(Task::Obtain { name, directory }) = task {
            self.on_certificate(&name, &directory, had);
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
        let Some(running) = self.errands.running.take() else {
            return true;
        };
        let _ = self.poller.remove(running.channel);
        running.channel.close();
        match running.task {
            Some(task @ Task::Obtain { .. }) => {
                self.not_done(
                    task,
                    &format!("the process that asks for it ended: {ended}"),
                );
            }
            Some(task) if ended != Ended::Exited(0) => {
                self.not_done(task, &format!("the process that asks ended: {ended}"));
            }
            Some(_) | None => {}
        }
        true
    }
}

/// Those who may vouch for ACME servers, in a memory file: an errand could not read them.
fn trusted(ca: &Ca) -> io::Result<Fd> {
    let text = material::authorities(ca).map_err(io::Error::other)?;
    parts::write_text(&text)
}

impl Entry {
    fn failed(&mut self, now_ms: u64) {
        self.due_ms = now_ms + backoff_ms(self.failures);
        self.failures = self.failures.saturating_add(1);
    }
}

/// How long to wait after so many failures before and this one.
pub(super) fn backoff_ms(failures: u32) -> u64 {
    (AGAIN_MS << failures.min(6)).min(AGAIN_MAX_MS)
}

/// Up to a tenth sooner, so that a fleet does not ask all at once.
fn jitter(hasher: &RandomState, seed: u64, in_ms: u64) -> u64 {
    in_ms - hasher.hash_one(seed) % (in_ms / 10).max(1)
}
