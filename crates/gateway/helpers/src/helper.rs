//! The start of a helper process, on both sides: main starts every helper in the same way, and every helper begins in the
//! same way. A helper has one task, runs as the user nobody if main is root and can become nobody, and is sandboxed to
//! that task.

use dormouse_config::{Config, Log, Sandbox};
use dormouse_handover::child;
use dormouse_handover::{message, parts};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, Inherit, KeptPrivileges, Pid, Program, User};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::Attempt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// User and group of helpers when main is root, and of workers that need no other user.
pub const NOBODY: (u32, u32) = (65_534, 65_534);

/// Pause before the next send to a full channel.
const RETRY: Duration = Duration::from_millis(20);

/// A helper's user, sandbox and log settings.
#[derive(Clone, Serialize, Deserialize)]
pub struct Privileges {
    /// User and group to switch to. `None`: keep those of main.
    user: Option<(u32, u32)>,
    kept: Kept,
    sandbox: Sandbox,
    log: Log,
}

/// What a helper keeps of main's capabilities.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Kept {
    Nothing,
    /// If it stays root, to look at other users' sockets and files.
    FilesOfOthers,
    ReadingFiles,
    TcpRepair,
}

impl Privileges {
    /// The user nobody if main is root, else main's own user. A container's root may be unable to change its user: the
    /// helper then stays root, without capabilities.
    pub fn nobody(config: &Config) -> Privileges {
        Privileges {
            kept: Kept::Nothing,
            ..Privileges::of(can_be_nobody().then_some(NOBODY), config)
        }
    }

    /// The given user and group, or main's own. A helper that stays root keeps the capability to look at other users'
    /// sockets and files.
    pub fn of(user: Option<(u32, u32)>, config: &Config) -> Privileges {
        Privileges {
            user,
            kept: match user {
                Some(_) => Kept::Nothing,
                None => Kept::FilesOfOthers,
            },
            sandbox: config.process.sandbox,
            log: config.log.clone(),
        }
    }

    /// Main's own user, who can read what main can read, and nothing else.
    pub fn reader(config: &Config) -> Privileges {
        Privileges {
            kept: Kept::ReadingFiles,
            ..Privileges::of(None, config)
        }
    }

    /// The user nobody as in [`Privileges::nobody`], with the capabilities of TCP_REPAIR.
    pub fn tcp_repair(sandbox: Sandbox, log: Log) -> Privileges {
        Privileges {
            user: can_be_nobody().then_some(NOBODY),
            kept: Kept::TcpRepair,
            sandbox,
            log,
        }
    }

    /// Gives up main's privileges for good, before the process reads anything that does not come from main.
    pub(crate) fn assume(&self) -> io::Result<()> {
        let user = self.user.map(|(uid, gid)| User { uid, gid });
        let kept = match self.kept {
            Kept::Nothing => KeptPrivileges::Nothing,
            Kept::FilesOfOthers => KeptPrivileges::FilesOfOthers,
            Kept::ReadingFiles => KeptPrivileges::ReadingFiles,
            Kept::TcpRepair => KeptPrivileges::TcpRepair,
        };
        process::drop_privileges(user, kept)?;
        process::forbid_core_dumps()
    }

    /// Applies the sandbox of `role`, after everything outside the sandbox has been opened.
    pub(crate) fn confine(&self, role: Role) -> io::Result<()> {
        child::confine(role, self.sandbox)
    }
}

fn can_be_nobody() -> bool {
    let (uid, gid) = NOBODY;
    process::user_id() == 0 && process::can_become(User { uid, gid })
}

/// Restart schedule of a helper: at once after a long run, with increasing delays if the helper
/// exits again soon after each start.
#[derive(Debug, Default)]
pub struct RestartTimer {
    born_ms: u64,
    /// Early exits in a row.
    streak: u32,
    due_ms: Option<u64>,
}

impl RestartTimer {
    /// After this uptime the start itself is not to blame for an exit.
    const SETTLED_MS: u64 = 10_000;

    /// Records that the process was started.
    pub fn started(&mut self) {
        self.born_ms = process::boottime_ms();
        self.due_ms = None;
    }

    /// Records that the process exited, and schedules its restart.
    pub fn ended(&mut self) {
        let now_ms = process::boottime_ms();
        if now_ms.saturating_sub(self.born_ms) >= Self::SETTLED_MS {
            self.streak = 0;
        }
        self.streak = self.streak.saturating_add(1);
        let delay = child::backoff(self.streak).unwrap_or_default();
        self.due_ms = Some(now_ms + delay.as_millis() as u64);
    }

    /// Records that the process could not be started, and schedules another attempt.
    pub fn failed(&mut self) {
        self.streak = self.streak.saturating_add(1);
        self.due_ms = Some(process::boottime_ms() + (100 << self.streak.min(9)));
    }

    /// Schedules a start at once.
    pub fn set_due(&mut self) {
        self.due_ms = Some(process::boottime_ms());
    }

    /// Time of the next start.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Returns `true` once for each scheduled start whose time has come.
    pub fn take_due(&mut self) -> bool {
        let now_ms = process::boottime_ms();
        self.due_ms.take_if(|due_ms| *due_ms <= now_ms).is_some()
    }
}

/// Starts the process `name`. It inherits these descriptors under the same numbers. Its arguments
/// travel in a memory file, because every user can read a command line.
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

/// The title of the process `name` in process lists.
fn title(name: &str) -> String {
    format!("dormouse: {name}")
}

/// Runs the process `name`; `args` is what follows the subcommand. Returns `None` if main did not
/// start the process, which shows in missing arguments.
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
            tracing::error!(process = name, %error, "helper process failed");
            ExitCode::from(3)
        }
    })
}

/// Sends a report to main. Waits while the channel is full, because main is busy with something else.
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
    fn a_process_that_main_did_not_start_does_nothing() {
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
