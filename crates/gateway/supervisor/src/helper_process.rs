//! Main's side of a helper process: its start, its channel, its end.

use dormouse_config::Config;
use dormouse_handover::message;
use dormouse_helpers::helper::{self, Privileges, RestartTimer};
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::{Fd, OnExec, socket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// A helper that main keeps running: started when it is due, and again after an exit.
pub(crate) struct Helper {
    name: &'static str,
    process: Option<HelperProcess>,
    restart: RestartTimer,
}

impl Helper {
    /// A helper that is not due to start.
    pub(crate) fn new(name: &'static str) -> Helper {
        Helper {
            name,
            process: None,
            restart: RestartTimer::default(),
        }
    }

    /// Time of the next start.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.restart.due_ms()
    }

    /// Schedules a start at once.
    pub(crate) fn set_due(&mut self) {
        self.restart.set_due();
    }

    /// Returns `true` once for each scheduled start whose time has come, if the process does not run.
    pub(crate) fn take_due(&mut self) -> bool {
        self.restart.take_due() && self.process.is_none()
    }

    /// Starts the process. If that fails, another attempt is scheduled.
    pub(crate) fn start(&mut self, start: impl FnOnce() -> io::Result<HelperProcess>) {
        if let Err(error) = self.try_start(start) {
            tracing::error!(process = self.name, %error, "helper process start failed");
            self.restart.failed();
        }
    }

    /// As [`Helper::start`], for the start of the program, which fails without the process.
    pub(crate) fn try_start(
        &mut self,
        start: impl FnOnce() -> io::Result<HelperProcess>,
    ) -> io::Result<()> {
        self.process = Some(start()?);
        self.restart.started();
        Ok(())
    }

    /// The process, while it runs.
    pub(crate) fn process(&self) -> Option<&HelperProcess> {
        self.process.as_ref()
    }

    /// The next message of the process.
    pub(crate) fn receive<T: DeserializeOwned>(&self, poller: &Poller) -> Option<T> {
        self.process.as_ref()?.receive(poller)
    }

    /// Handles the exit of a process, and schedules the next start. Returns `false` if it was another process.
    pub(crate) fn note_end(&mut self, pid: Pid, poller: &Poller) -> bool {
        let Some(process) = self.process.take_if(|process| process.pid == pid) else {
            return false;
        };
        process.close(poller);
        self.restart.ended();
        true
    }

    /// As [`Helper::note_end`], with a log line.
    pub(crate) fn note_death(&mut self, pid: Pid, ended: Ended, poller: &Poller) -> bool {
        let is_own = self.note_end(pid, poller);
        if is_own {
            tracing::error!(process = self.name, cause = %ended, "helper process died; restarting");
        }
        is_own
    }

    /// Lets go of the process, for the caller to end. The next turn starts another one.
    pub(crate) fn release(&mut self) -> Option<HelperProcess> {
        self.restart.set_due();
        self.process.take()
    }
}

/// The privileges of a helper that runs as the user with this name, or as nobody.
pub(crate) fn privileges_of(user: Option<&str>, config: &Config) -> Result<Privileges, String> {
    let Some(name) = user else {
        return Ok(Privileges::nobody(config));
    };
    let user = process::look_up_user(name, None)?;
    let own = process::user_id();
    if own != 0 && own != user.uid {
        return Err(format!(
            "cannot run a process as the user `{name}`; start as root, or remove this"
        ));
    }
    let user = (own == 0).then_some((user.uid, user.gid));
    match user {
        Some(_) => Ok(Privileges::of(user, config)),
        None => Ok(Privileges::nobody(config)),
    }
}

/// A running helper process, and main's end of its channel.
pub(crate) struct HelperProcess {
    pub(crate) pid: Pid,
    pub(crate) channel: Fd,
}

impl HelperProcess {
    /// Starts the process `name`, whose messages arrive under this token. `arguments` gets both ends of its channel,
    /// main's first.
    pub(crate) fn start<A: Serialize>(
        name: &str,
        privileges: &Privileges,
        mut inherited: Vec<Fd>,
        (poller, token): (&Poller, u64),
        arguments: impl FnOnce(Fd, Fd) -> A,
    ) -> io::Result<HelperProcess> {
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        // So an empty message is not taken for the end of the process.
        socket::name_senders(ours)?;
        inherited.push(theirs);
        let started = helper::start(name, privileges, &arguments(ours, theirs), inherited);
        theirs.close();
        let pid = started.inspect_err(|_| ours.close())?;
        // Without its channel, the process exits.
        let polled = poller.add(ours, token, Interest::READ);
        polled.inspect_err(|_| ours.close())?;
        Ok(HelperProcess { pid, channel: ours })
    }

    /// Its next message. `None`: there is none, or the process is gone, which SIGCHLD reports. After an invalid message the
    /// process is killed, so that another one starts.
    pub(crate) fn receive<T: DeserializeOwned>(&self, poller: &Poller) -> Option<T> {
        message::receive(self.channel).unwrap_or_else(|error| {
            let _ = poller.remove(self.channel);
            if error.kind() == io::ErrorKind::InvalidData {
                let pid = self.pid.0;
                tracing::error!(pid, %error, "invalid message from a helper process; killing it");
                let _ = process::send_signal(self.pid, Signal::Kill);
            }
            None
        })
    }

    /// Closes the channel, so that the process ends if it has not. Returns its id.
    pub(crate) fn close(self, poller: &Poller) -> Pid {
        let _ = poller.remove(self.channel);
        self.channel.close();
        self.pid
    }

    /// Kills the process. Returns its id; the exit is still to be reported.
    pub(crate) fn kill(self, poller: &Poller) -> Pid {
        let _ = process::send_signal(self.pid, Signal::Kill);
        self.close(poller)
    }
}
