//! The redirect process, as main sees it: started where plain HTTP is listened on, started again
//! when it ends, told of challenges.
//!
//! Another configuration gets another process. The former one serves its clients to their end.

use crate::serving::Serving;
use crate::tokens;
use dormouse_config::Config;
use dormouse_handover::message;
use dormouse_helpers::helper::{self, Privileges, RestartTimer};
use dormouse_helpers::redirect::{
    ChallengeOrder, ChallengeShown, HttpChallenge, RedirectArguments, Site,
};
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{Ended, Pid};
use dormouse_reactor::socket;
use dormouse_reactor::{Fd, OnExec};
use std::io;

/// The process, and what it answers.
#[derive(Default)]
pub(crate) struct RedirectProcess {
    process: Option<(Pid, Fd)>,
    restart: RestartTimer,
    /// What the process was started with, or is to be.
    task: Option<Task>,
    /// The number of the challenge that it was told of last.
    told: u64,
    /// The number of the challenge that it answers.
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
    /// When something has to be done for it.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.restart.due_ms()
    }

    /// Starts the process when it is time, and ends it when there is another task or, unless clients
    /// are accepted, none. Returns the process that was ended. Called once a turn.
    pub(crate) fn attend(
        &mut self,
        is_accepting: bool,
        serving: &Serving,
        poller: &Poller,
    ) -> Option<Pid> {
        // A listener that is paused is always ready, and nothing can be accepted from it.
        let task = is_accepting.then(|| Task::of(serving)).flatten();
        if task != self.task {
            self.task = task;
            self.restart.set_due();
            return self.end(poller);
        }
        if self.restart.take_due()
            && self.process.is_none()
            && let Some(task) = &self.task
        {
            match start(task, &serving.edition.config, poller) {
                Ok(process) => {
                    self.process = Some(process);
                    self.restart.started();
                    self.told = 0;
                }
                Err(error) => {
                    tracing::error!(%error, "the redirect process can't be started");
                    self.restart.failed();
                }
            }
        }
        None
    }

    /// Tells the process of the challenge with this number. Called once a turn.
    pub(crate) fn tell(&mut self, number: u64, challenge: Option<&HttpChallenge>) {
        if let Some((_, channel)) = self.process
            && self.told != number
        {
            let order = ChallengeOrder {
                number,
                challenge: challenge.cloned(),
            };
            // A channel that is full is tried again in the next turn.
            if let Ok(socket::Attempt::Done(())) = message::send(channel, &order) {
                self.told = number;
            }
        }
    }

    /// Hears which challenge the process answers.
    pub(crate) fn receive(&mut self, poller: &Poller) {
        let Some((_, channel)) = self.process else {
            return;
        };
        match message::receive::<ChallengeShown>(channel) {
            Ok(Some(ChallengeShown(number))) => self.shows = number,
            Ok(None) => {}
            Err(_) => {
                // SIGCHLD reports its end.
                let _ = poller.remove(channel);
            }
        }
    }

    /// The number of the challenge that it answers.
    pub(crate) fn shows(&self) -> u64 {
        self.shows
    }

    /// Notes that the process has ended. `false`: it was another one.
    pub(crate) fn note_end(&mut self, pid: Pid, ended: Ended, poller: &Poller) -> bool {
        if self.process.is_none_or(|(ours, _)| ours != pid) {
            return false;
        }
        tracing::error!("the redirect process is gone ({ended}); it is started again");
        self.end(poller);
        self.restart.ended();
        true
    }

    /// Ends the process once its clients are served. Returns it: its end is still to come.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        let (pid, channel) = self.process.take()?;
        let _ = poller.remove(channel);
        channel.close();
        self.shows = 0;
        Some(pid)
    }
}

fn start(task: &Task, config: &Config, poller: &Poller) -> io::Result<(Pid, Fd)> {
    let (ours, theirs) = socket::channel(OnExec::Close)?;
    let arguments = RedirectArguments {
        listeners: task.listeners.iter().map(|fd| fd.0).collect(),
        channel: theirs.0,
        site: task.site,
    };
    let inherited = task.listeners.iter().copied().chain([theirs]).collect();
    let privileges = Privileges::nobody(config);
    let started = helper::start("redirect", &privileges, &arguments, inherited);
    theirs.close();
    let pid = started.inspect_err(|_| ours.close())?;
    poller.add(ours, tokens::REDIRECT, Interest::READ)?;
    Ok((pid, ours))
}
