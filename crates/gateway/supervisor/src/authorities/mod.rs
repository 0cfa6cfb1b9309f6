//! OCSP responders and ACME servers: when to query them, and the errand process that does so. Main
//! runs one errand at a time, with the jobs queued in its channel.
//!
//! ```text
//!   ocsp   responses to staple                        acme       certificates for names
//!   retry  pauses after failures                      challenge  proof of control of a name
//!   hook   the operator's program for DNS
//!                                                     renewal    when a certificate is renewed
//!                                                     unsaved    what waits for a full disk
//! ```

mod acme;
mod challenge;
mod hook;
mod ocsp;
mod renewal;
mod retry;
mod unsaved;

use crate::configuration::edition::Edition;
use crate::helper_process::HelperProcess;
use crate::material::{self, Certificates};
use crate::pairs::Pairs;
use crate::tokens;
use acme::{AcmeNames, AcmeWork};
use challenge::OpenChallenges;
use dormouse_config::Config;
use dormouse_handover::control;
use dormouse_handover::message;
use dormouse_helpers::errand::{ErrandArguments, ErrandReport, Job};
use dormouse_helpers::helper::Privileges;
use dormouse_helpers::redirect::HttpChallenge;
use dormouse_helpers::tls_file::TlsFile;
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::Attempt;
use hook::Hook;
use ocsp::OcspSchedule;
use std::io;

/// Maximum run time of an errand; then main kills it.
const TIMEOUT_MS: u64 = 120_000;
/// The same for an order, which is a dozen requests and pauses of 30 s at most.
const ORDER_TIMEOUT_MS: u64 = 300_000;
/// Maximum number of reports processed at once. More than the channel holds, so that none of an errand that has exited
/// is lost; and a limit, so that a compromised errand cannot keep main from its other work.
const REPORTS_MAX: usize = 512;

/// Maximum number of accounts and challenges from one errand. An order has one of each, and is tried four times. Main
/// waits for the disk to save an account, and sends a challenge to all workers, so a compromised errand must not have it
/// do so all the time.
const COSTLY_MAX: u32 = 8;

/// Schedules of all queries, and the current errand.
#[derive(Default)]
pub(crate) struct Authorities {
    ocsp: OcspSchedule,
    names: AcmeNames,
    challenges: OpenChallenges,
    errand: Option<Errand>,
    hook: Hook,
    /// The edition that `ocsp` and `names` are based on.
    edition: Option<u64>,
}

/// A running errand.
struct Errand {
    process: HelperProcess,
    due_ms: u64,
    /// Number of accounts and challenges that it has reported.
    costly: u32,
    /// `None`: its order is complete, or it was cancelled. Further reports are ignored.
    purpose: Option<ErrandPurpose>,
}

impl Errand {
    /// Counts a report that is costly to main. `false`: it is one too many.
    fn admits(&mut self, report: &ErrandReport) -> bool {
        let is_costly = matches!(
            report,
            ErrandReport::Account(_)
                | ErrandReport::Challenge(_)
                | ErrandReport::HttpChallenge(_)
                | ErrandReport::DnsRecord { .. }
        );
        self.costly += u32::from(is_costly);
        if !is_costly || self.costly <= COSTLY_MAX {
            return true;
        }
        if self.costly == COSTLY_MAX + 1 {
            tracing::warn!(
                process = "errand",
                limit = COSTLY_MAX,
                "helper process sent too many accounts and challenges; ignoring the rest"
            );
        }
        false
    }
}

/// The purpose of an errand.
enum ErrandPurpose {
    /// OCSP queries.
    Ocsp,
    /// An order for a certificate for this name from this server.
    Order { name: String, directory: String },
    /// Queries for renewal windows.
    AskRenewals,
}

/// New certificates for clients, one of which an ACME server has issued for this name.
pub(crate) struct Issued {
    pub(crate) name: String,
    pub(crate) certificates: Certificates,
}

impl Authorities {
    /// Time of the next action. `can_order`: clients are accepted, so that an ACME server can validate a
    /// name.
    pub(crate) fn next_deadline_ms(&self, edition: &Edition, can_order: bool) -> Option<u64> {
        let due = [
            self.work_due_ms(edition, can_order),
            self.staple_due_ms(),
            self.names.save_due_ms(),
        ];
        due.into_iter().flatten().min()
    }

    /// When to start an errand, or to kill the one that runs.
    fn work_due_ms(&self, edition: &Edition, can_order: bool) -> Option<u64> {
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

    fn staple_due_ms(&self) -> Option<u64> {
        let errand = self.errand.as_ref();
        let is_asking = errand.is_some_and(|one| matches!(one.purpose, Some(ErrandPurpose::Ocsp)));
        self.ocsp.staple_due_ms(is_asking, process::boottime_ms())
    }

    /// Returns the certificates with new OCSP responses, if it is time to staple them.
    pub(crate) fn staple(&mut self, edition: &Edition) -> Option<Certificates> {
        self.staple_due_ms()
            .filter(|&at_ms| at_ms <= process::boottime_ms())?;
        let mut certificates = edition.material.certificates.clone();
        let has_changed = self.ocsp.staple(&mut certificates);
        has_changed.then_some(certificates)
    }

    /// Saves what could not be saved before, if it is time.
    pub(crate) fn save(&mut self, edition: &Edition) {
        let now_ms = process::boottime_ms();
        if self
            .names
            .save_due_ms()
            .is_some_and(|at_ms| at_ms <= now_ms)
        {
            self.names.save(edition, now_ms);
        }
    }

    /// Starts an errand if one is due, or kills one that runs too long.
    pub(crate) fn attend(
        &mut self,
        edition: &Edition,
        pairs: &Pairs,
        poller: &Poller,
        can_order: bool,
    ) {
        let now_ms = process::boottime_ms();
        let due_ms = self.work_due_ms(edition, can_order);
        if due_ms.is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        if let Some(errand) = &mut self.errand {
            tracing::warn!(process = "errand", "helper process timed out; killing it");
            let _ = process::send_signal(errand.process.pid, Signal::Kill);
            // SIGCHLD reports the exit.
            errand.due_ms = u64::MAX;
            return;
        }
        if self.edition != Some(edition.number) {
            self.edition = Some(edition.number);
            self.ocsp.follow(&edition.material.certificates);
            self.names.follow(edition, now_ms);
            self.close_challenges(pairs);
        }
        let Some((jobs, purpose)) = self.next_jobs(edition, now_ms) else {
            return;
        };
        let asks_acme = !matches!(purpose, ErrandPurpose::Ocsp);
        match start_errand(&jobs, asks_acme, edition, poller) {
            Ok(process) => {
                self.errand = Some(Errand {
                    process,
                    due_ms: now_ms
                        + match purpose {
                            ErrandPurpose::Order { .. } => ORDER_TIMEOUT_MS,
                            ErrandPurpose::Ocsp | ErrandPurpose::AskRenewals => TIMEOUT_MS,
                        },
                    costly: 0,
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
    fn next_jobs(&mut self, edition: &Edition, now_ms: u64) -> Option<(Vec<Job>, ErrandPurpose)> {
        let ocsp_ms = self.ocsp_due_ms(&edition.config);
        let ocsp_ms = ocsp_ms.filter(|&at_ms| at_ms <= now_ms);
        let names_ms = self.names.next_due_ms();
        if names_ms.is_none_or(|at_ms| at_ms > ocsp_ms.unwrap_or(now_ms)) {
            return ocsp_ms.map(|_| (self.ocsp.jobs(now_ms, REPORTS_MAX), ErrandPurpose::Ocsp));
        }
        Some(match self.names.work(edition, now_ms)? {
            AcmeWork::Order(request) => {
                let purpose = ErrandPurpose::Order {
                    name: request.name.clone(),
                    directory: request.server.directory.clone(),
                };
                (vec![Job::Obtain(*request)], purpose)
            }
            AcmeWork::AskRenewals(jobs) => (jobs, ErrandPurpose::AskRenewals),
        })
    }

    /// Records that an errand could not be started, or ended too early.
    fn note_failure(&mut self, purpose: ErrandPurpose, why: &str, pairs: &Pairs) {
        let now_ms = process::boottime_ms();
        match purpose {
            ErrandPurpose::Order { name, .. } => {
                self.names.note_failure(&name, why, now_ms);
                self.close_challenges(pairs);
            }
            ErrandPurpose::Ocsp => {
                tracing::warn!(error = why, "OCSP query failed");
                self.ocsp.put_off(now_ms);
            }
            ErrandPurpose::AskRenewals => tracing::warn!(error = why, "ACME renewal query failed"),
        }
    }

    /// Processes all reports of the errand. Returns what ACME servers have issued; OCSP responses are stapled later.
    pub(crate) fn receive(
        &mut self,
        edition: &Edition,
        pairs: &Pairs,
        poller: &Poller,
    ) -> Vec<Issued> {
        self.hook.receive(poller);
        let mut new = Vec::new();
        for _ in 0..REPORTS_MAX {
            let Some(errand) = &mut self.errand else {
                break;
            };
            let Some(report) = errand.process.receive(poller) else {
                break;
            };
            if !errand.admits(&report) {
                continue;
            }
            // An errand may be compromised: it can report only on what it was started for.
            match (report, &errand.purpose) {
                (ErrandReport::Ocsp { id, response }, Some(ErrandPurpose::Ocsp)) => {
                    self.ocsp.take(id, response, process::boottime_ms());
                }
                (ErrandReport::Account(account), Some(ErrandPurpose::Order { .. })) => {
                    self.names.keep_account(account, &edition.config);
                }
                (
                    ErrandReport::Placed { order, .. },
                    Some(ErrandPurpose::Order { name, directory }),
                ) => {
                    self.names.note_placed(name, directory, order);
                }
                (ErrandReport::Challenge(challenge), Some(ErrandPurpose::Order { name, .. }))
                    if challenge.name == *name =>
                {
                    self.challenges.open(&challenge, pairs);
                }
                (
                    ErrandReport::HttpChallenge(challenge),
                    Some(ErrandPurpose::Order { name, .. }),
                ) if challenge.name == *name => {
                    self.challenges.open_http(challenge, pairs);
                }
                (
                    ErrandReport::DnsRecord { value, is_added },
                    Some(ErrandPurpose::Order { name, .. }),
                ) => {
                    let HelperProcess { pid, channel } = errand.process;
                    let started = (self.hook).start(pid, name, &value, is_added, edition, poller);
                    if let Err(why) = started {
                        // SIGCHLD reports the exit, if the errand is gone.
                        let _ = message::send(channel, &Job::Refused(why));
                    }
                }
                (ErrandReport::Renewal { name, window }, Some(ErrandPurpose::AskRenewals)) => {
                    self.names.note_window(&name, window);
                }
                (
                    ErrandReport::Certificate { issued, .. },
                    Some(ErrandPurpose::Order { name, directory }),
                ) => {
                    let (name, directory) = (name.clone(), directory.clone());
                    let is_disturbed = self.challenges.is_disturbed(&name);
                    self.end_work();
                    let names = &mut self.names;
                    let issued = names.note_order(&name, &directory, issued, is_disturbed, edition);
                    new.extend(issued.map(|certificates| Issued { name, certificates }));
                    self.close_challenges(pairs);
                }
                _ => {}
            }
        }
        new
    }

    /// Handles the exit of the process that runs the operator's program. Returns `false` if it was another process.
    pub(crate) fn note_hook_end(&mut self, pid: Pid, ended: Ended, poller: &Poller) -> bool {
        let Some((asker, answer)) = self.hook.note_end(pid, ended, poller) else {
            return false;
        };
        if let Some(errand) = self.errand.as_ref().filter(|one| one.process.pid == asker) {
            // SIGCHLD reports the exit, if the errand is gone.
            let _ = message::send(errand.process.channel, &answer);
        }
        true
    }

    /// Ends the errand's work. What it reports from now on is ignored.
    fn end_work(&mut self) {
        if let Some(errand) = &mut self.errand {
            errand.purpose = None;
        }
    }

    /// Closes the challenges of orders that have ended.
    fn close_challenges(&mut self, pairs: &Pairs) {
        let names = &self.names;
        self.challenges
            .close_except(|name| names.has_order(name), pairs);
    }

    /// Records that the errand has exited; its last reports have been processed.
    pub(crate) fn note_end(&mut self, ended: Ended, pairs: &Pairs, poller: &Poller) {
        let Some(errand) = self.errand.take() else {
            return;
        };
        errand.process.close(poller);
        if let Some(purpose) = errand.purpose
            && (ended != Ended::Exited(0) || matches!(purpose, ErrandPurpose::Order { .. }))
        {
            let why = format!("the errand process ended: {ended}");
            self.note_failure(purpose, &why, pairs);
        }
    }

    /// Whether this process is the errand.
    pub(crate) fn is_errand(&self, pid: Pid) -> bool {
        let errand = self.errand.as_ref();
        errand.is_some_and(|errand| errand.process.pid == pid)
    }

    /// Cancels the errand before an upgrade or the end of the program. Its work starts again later.
    pub(crate) fn cancel(&mut self, pairs: &Pairs) {
        if let Some(errand) = &self.errand {
            let _ = process::send_signal(errand.process.pid, Signal::Kill);
        }
        self.hook.kill();
        self.end_work();
        self.challenges.close_except(|_| false, pairs);
    }

    /// Records that an issued certificate was rejected.
    pub(crate) fn note_refused(&mut self, name: &str, why: &str) {
        self.names.note_failure(name, why, process::boottime_ms());
    }

    /// Number and challenges for the redirect process.
    pub(crate) fn http_challenges(&self) -> (u64, impl Iterator<Item = &HttpChallenge>) {
        self.challenges.for_redirect()
    }

    /// Tells the errand once all processes answer the challenge, so that it asks the server to validate.
    /// `http_shows` is the number of the challenges that the redirect process answers. Called once per turn.
    pub(crate) fn announce_challenge(&mut self, pairs: &Pairs, http_shows: u64) {
        if let Some(errand) = &self.errand
            && let Some(ErrandPurpose::Order { name, .. }) = &errand.purpose
            && self.challenges.take_answered(name, pairs, http_shows)
        {
            // SIGCHLD reports the exit, if the errand is gone.
            let _ = message::send(errand.process.channel, &Job::Proceed);
        }
    }

    /// Sends the open challenges to a worker that has started or restarted.
    pub(crate) fn repeat_challenges(&mut self, worker: usize, pairs: &Pairs) {
        self.challenges.repeat(worker, pairs);
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
    asks_acme: bool,
    edition: &Edition,
    poller: &Poller,
) -> io::Result<HelperProcess> {
    let tls = asks_acme.then(|| tls_file(edition)).transpose()?;
    let tls = tls.as_ref().map(TlsFile::fd);
    let privileges = Privileges::nobody(&edition.config);
    let place = (poller, tokens::ERRAND);
    let inherited = tls.into_iter().collect();
    HelperProcess::start("errand", &privileges, inherited, place, |ours, theirs| {
        for job in jobs {
            // Jobs that do not fit go to the next errand.
            if !matches!(message::send(ours, job), Ok(Attempt::Done(()))) {
                break;
            }
        }
        ErrandArguments {
            channel: theirs.0,
            tls: tls.map(|fd| fd.0),
        }
    })
}

/// What an errand needs for TLS with ACME servers.
fn tls_file(edition: &Edition) -> io::Result<TlsFile> {
    let authorities = material::authorities(&edition.config.acme.acme_ca);
    let authorities = authorities.map_err(io::Error::other)?;
    TlsFile::write(
        Some(&authorities),
        edition.material.of_helpers.acme.as_ref(),
    )
}

#[cfg(test)]
mod tests {
    use super::hook::Running;
    use super::*;
    use crate::configuration::load::{self, Ready};
    use crate::configuration::occasion::Purpose;
    use crate::configuration::occasion::{Occasion, Occupied};
    use crate::configuration::source::Source;
    use dormouse_config::Section;
    use dormouse_helpers::acme_hook::HookReport;
    use dormouse_reactor::{Fd, OnExec, socket};

    const ACCOUNT: &str =
        r#"{"id":"https://ca.example/1","key_pkcs8":"AAAA","directory":"https://ca.example/dir"}"#;

    /// A configuration with three certificates.
    fn edition(folder: &std::path::Path) -> Edition {
        let file = folder.join("dormouse.toml");
        let mut text = format!(
            "acme_server = 'https://ca.example/dir'\nacme_folder = '{}'\nacme_terms_agreed = true\n",
            folder.display()
        );
        for n in 1..=3 {
            let listen = format!("listen = '127.0.0.1:500{n}'");
            text += &format!("[[route]]\n{listen}\nself_signed = 'x{n}'\nto = 'echo:'\n");
        }
        std::fs::write(&file, text).expect("written");
        let source = Source {
            file: Some(file),
            section: Section::Route,
            flags: Vec::new(),
        };
        let occasion = Occasion {
            purpose: Purpose::Check,
            look_up: &|_, _| Ok(Vec::new()),
            occupied: &|_| Occupied::default(),
        };
        let Ready {
            loaded, material, ..
        } = load::load(&source, &occasion).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        Edition::new(1, 0, loaded.config, loaded.plan, material)
    }

    /// An errand with this purpose, and its end of the channel.
    fn with_errand(purpose: ErrandPurpose) -> (Authorities, Fd) {
        let (channel, theirs) = socket::channel(OnExec::Close).expect("a channel");
        let pid = Pid(i32::MAX);
        let errand = Errand {
            process: HelperProcess { pid, channel },
            due_ms: 0,
            costly: 0,
            purpose: Some(purpose),
        };
        let authorities = Authorities {
            errand: Some(errand),
            ..Authorities::default()
        };
        (authorities, theirs)
    }

    /// Each new edition is a reload of all workers, so the responses to many queries are in one.
    #[test]
    fn responses_are_stapled_together_when_the_errand_has_ended() {
        let poller = Poller::create(OnExec::Close).expect("a poller");
        let folder = tempfile::tempdir().expect("a folder");
        let (edition, pairs) = (edition(folder.path()), Pairs::default());
        let (mut authorities, errand) = with_errand(ErrandPurpose::Ocsp);
        authorities.ocsp.follow(&edition.material.certificates);
        let pems = edition.material.certificates.iter().flatten();
        for (n, pem) in pems.enumerate() {
            let report = ErrandReport::Ocsp {
                id: authorities.ocsp.id(pem),
                response: Ok((vec![n as u8], u64::MAX / 2_000)),
            };
            let sent = message::send(errand, &report).expect("sent");
            assert_eq!(sent, Attempt::Done(()));
            let issued = authorities.receive(&edition, &pairs, &poller);
            assert!(issued.is_empty() && authorities.staple(&edition).is_none());
        }
        authorities.note_end(Ended::Exited(0), &pairs, &poller);
        assert_eq!(authorities.staple_due_ms(), Some(0));
        let stapled = authorities.staple(&edition).expect("new responses");
        let responses: Vec<&[u8]> = stapled.iter().flatten().map(|pem| &*pem.ocsp).collect();
        assert_eq!(responses, [[0], [1], [2]]);
        assert!(authorities.staple(&edition).is_none());
    }

    /// An errand may end while the operator's program runs, and the next one may ask for the same.
    #[test]
    fn an_answer_of_the_program_is_for_the_errand_that_asked() {
        let poller = Poller::create(OnExec::Close).expect("a poller");
        let order = || ErrandPurpose::Order {
            name: "a.example".to_owned(),
            directory: "https://ca.example/dir".to_owned(),
        };
        let (hook, report) = (Pid(i32::MAX - 1), HookReport::Ok(()));
        for (asker, is_answered) in [(Pid(i32::MAX), true), (Pid(i32::MAX - 2), false)] {
            let (mut authorities, errand) = with_errand(order());
            let (channel, theirs) = socket::channel(OnExec::Close).expect("a channel");
            authorities.hook = Hook(Some(Running {
                process: HelperProcess { pid: hook, channel },
                errand: asker,
                answer: None,
            }));
            let sent = message::send(theirs, &report).expect("sent");
            assert_eq!(sent, Attempt::Done(()));
            assert!(!authorities.note_hook_end(Pid(i32::MAX), Ended::Exited(0), &poller));
            assert!(authorities.note_hook_end(hook, Ended::Exited(0), &poller));
            let answer: Option<Job> = message::receive(errand).expect("a channel");
            assert_eq!(matches!(answer, Some(Job::Proceed)), is_answered);
            assert!(authorities.hook.0.is_none());
        }
    }

    /// An errand that queries a responder parses foreign bytes. It may not replace the account at the ACME server. One
    /// with an order may, but not all the time.
    #[test]
    fn few_accounts_are_accepted_and_only_from_an_order() {
        let order = || ErrandPurpose::Order {
            name: "a.example".to_owned(),
            directory: "https://ca.example/dir".to_owned(),
        };
        let poller = Poller::create(OnExec::Close).expect("a poller");
        for (purpose, is_accepted) in [
            (ErrandPurpose::Ocsp, false),
            (ErrandPurpose::AskRenewals, false),
            (order(), true),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let edition = edition(folder.path());
            let (mut authorities, errand) = with_errand(purpose);
            for n in 1..10 {
                let account = ACCOUNT.replace("AAAA", &format!("AAA{n}"));
                let account = serde_json::from_str(&account).expect("an account");
                let sent = message::send(errand, &ErrandReport::Account(account));
                assert_eq!(sent.expect("sent"), Attempt::Done(()));
            }
            authorities.receive(&edition, &Pairs::default(), &poller);
            let kept = std::fs::read_to_string(folder.path().join("ca.example/account.json"));
            let is_kept = kept.is_ok_and(|text| text.contains(&format!("AAA{COSTLY_MAX}")));
            assert_eq!(is_kept, is_accepted);
        }
    }
}
