//! The program that writes records of DNS for an order (`acme_dns_hook`): what it may be told, and its process.

use crate::configuration::edition::Edition;
use crate::helper_process::HelperProcess;
use crate::material::acme;
use crate::tokens;
use dormouse_helpers::acme_hook::{self, HookArguments, HookReport};
use dormouse_helpers::errand::Job;
use dormouse_helpers::helper::Privileges;
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::signal::Signal;

/// Length of a value: SHA-256 in base64url (RFC 8555 §8.4).
const VALUE_LEN: usize = 43;

/// The process, while it runs.
#[derive(Default)]
pub(super) struct Hook(pub(super) Option<Running>);

pub(super) struct Running {
    pub(super) process: HelperProcess,
    /// The errand that waits for it. A later one must not take the answer for its own.
    pub(super) errand: Pid,
    /// What the errand is told when the process has ended: with an earlier answer it might want the next one too soon.
    pub(super) answer: Option<Job>,
}

impl Hook {
    /// Starts the program for the record of this name. The error is for the `errand`, which may be compromised: the
    /// program gets nothing from it but a value of the right form.
    pub(super) fn start(
        &mut self,
        errand: Pid,
        name: &str,
        value: &str,
        is_added: bool,
        edition: &Edition,
        poller: &Poller,
    ) -> Result<(), String> {
        let config = &edition.config;
        let is_of_value = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if value.len() != VALUE_LEN || !value.bytes().all(is_of_value) {
            return Err("the value of the record has another form".to_owned());
        }
        let program = config.acme.acme_dns_hook.clone();
        let program = program.ok_or("acme_dns_hook is not set any more")?;
        if self.0.is_some() {
            return Err("acme_dns_hook still runs".to_owned());
        }
        let privileges = match acme::hook_user(config)? {
            Some(user) => Privileges::of(Some(user), config),
            None => Privileges::nobody(config),
        };
        let record = format!("_acme-challenge.{}", name.trim_start_matches("*."));
        let verb = if is_added { "add" } else { "remove" };
        let arguments = vec![verb.to_owned(), record, value.to_owned()];
        let place = (poller, tokens::ERRAND);
        let started = HelperProcess::start(
            acme_hook::NAME,
            &privileges,
            Vec::new(),
            place,
            |_, theirs| HookArguments {
                channel: theirs.0,
                program,
                arguments,
            },
        );
        let process =
            started.map_err(|error| format!("acme_dns_hook cannot be started: {error}"))?;
        self.0 = Some(Running {
            process,
            errand,
            answer: None,
        });
        Ok(())
    }

    /// Receives its report.
    pub(super) fn receive(&mut self, poller: &Poller) {
        if let Some(running) = &mut self.0
            && let Some(report) = running.process.receive(poller)
        {
            running.answer = Some(answer(report));
        }
    }

    /// Handles the exit of the process, and returns the answer for an errand. `None`: it was another process.
    pub(super) fn note_end(
        &mut self,
        pid: Pid,
        ended: Ended,
        poller: &Poller,
    ) -> Option<(Pid, Job)> {
        self.0.as_ref().filter(|one| one.process.pid == pid)?;
        self.receive(poller);
        let running = self.0.take()?;
        running.process.close(poller);
        let without = || Job::Refused(format!("acme_dns_hook ended: {ended}"));
        Some((running.errand, running.answer.unwrap_or_else(without)))
    }

    /// Ends it.
    pub(super) fn kill(&self) {
        if let Some(running) = &self.0 {
            let _ = process::send_signal(running.process.pid, Signal::Kill);
        }
    }
}

fn answer(report: HookReport) -> Job {
    match report {
        Ok(()) => Job::Proceed,
        Err(why) => Job::Refused(why),
    }
}
