//! Main's side of the redirect process: starts it where plain HTTP is configured, restarts it after an
//! exit, and sends it ACME challenges.
//!
//! A changed configuration starts another process. The previous one serves its remaining clients.

use crate::helper_process::{Helper, HelperProcess};
use crate::serving::Serving;
use crate::tokens;
use dormouse_config::Config;
use dormouse_handover::message;
use dormouse_helpers::helper::Privileges;
use dormouse_helpers::redirect::{
    ChallengeOrder, ChallengeShown, HttpChallenge, RedirectArguments, Site,
};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{Ended, Pid};
use dormouse_reactor::{Fd, socket};
use std::io;

/// The process, and its task.
pub(crate) struct RedirectProcess {
    helper: Helper,
    /// The task of the process, started or due to start.
    task: Option<Task>,
    /// Number of the challenges sent last.
    sent: u64,
    /// Number of the challenges that the process answers.
    shows: u64,
}

#[derive(Clone, PartialEq, Eq)]
struct Task {
    listeners: Vec<Fd>,
    site: Site,
}

impl Task {
    fn of(serving: &Serving) -> Option<Task> {
        let listeners = serving.listening.redirects();
        let redirect = &serving.edition.config.redirect;
        let site = Site {
            status: redirect.redirect_status.code(),
            port: u16::try_from(redirect.redirect_port).unwrap_or(443),
        };
        (!listeners.is_empty()).then_some(Task { listeners, site })
    }
}

impl RedirectProcess {
    /// A process without a task.
    pub(crate) fn new() -> RedirectProcess {
        RedirectProcess {
            helper: Helper::new("redirect"),
            task: None,
            sent: 0,
            shows: 0,
        }
    }

    /// Time of the next action.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.helper.next_deadline_ms()
    }

    /// Starts the process if a start is due, and ends it when the task has changed or clients are no longer
    /// accepted. Returns the process that was ended. Called once per turn.
    pub(crate) fn attend(
        &mut self,
        is_accepting: bool,
        serving: &Serving,
        poller: &Poller,
    ) -> Option<Pid> {
        // A paused listener is always ready, but accepting from it fails.
        let task = is_accepting.then(|| Task::of(serving)).flatten();
        if task != self.task {
            self.task = task;
            return self.end(poller);
        }
        if self.helper.take_due()
            && let Some(task) = &self.task
        {
            let start = || start(task, &serving.edition.config, poller);
            self.helper.start(start);
            self.sent = 0;
        }
        None
    }

    /// Sends the process the challenges with this number. Called once per turn.
    pub(crate) fn send_challenges<'a>(
        &mut self,
        number: u64,
        challenges: impl Iterator<Item = &'a HttpChallenge>,
    ) {
        if let Some(process) = self.helper.process()
            && self.sent != number
        {
            let order = ChallengeOrder {
                number,
                challenges: challenges.cloned().collect(),
            };
            // If the channel is full, the next turn tries again.
            if let Ok(socket::Attempt::Done(())) = message::send(process.channel, &order) {
                self.sent = number;
            }
        }
    }

    /// Receives which challenges the process answers.
    pub(crate) fn receive(&mut self, poller: &Poller) {
        if let Some(ChallengeShown(number)) = self.helper.receive(poller) {
            self.shows = number;
        }
    }

    /// Number of the challenges that the process answers.
    pub(crate) fn shows(&self) -> u64 {
        self.shows
    }

    /// Handles the exit of a process. Returns `false` if it was not the redirect process.
    pub(crate) fn note_end(&mut self, pid: Pid, ended: Ended, poller: &Poller) -> bool {
        let is_own = self.helper.note_death(pid, ended, poller);
        if is_own {
            self.shows = 0;
        }
        is_own
    }

    /// Closes the channel, so that the process exits after its clients. Returns its id for later. The next turn
    /// starts another one.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        let process = self.helper.release()?;
        self.shows = 0;
        Some(process.close(poller))
    }
}

fn start(task: &Task, config: &Config, poller: &Poller) -> io::Result<HelperProcess> {
    let (privileges, inherited) = (Privileges::nobody(config), task.listeners.clone());
    let place = (poller, tokens::REDIRECT);
    HelperProcess::start("redirect", &privileges, inherited, place, |_, channel| {
        RedirectArguments {
            listeners: task.listeners.iter().map(|fd| fd.0).collect(),
            channel: channel.0,
            site: task.site,
        }
    })
}
