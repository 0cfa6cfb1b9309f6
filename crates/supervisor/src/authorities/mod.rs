//! OCSP responders and ACME servers: when to query them, and the errand process that does so. Main
//! runs one errand at a time, with the jobs queued in its channel.
//!
//! ```text
//!   ocsp   responses to staple                        acme       certificates for names
//!   retry  pauses after failures                      challenge  proof of control of a name
//! ```

mod acme;
mod challenge;
mod ocsp;
mod retry;

use crate::edition::Edition;
use crate::material::{self, Certificates};
use crate::pairs::Pairs;
use crate::tokens;
use acme::{AcmeNames, AcmeWork};
use challenge::OpenChallenge;
use dormouse_config::{Ca, Config};
use dormouse_handover::control;
use dormouse_handover::message;
use dormouse_handover::parts;
use dormouse_helpers::errand::{ErrandArguments, ErrandReport, Job};
use dormouse_helpers::helper::{self, Privileges};
use dormouse_helpers::redirect::HttpChallenge;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};
use ocsp::OcspSchedule;
use std::io;

/// Maximum run time of an errand; then main kills it.
const TIMEOUT_MS: u64 = 120_000;

/// Schedules of all queries, and the current errand.
#[derive(Default)]
pub(crate) struct Authorities {
    ocsp: OcspSchedule,
    names: AcmeNames,
    challenge: OpenChallenge,
    errand: Option<Errand>,
    /// The edition that `ocsp` and `names` are based on.
    edition: Option<u64>,
}

/// A running errand.
struct Errand {
    pid: Pid,
    channel: Fd,
    due_ms: u64,
    /// `None`: the errand was cancelled, and its reports are discarded.
    purpose: Option<Purpose>,
}

/// The purpose of an errand.
enum Purpose {
    /// OCSP queries.
    Ocsp,
    /// An order for a certificate for this name from this server.
    Order { name: String, directory: String },
    /// Queries for renewal windows.
    AskRenewals,
}

/// New certificates for clients.
pub(crate) enum NewCertificates {
    /// The same certificates with new OCSP responses.
    Stapled(Certificates),
    /// With a certificate that an ACME server has issued for this name.
    Issued {
        name: String,
        certificates: Certificates,
    },
}

impl Authorities {
    /// Time of the next action. `can_order`: clients are accepted, so that an ACME server can validate a
    /// name.
    pub(crate) fn next_deadline_ms(&self, edition: &Edition, can_order: bool) -> Option<u64> {
        match &self.errand {
            Some(errand) => Some(errand.due_ms),
            None if !can_order => None,
            None if self.edition != Some(edition.number) => Some(0),
            None => {
                let due = [self.ocsp_due_ms(&edition.config), self.names.next_due_ms()];
                due.into_iter().flatten().min()
            }
        }
    }

    fn ocsp_due_ms(&self, config: &Config) -> Option<u64> {
        let asks = config.process.ocsp_fetch;
        asks.then(|| self.ocsp.next_due_ms()).flatten()
    }

    /// Starts an errand, or kills one that runs too long. Called once per turn after the deadline.
    pub(crate) fn attend(&mut self, edition: &Edition, pairs: &Pairs, poller: &Poller) {
        let now_ms = process::boottime_ms();
        if let Some(errand) = &mut self.errand {
            tracing::warn!(process = "errand", "helper process timed out; killing it");
            let _ = process::send_signal(errand.pid, Signal::Kill);
            // SIGCHLD reports the exit.
            errand.due_ms = u64::MAX;
            return;
        }
        if self.edition != Some(edition.number) {
            self.edition = Some(edition.number);
            self.ocsp.follow(&edition.material.certificates);
            let certificates = &edition.material.certificates;
            self.names.follow(&edition.config, certificates, now_ms);
        }
        let Some((jobs, purpose)) = self.next_jobs(edition, now_ms) else {
            return;
        };
        let acme_ca = match purpose {
            Purpose::Ocsp => None,
            Purpose::Order { .. } | Purpose::AskRenewals => Some(&edition.config.acme.acme_ca),
        };
        match start_errand(&jobs, acme_ca, &edition.config, poller) {
            Ok((pid, channel)) => {
                self.errand = Some(Errand {
                    pid,
                    channel,
                    due_ms: now_ms + TIMEOUT_MS,
                    purpose: Some(purpose),
                });
            }
            Err(error) => {
                self.note_failure(
                    purpose,
                    &format!("the errand process could not be started: {error}"),
                    pairs,
                );
            }
        }
    }

    /// Returns the jobs that have been due for longest, so that OCSP and ACME cannot starve each other.
    fn next_jobs(&mut self, edition: &Edition, now_ms: u64) -> Option<(Vec<Job>, Purpose)> {
        let ocsp_ms = self.ocsp_due_ms(&edition.config);
        let ocsp_ms = ocsp_ms.filter(|&at_ms| at_ms <= now_ms);
        let names_ms = self.names.next_due_ms();
        if names_ms.is_none_or(|at_ms| at_ms > ocsp_ms.unwrap_or(now_ms)) {
            return ocsp_ms.map(|_| (self.ocsp.jobs(now_ms), Purpose::Ocsp));
        }
        Some(match self.names.work(edition, now_ms)? {
            AcmeWork::Order(request) => {
                let purpose = Purpose::Order {
                    name: request.name.clone(),
                    directory: request.server.directory.clone(),
                };
                (vec![Job::Obtain(request)], purpose)
            }
            AcmeWork::AskRenewals(jobs) => (jobs, Purpose::AskRenewals),
        })
    }

    /// Records that an errand could not be started, or ended too early.
    fn note_failure(&mut self, purpose: Purpose, why: &str, pairs: &Pairs) {
        let now_ms = process::boottime_ms();
        match purpose {
            Purpose::Order { name, .. } => {
                self.challenge.close(pairs);
                self.names.note_failure(&name, why, now_ms);
            }
            Purpose::Ocsp => {
                tracing::warn!(error = why, "OCSP query failed");
                self.ocsp.put_off(now_ms);
            }
            Purpose::AskRenewals => tracing::warn!(error = why, "ACME renewal query failed"),
        }
    }

    /// Processes all reports of the errand.
    pub(crate) fn receive(
        &mut self,
        edition: &Edition,
        pairs: &Pairs,
        poller: &Poller,
    ) -> Vec<NewCertificates> {
        let mut new = Vec::new();
        let mut stapled = None;
        let mut has_response = false;
        while let Some(report) = self.next_report(poller) {
            match report {
                ErrandReport::Ocsp { id, response } => {
                    let now_ms = process::boottime_ms();
                    let stapled =
                        stapled.get_or_insert_with(|| edition.material.certificates.clone());
                    has_response |= self.ocsp.take(id, response, stapled, now_ms);
                }
                ErrandReport::Account(account) => acme::keep_account(&account, &edition.config),
                ErrandReport::Challenge(challenge) => {
                    if self.orders_for(&challenge.name) {
                        self.challenge.open(&challenge, pairs);
                    }
                }
                ErrandReport::HttpChallenge(challenge) => {
                    if self.orders_for(&challenge.name) {
                        self.challenge.open_http(challenge);
                    }
                }
                ErrandReport::Renewal { name, window } => self.names.note_window(&name, window),
                ErrandReport::Certificate { issued, .. } => {
                    let is_disturbed = self.challenge.is_disturbed();
                    let Some((name, directory)) = self.take_order() else {
                        continue;
                    };
                    self.challenge.close(pairs);
                    let names = &mut self.names;
                    let issued = names.note_order(&name, &directory, issued, is_disturbed, edition);
                    new.extend(issued.map(|new| NewCertificates::Issued {
                        name: new.name,
                        certificates: new.certificates,
                    }));
                }
            }
        }
        new.extend(
            stapled
                .filter(|_| has_response)
                .map(NewCertificates::Stapled),
        );
        new
    }

    /// The errand's next report, unless the errand was cancelled.
    fn next_report(&self, poller: &Poller) -> Option<ErrandReport> {
        let errand = self.errand.as_ref()?;
        loop {
            match message::receive(errand.channel) {
                Ok(Some(_)) if errand.purpose.is_none() => {}
                Ok(report) => return report,
                Err(_) => {
                    // SIGCHLD reports the exit.
                    let _ = poller.remove(errand.channel);
                    return None;
                }
            }
        }
    }

    /// Whether the errand orders a certificate for this name.
    fn orders_for(&self, wanted: &str) -> bool {
        let purpose = self
            .errand
            .as_ref()
            .and_then(|errand| errand.purpose.as_ref());
        matches!(purpose, Some(Purpose::Order { name, .. }) if name == wanted)
    }

    /// Takes the order that has ended. `None`: nothing was ordered, so a certificate is discarded.
    fn take_order(&mut self) -> Option<(String, String)> {
        let purpose = self.errand.as_mut()?.purpose.as_mut()?;
        match std::mem::replace(purpose, Purpose::AskRenewals) {
            Purpose::Order { name, directory } => Some((name, directory)),
            other => {
                *purpose = other;
                None
            }
        }
    }

    /// Records that the errand has exited; its last reports have been processed.
    pub(crate) fn note_end(&mut self, ended: Ended, pairs: &Pairs, poller: &Poller) {
        let Some(errand) = self.errand.take() else {
            return;
        };
        let _ = poller.remove(errand.channel);
        errand.channel.close();
        match errand.purpose {
            Some(purpose @ Purpose::Order { .. }) => {
                let why = format!("the errand process ended: {ended}");
                self.note_failure(purpose, &why, pairs);
            }
            Some(purpose) if ended != Ended::Exited(0) => {
                self.note_failure(
                    purpose,
                    &format!("the errand process ended: {ended}"),
                    pairs,
                );
            }
            Some(_) | None => {}
        }
    }

    /// Whether this process is the errand.
    pub(crate) fn is_errand(&self, pid: Pid) -> bool {
        self.errand.as_ref().is_some_and(|errand| errand.pid == pid)
    }

    /// Cancels the errand before an upgrade or the end of the program. Its work starts again later.
    pub(crate) fn cancel(&mut self, pairs: &Pairs) {
        if let Some(errand) = &mut self.errand {
            errand.purpose = None;
            let _ = process::send_signal(errand.pid, Signal::Kill);
        }
        self.challenge.close(pairs);
    }

    /// Records that an issued certificate was rejected.
    pub(crate) fn note_refused(&mut self, name: &str, why: &str) {
        self.names.note_failure(name, why, process::boottime_ms());
    }

    /// Number and challenge for the redirect process.
    pub(crate) fn http_challenge(&self) -> (u64, Option<&HttpChallenge>) {
        self.challenge.for_redirect()
    }

    /// Tells the errand once all processes answer the challenge, so that it asks the server to validate.
    /// `http_shows` is the number of the challenge that the redirect process answers. Called once per turn.
    pub(crate) fn announce_challenge(&mut self, pairs: &Pairs, http_shows: u64) {
        if self.challenge.take_answered(pairs, http_shows)
            && let Some(errand) = &self.errand
        {
            // SIGCHLD reports the exit, if the errand is gone.
            let _ = message::send(errand.channel, &Job::Proceed);
        }
    }

    /// Sends the current challenge to a worker that has started or restarted.
    pub(crate) fn repeat_challenge(&mut self, worker: usize, pairs: &Pairs) {
        self.challenge.repeat(worker, pairs);
    }

    /// Retries failed names at once, after a reload.
    pub(crate) fn retry_now(&mut self) {
        self.names.retry_now();
    }

    /// The names and their certificates, for control.
    pub(crate) fn report(&self) -> Option<control::Acme> {
        self.names.report()
    }
}

fn start_errand(
    jobs: &[Job],
    acme_ca: Option<&Ca>,
    config: &Config,
    poller: &Poller,
) -> io::Result<(Pid, Fd)> {
    let trust = acme_ca.map(trust_file).transpose()?;
    let (ours, theirs) = socket::channel(OnExec::Close)?;
    for job in jobs {
        // Jobs that do not fit go to the next errand.
        if !matches!(message::send(ours, job), Ok(Attempt::Done(()))) {
            break;
        }
    }
    let privileges = Privileges::nobody(config);
    let arguments = ErrandArguments {
        channel: theirs.0,
        trust: trust.map(|fd| fd.0),
    };
    let inherited = trust.into_iter().chain([theirs]).collect();
    let started = helper::start("errand", &privileges, &arguments, inherited);
    trust.into_iter().for_each(Fd::close);
    theirs.close();
    let pid = started.inspect_err(|_| ours.close())?;
    poller.add(ours, tokens::ERRAND, Interest::READ)?;
    Ok((pid, ours))
}

/// Memory file with the authorities of ACME servers, because an errand cannot open files.
fn trust_file(ca: &Ca) -> io::Result<Fd> {
    let text = material::authorities(ca).map_err(io::Error::other)?;
    parts::write_text(&text)
}
