//! Processes beside main and the workers: what takes its time, or means to read what strangers
//! have sent, is done by none of these.
//!
//! Each does one thing, as nobody, with no more of the system than that needs: `control` answers
//! questions, a `scout` looks names up and asks backends whether they are well, an `errand` fetches
//! something and ends, the `ticket-store` shares keys with a fleet. Main starts them all in the same
//! way, and they begin in the same way: both ends are here.

use dormouse_config::{Config, Log, Sandbox};
use dormouse_handover::child;
use dormouse_handover::talk;
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, Inherit, Pid, Program, User};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::Attempt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Whom they become when main is root.
const NOBODY: (u32, u32) = (65_534, 65_534);

/// When a channel is full, it is tried again after so long.
const AGAIN: Duration = Duration::from_millis(20);

/// As whom, and how confined, a process does its work.
#[derive(Clone, Serialize, Deserialize)]
pub struct Standing {
    /// Whom to become: user and group.
    user: Option<(u32, u32)>,
    sandbox: Sandbox,
    log: Log,
}

impl Standing {
    /// Nobody's, if that can be had.
    pub fn nobody(config: &Config) -> Standing {
        Standing::of((process::user_id() == 0).then_some(NOBODY), config)
    }

    /// That of a user and group, or of whom main is.
    pub fn of(user: Option<(u32, u32)>, config: &Config) -> Standing {
        Standing {
            user,
            sandbox: config.process.sandbox,
            log: config.log.clone(),
        }
    }

    /// No way back to what main may. Comes before the process reads anything but what main says.
    pub(crate) fn assume(&self) -> io::Result<()> {
        process::drop_privileges(self.user.map(|(uid, gid)| User { uid, gid }))?;
        process::forbid_core_dumps()
    }

    /// No way to more of the system than this role needs. Comes when what lies outside is open.
    pub(crate) fn confine(&self, role: Role) -> io::Result<()> {
        child::confine(role, Some(self.sandbox))
    }
}

/// Starts the process `name`, which gets these descriptors at the same numbers. What it is told is
/// seen by everybody, on its command line: nothing secret.
pub fn start(
    name: &str,
    standing: &Standing,
    told: &impl Serialize,
    inherited: Vec<Fd>,
) -> io::Result<Pid> {
    let told = serde_json::to_string(&(standing, told))?;
    let command = ["dormouse", name, &told].map(str::to_owned);
    let mut program = Program::this(command).with(Inherit::Only(inherited));
    program.environment = Some(child::environment());
    program.start()
}

/// The life of the process `name`; `args` is what follows the subcommand. `None`: nobody has told
/// it what to do, so it was not main that started it.
pub(crate) fn live<T: DeserializeOwned>(
    name: &str,
    args: &[String],
    start_logs: fn(&Log),
    work: impl FnOnce(&Standing, &T) -> io::Result<()>,
) -> Option<ExitCode> {
    let [told] = args else {
        return None;
    };
    let (standing, told): (Standing, T) = serde_json::from_str(told).ok()?;
    start_logs(&standing.log);
    let _ = process::set_name(name);
    let worked = standing.assume().and_then(|()| work(&standing, &told));
    Some(match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the {name} process cannot go on");
            ExitCode::from(3)
        }
    })
}

/// Tells main. A main that does not listen is waited for: it has other things to do, and so long
/// nobody needs to know.
pub(crate) fn tell(channel: Fd, found: &impl Serialize) -> io::Result<()> {
    while let Attempt::WouldBlock = talk::send(channel, found)? {
        thread::sleep(AGAIN);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_told_by_main_does_nothing() {
        let not_told = [vec![], vec!["{}".to_owned()], vec![String::new(); 2]];
        for args in not_told {
            let work = |_: &Standing, (): &()| -> io::Result<()> { unreachable!("not told") };
            assert!(live("scout", &args, |_| {}, work).is_none(), "{args:?}");
        }
    }
}
