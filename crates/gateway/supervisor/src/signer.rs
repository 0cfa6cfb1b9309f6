//! Main's side of the signer: passes workers' requests for signatures to the process, and its answers back.
//!
//! Main starts the process where a key is in a token, and anew after an exit, after a change of the keys, or when a
//! signature takes too long: then every signature that is outstanding fails, and with it its handshake.

use crate::helper_process::{Helper, HelperProcess, privileges_of};
use crate::pairs::Pairs;
use crate::tokens;
use dormouse_config::{Config, TokenKey};
use dormouse_handover::SecretText;
use dormouse_handover::message;
use dormouse_handover::orders::Order;
use dormouse_handover::signing::{SignRequest, Signed};
use dormouse_helpers::helper::Privileges;
use dormouse_helpers::private_file::read_secret_line;
use dormouse_helpers::signer::{self, KeyAccess, SignOrder, SignReport, SignerArguments};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::Attempt;
use std::collections::VecDeque;
use std::io;
use std::path::Path;

/// Maximum time of a signature, with those before it.
const SIGNATURE_MAX_MS: u64 = 5_000;

/// Maximum number of signatures that wait.
const OUTSTANDING_MAX: usize = 1_024;

/// Maximum number of them in the process: enough that it never waits for main.
const GIVEN_MAX: usize = 8;

/// The process, and what it is to sign.
pub(crate) struct SignerProcess {
    helper: Helper,
    /// The edition of the configuration that says so.
    edition: Option<u64>,
    /// The task of the process, started or due to start.
    task: Task,
    /// Requests that are not passed on yet.
    waiting: VecDeque<Waiting>,
    /// Requests that the process has, in its order.
    given: VecDeque<Waiting>,
    /// The number of the last one.
    number: u64,
    /// Whether the last signature failed.
    is_failing: bool,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Task {
    keys: Vec<TokenKey>,
    user: Option<String>,
}

struct Waiting {
    worker: usize,
    /// The worker's number of it.
    id: u64,
    number: u64,
    until_ms: u64,
    request: SignRequest,
}

impl SignerProcess {
    /// A process without a task.
    pub(crate) fn new() -> SignerProcess {
        SignerProcess {
            helper: Helper::new(signer::NAME),
            edition: None,
            task: Task::default(),
            waiting: VecDeque::new(),
            given: VecDeque::new(),
            number: 0,
            is_failing: false,
        }
    }

    /// Time of the next action.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let late = self.given.front().map(|one| one.until_ms);
        late.into_iter().chain(self.helper.next_deadline_ms()).min()
    }

    /// Starts the process if a start is due, and ends it when its task has changed or a signature is late. Returns the
    /// process that was ended. Called once per turn.
    pub(crate) fn attend(
        &mut self,
        edition: u64,
        config: &Config,
        pairs: &Pairs,
        poller: &Poller,
    ) -> Option<Pid> {
        if self.edition.replace(edition) != Some(edition) {
            let task = Task {
                keys: config.token_keys(),
                user: config.process.pkcs11_user.clone(),
            };
            // A PIN that was refused may have been replaced.
            if task != self.task || self.is_failing {
                self.task = task;
                let former = self.end(pairs, poller);
                self.helper.set_due();
                return former;
            }
        }
        if let Some(late) = self.given.front()
            && late.until_ms <= process::boottime_ms()
            && let Some(process) = self.helper.process()
        {
            // Its exit is reported.
            let _ = process::send_signal(process.pid, Signal::Kill);
            let why = format!(
                "the token has not signed within {} s",
                SIGNATURE_MAX_MS / 1000
            );
            self.fail_all(&why, pairs);
        }
        if self.helper.take_due() && !self.task.keys.is_empty() {
            let keys = &self.task.keys;
            self.helper.start(|| start(keys, config, poller));
        }
        None
    }

    /// Takes a worker's request.
    pub(crate) fn request(&mut self, worker: usize, id: u64, request: SignRequest, pairs: &Pairs) {
        self.number += 1;
        let waiting = Waiting {
            worker,
            id,
            number: self.number,
            until_ms: process::boottime_ms() + SIGNATURE_MAX_MS,
            request,
        };
        let is_known = |key: &TokenKey| key.uri == waiting.request.key;
        let why = if !self.task.keys.iter().any(is_known) {
            // A worker may still have the previous configuration, or be compromised.
            "the configuration names no such key"
        } else if self.helper.process().is_none() {
            "the signer does not run"
        } else if self.waiting.len() + self.given.len() >= OUTSTANDING_MAX {
            "too many signatures are outstanding"
        } else {
            self.waiting.push_back(waiting);
            return self.pass_on();
        };
        self.answer(&waiting, Err(why.to_owned()), pairs);
    }

    /// Passes requests on, as many as the process may have.
    fn pass_on(&mut self) {
        let Some(process) = self.helper.process() else {
            return;
        };
        while self.given.len() < GIVEN_MAX
            && let Some(next) = self.waiting.pop_front()
        {
            let order = SignOrder {
                number: next.number,
                request: next.request.clone(),
            };
            match message::send(process.channel, &order) {
                Ok(Attempt::Done(())) => self.given.push_back(next),
                // The next answer, or the end of the process, continues.
                Ok(Attempt::WouldBlock) | Err(_) => return self.waiting.push_front(next),
            }
        }
    }

    /// Receives a signature.
    pub(crate) fn receive(&mut self, pairs: &Pairs, poller: &Poller) {
        let Some(report) = self.helper.receive::<SignReport>(poller) else {
            return;
        };
        match self.given.pop_front() {
            Some(next) if next.number == report.number => {
                self.answer(&next, report.signature, pairs);
            }
            // It answers what has failed for being late.
            Some(next) => self.given.push_front(next),
            None => {}
        }
        self.pass_on();
    }

    fn answer(&mut self, waiting: &Waiting, signature: Result<Vec<u8>, String>, pairs: &Pairs) {
        match &signature {
            Err(error) if !self.is_failing => {
                let key = &waiting.request.key;
                tracing::error!(
                    key,
                    error,
                    "no signature by a key in a token; handshakes fail"
                );
            }
            Ok(_) if self.is_failing => tracing::info!("keys in tokens sign again"),
            _ => {}
        }
        self.is_failing = signature.is_err();
        let digest = waiting.request.digest.clone();
        let signed = Box::new(Signed { digest, signature });
        pairs.order(waiting.worker, &Order::Signed(waiting.id, signed));
    }

    fn fail_all(&mut self, why: &str, pairs: &Pairs) {
        let given = std::mem::take(&mut self.given);
        let waiting = std::mem::take(&mut self.waiting);
        for waiting in given.into_iter().chain(waiting) {
            self.answer(&waiting, Err(why.to_owned()), pairs);
        }
    }

    /// Handles the exit of a process. Returns `false` if it was not the signer.
    pub(crate) fn note_end(
        &mut self,
        pid: Pid,
        ended: Ended,
        pairs: &Pairs,
        poller: &Poller,
    ) -> bool {
        let is_own = self.helper.note_death(pid, ended, poller);
        if is_own {
            self.fail_all("the signer has ended", pairs);
        }
        is_own
    }

    /// Ends the process. Returns its id. The next turn starts another one.
    pub(crate) fn end(&mut self, pairs: &Pairs, poller: &Poller) -> Option<Pid> {
        let process = self.helper.release()?;
        self.fail_all("the signer was ended", pairs);
        Some(process.kill(poller))
    }
}

fn start(keys: &[TokenKey], config: &Config, poller: &Poller) -> io::Result<HelperProcess> {
    let access = access(keys).map_err(io::Error::other)?;
    let privileges = privileges(config).map_err(io::Error::other)?;
    let place = (poller, tokens::SIGNER);
    HelperProcess::start(signer::NAME, &privileges, Vec::new(), place, |_, theirs| {
        SignerArguments {
            channel: theirs.0,
            keys: access,
        }
    })
}

/// Reads the PINs of keys.
pub(crate) fn access(keys: &[TokenKey]) -> Result<Vec<KeyAccess>, String> {
    let access = |key: &TokenKey| {
        let pin = key.pin.as_deref().map(read_pin).transpose()?;
        let key = key.clone();
        Ok(KeyAccess { key, pin })
    };
    keys.iter().map(access).collect()
}

fn read_pin(path: &Path) -> Result<SecretText, String> {
    let shown = path.display();
    let line = read_secret_line(path, "the PIN of a token")?;
    match std::str::from_utf8(&line) {
        Ok(pin) => Ok(SecretText(pin.to_owned())),
        Err(_) => Err(format!("{shown}: the PIN is not text")),
    }
}

/// The user of the process, and what it may do.
pub(crate) fn privileges(config: &Config) -> Result<Privileges, String> {
    privileges_of(config.process.pkcs11_user.as_deref(), config)
}
