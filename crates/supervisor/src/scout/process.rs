//! Start and end of a scout.

use dormouse_config::Config;
use dormouse_helpers::helper::{self, Privileges};
use dormouse_helpers::scout::{Check, ScoutArguments, Task};
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::{Fd, OnExec, socket};
use std::io;

/// A running scout.
pub(super) struct ScoutProcess {
    pub(super) pid: Pid,
    pub(super) channel: Fd,
}

impl ScoutProcess {
    /// Starts a scout with this task; its reports arrive under this token.
    pub(super) fn start(
        task: &Task,
        config: &Config,
        poller: &Poller,
        token: u64,
    ) -> io::Result<ScoutProcess> {
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        let started = launch(task, config, theirs);
        theirs.close();
        let pid = started.inspect_err(|_| ours.close())?;
        poller.add(ours, token, Interest::READ)?;
        Ok(ScoutProcess { pid, channel: ours })
    }

    /// Ends the scout. Returns its process id; the exit is still to be reported.
    pub(super) fn end(self, poller: &Poller) -> Pid {
        let pid = self.pid;
        let _ = process::send_signal(pid, Signal::Kill);
        self.close(poller);
        pid
    }

    /// Closes the channel after the scout's exit.
    pub(super) fn close(self, poller: &Poller) {
        let _ = poller.remove(self.channel);
        self.channel.close();
    }
}

fn launch(task: &Task, config: &Config, channel: Fd) -> io::Result<Pid> {
    let file = task.write()?;
    let arguments = ScoutArguments {
        task: file.0,
        channel: channel.0,
    };
    let started = privileges(config, task).and_then(|privileges| {
        helper::start("scout", &privileges, &arguments, vec![file, channel])
    });
    file.close();
    started
}

/// The scout runs as the workers' user if it checks unix sockets, which may be closed to the user nobody.
fn privileges(config: &Config, task: &Task) -> io::Result<Privileges> {
    let is_unix = |check: &Check| check.backend.starts_with("unix:");
    match &config.process.user {
        Some(user) if process::user_id() == 0 => {
            let found = process::look_up_user(user, config.process.group.as_deref());
            let user = found.map_err(io::Error::other)?;
            Ok(Privileges::of(Some((user.uid, user.gid)), config))
        }
        None if task.checks.iter().any(is_unix) => Ok(Privileges::of(None, config)),
        _ => Ok(Privileges::nobody(config)),
    }
}
