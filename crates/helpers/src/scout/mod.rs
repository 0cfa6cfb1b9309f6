//! The scout: a process that looks up names and checks backends.
//!
//! Both take time, and both read what strangers have sent; so neither main nor a worker does it. A
//! scout gets its [`Task`] at its start, in a memory file, and sends one [`ScoutReport`] for each
//! result. When a name gets other addresses, main sends another list of checks, and the scout keeps
//! what it knows of the backends that stay. For any other change main ends the scout and starts
//! another: results live elsewhere, in the table of backends and with main.
//!
//! ```text
//!   task      the work of a scout                       messages  what main and a scout tell each other
//!   lookups   names, in threads: the system's resolver blocks
//!   dns       the lifetime of a name's addresses
//!   checks    all backends, in one loop                 attempt   one check of one backend
//!   tls       its TLS
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

/// The life of the process; `args` is what follows the subcommand. `None`: main did not start it.
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
    // Made into contexts; the text of the keys is wiped.
    drop(task.profiles);
    checks.run()
}
