//! The process that writes the connection log.
//!
//! A worker must not wait for a disk, and opens no file. Each worker sends its lines over a socket;
//! this process writes them to the file that main has opened. While the file is not writable, the
//! process does not receive, the sockets fill up, and workers drop lines and count them. If a write
//! fails (a full disk, say), this process drops the lines and reports their number to main.
//!
//! The sockets belong to main: lines sent while no writer runs are written by the next writer.

mod messages;
mod output;
mod writer;

pub use messages::{DroppedLines, LastLines, LogArguments};

use crate::helper::{self, Privileges};
use crate::syslog::Syslog;
use dormouse_config::Log;
use dormouse_reactor::Fd;
use dormouse_reactor::sandbox::Role;
use output::Output;
use std::io;
use std::process::ExitCode;
use writer::Writer;

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run("log-writer", args, start_logs, run)
}

fn run(privileges: &Privileges, arguments: &LogArguments) -> io::Result<()> {
    let sources = arguments.sources.iter().copied().map(Fd).collect();
    let file = arguments.file.map_or(Fd(2), Fd);
    let output = match &arguments.syslog {
        Some((address, facility)) => Output::Syslog(file, Syslog::new(address, *facility)),
        None => Output::File(file),
    };
    let writer = Writer::new(sources, output, Fd(arguments.channel))?;
    privileges.confine(Role::LogWriter)?;
    writer.run()
}
