//! Main's side of a helper process: its start, its channel, its end.

use dormouse_handover::message;
use dormouse_helpers::helper::{self, Privileges, RestartTimer};
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::{Fd, OnExec, socket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// Starts a helper that is due to start. `None`: it could not be started; `restart` has the time of the next attempt.
pub(crate) fn start_due(
    name: &str,
    restart: &mut RestartTimer,
    start: impl FnOnce() -> io::Result<HelperProcess>,
) -> Option<HelperProcess> {
    match start() {
        Ok(process) => {
            restart.started();
            Some(process)
        }
        Err(error) => {
            tracing::error!(process = name, %error, "helper process start failed");
            restart.failed();
            None
        }
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
