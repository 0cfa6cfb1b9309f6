//! The scout: a process that looks up names and checks backends.
//!
//! Both can block, and both parse untrusted responses, so neither main nor a worker does them. A scout
//! receives its [`Task`] at its start, in a memory file, and sends one [`ScoutReport`] for each
//! result. When the addresses of a name change, main sends a new list of checks, and the scout keeps the
//! health of the backends that stay. For any other change main replaces the scout; no result is lost,
//! because results are kept in the table of backends and in main.
//!
//! ```text
//!   task      the work of a scout                       messages  messages between main and a scout
//!   lookups   names, in threads: the system's resolver blocks
//!   dns       the lifetime of a name's addresses
//!   checks    all checks, in one loop                   attempt   one check of one backend
//!   tls       TLS of a check
//! ```

mod attempt;
mod checks;
pub(crate) mod dns;
mod lookups;
mod messages;
mod task;
mod tls;

pub use messages::{ScoutArguments, ScoutReport, send_checks};
pub use task::{Check, CheckTls, LookupSchedule, Task, TlsProfile};

use crate::helper::{self, Privileges};
use checks::Checks;
use dormouse_config::Log;
use dormouse_reactor::Fd;
use dormouse_reactor::sandbox::Role;
use std::io;
use std::process::ExitCode;

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run("scout", args, start_logs, run)
}

fn run(privileges: &Privileges, arguments: &ScoutArguments) -> io::Result<()> {
    let (task, channel) = (Task::read(Fd(arguments.task))?, Fd(arguments.channel));
    privileges.confine(Role::Scout)?;
    let lookups = lookups::begin(&task.names, task.schedule, channel);
    if task.checks.is_empty() {
        return lookups::wait(lookups);
    }
    let checks = Checks::begin(task.checks, &task.profiles, channel)?;
    // The TLS contexts are built; dropping the profiles wipes the text of the keys.
    drop(task.profiles);
    checks.run()
}
