//! Start of a scout.

use crate::helper_process::HelperProcess;
use dormouse_config::Config;
use dormouse_helpers::helper::Privileges;
use dormouse_helpers::scout::{Check, ScoutArguments, Task};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process;
use std::io;

/// Starts a scout with this task; its reports arrive under this token.
pub(super) fn start(
    task: &Task,
    config: &Config,
    poller: &Poller,
    token: u64,
) -> io::Result<HelperProcess> {
    let privileges = privileges(config, task)?;
    let file = task.write()?;
    let (inherited, place) = (vec![file], (poller, token));
    let started = HelperProcess::start("scout", &privileges, inherited, place, |_, channel| {
        ScoutArguments {
            task: file.0,
            channel: channel.0,
        }
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
