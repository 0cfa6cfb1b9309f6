//! Start of a helper process, at both ends: main starts each of them in the same way, and they begin
//! in the same way. Each does one thing, as the user nobody, confined to what that thing needs.

use dormouse_config::{Config, Log, Sandbox};
use dormouse_handover::child;
use dormouse_handover::{message, parts};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, Inherit, Kept, Pid, Program, User};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::Attempt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// User and group of helpers when main is root, and of workers where that is safe.
pub const NOBODY: (u32, u32) = (65_534, 65_534);

/// Pause before the next try when a channel is full.
const RETRY: Duration = Duration::from_millis(20);

/// A helper's user, its sandbox, and what it logs.
#[derive(Clone, Serialize, Deserialize)]
pub struct Privileges {
    /// User and group to become. `None`: those of main.
    user: Option<(u32, u32)>,
    sandbox: Sandbox,
    log: Log,
}

impl Privileges {
    /// The user nobody if main is root, else main's own.
    pub fn nobody(config: &Config) -> Privileges {
        Privileges::of((process::user_id() == 0).then_some(NOBODY), config)
    }

    /// A user and group, or main's own.
    pub fn of(user: Option<(u32, u32)>, config: &Config) -> Privileges {
        Privileges {
            user,
            sandbox: config.process.sandbox,
            log: config.log.clone(),
        }
    }

    /// Root without another user to become looks at sockets of others.
    fn kept(&self) -> Kept {
        match self.user {
            Some(_) => Kept::Nothing,
            None => Kept::FilesOfOthers,
        }
    }

    /// Gives up main's privileges for good. Comes before the process reads anything but main's words.
    pub(crate) fn assume(&self) -> io::Result<()> {
        let user = self.user.map(|(uid, gid)| User { uid, gid });
        process::drop_privileges(user, self.kept())?;
        process::forbid_core_dumps()
    }

    /// Confines the process to what its role needs. Comes when everything outside is open.
    pub(crate) fn confine(&self, role: Role) -> io::Result<()> {
        child::confine(role, self.sandbox)
    }
}

/// When a helper that has ended is started again: at once, but ever later if it ends again soon after
/// its start.
#[derive(Debug, Default)]
pub struct RestartTimer {
    born_ms: u64,
    /// Ends soon after a start, in a row.
    streak: u32,
    due_ms: Option<u64>,
}

impl RestartTimer {
    /// A helper that lived this long did not end because of how it was started.
    const SETTLED_MS: u64 = 10_000;

    /// The process has been started.
    pub fn started(&mut self) {
        self.born_ms = process::boottime_ms();
        self.due_ms = None;
    }

    /// The process has ended: when to start it again is decided.
    pub fn ended(&mut self) {
        let now_ms = process::boottime_ms();
        if now_ms.saturating_sub(self.born_ms) >= Self::SETTLED_MS {
            self.streak = 0;
        }
        self.streak = self.streak.saturating_add(1);
        let delay = child::backoff(self.streak).unwrap_or_default();
        self.due_ms = Some(now_ms + delay.as_millis() as u64);
    }

    /// The process could not be started.
    pub fn failed(&mut self) {
        self.streak = self.streak.saturating_add(1);
        self.due_ms = Some(process::boottime_ms() + (100 << self.streak.min(9)));
    }

    /// The process is to be started now.
    pub fn set_due(&mut self) {
        self.due_ms = Some(process::boottime_ms());
    }

    /// When it is to be started.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Whether it is to be started now. `true` once for each time.
    pub fn take_due(&mut self) -> bool {
        let now_ms = process::boottime_ms();
        self.due_ms.take_if(|due_ms| *due_ms <= now_ms).is_some()
    }
}

/// Starts the process `name`, which gets these descriptors at the same numbers. Its arguments are in a memory
/// file: everybody can read a command line, and lists of processes show it.
pub fn start(
    name: &str,
    privileges: &Privileges,
    arguments: &impl Serialize,
    inherited: Vec<Fd>,
) -> io::Result<Pid> {
    let file = parts::write_text(&serde_json::to_string(&(privileges, arguments))?)?;
    let command = [title(name), name.to_owned(), file.to_string()];
    let inherited = inherited.into_iter().chain([file]).collect();
    let mut program = Program::this(command).with(Inherit::Only(inherited));
    program.environment = Some(child::environment());
    let started = program.start();
    file.close();
    started
}

/// What lists of processes show of the process `name`.
fn title(name: &str) -> String {
    format!("dormouse: {name}")
}

/// Runs the process `name`; `args` is what follows the subcommand. `None`: main has not started it,
/// since its arguments are missing.
pub(crate) fn run<T: DeserializeOwned>(
    name: &str,
    args: &[String],
    start_logs: fn(&Log),
    work: impl FnOnce(&Privileges, &T) -> io::Result<()>,
) -> Option<ExitCode> {
    let [file] = args else {
        return None;
    };
    let file = Fd(file.parse().ok()?);
    let arguments = parts::read_text(file).ok()?;
    let (privileges, arguments): (Privileges, T) = serde_json::from_str(&arguments).ok()?;
    file.close();
    start_logs(&privileges.log);
    let _ = process::set_name(name);
    process::set_title(&title(name));
    let worked = privileges
        .assume()
        .and_then(|()| work(&privileges, &arguments));
    Some(match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the {name} process cannot go on");
            ExitCode::from(3)
        }
    })
}

/// Sends a report to main. Waits while the channel is full: main is busy with something else.
pub(crate) fn report(channel: Fd, report: &impl Serialize) -> io::Result<()> {
    while let Attempt::WouldBlock = message::send(channel, report)? {
        thread::sleep(RETRY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_main_has_not_started_does_nothing() {
        let arguments = [
            vec![],
            vec!["{}".to_owned()],
            vec!["1000".to_owned()],
            vec![String::new(); 2],
        ];
        for args in arguments {
            let work = |_: &Privileges, (): &()| -> io::Result<()> { unreachable!("it runs") };
            assert!(run("scout", &args, |_| {}, work).is_none(), "{args:?}");
        }
    }
}
