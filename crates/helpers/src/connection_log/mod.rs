//! The process that writes the connection log.
//!
//! Workers may not wait for a disk, and open no file. Each sends its lines over a socket; this
//! process writes them to the file that main has opened. While the file takes nothing, nothing is
//! received, the sockets fill up, and workers drop lines and count them. Lines that the file refuses
//! (a full disk) are dropped here; main is told how many.
//!
//! The sockets are main's: what was sent while no writer lived is written by the next one.

mod writer;

use crate::helper::{self, Privileges};
use dormouse_config::Log;
use dormouse_handover::message;
use dormouse_reactor::Fd;
use dormouse_reactor::sandbox::Role;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::ExitCode;
use writer::Writer;

/// Command line of the process.
#[derive(Serialize, Deserialize)]
pub struct LogArguments {
    /// Sockets that lines come from, one for each worker.
    pub sources: Vec<i32>,
    /// The file. `None`: standard error.
    pub file: Option<i32>,
    /// Its end of the channel to main. It writes what there is, and ends, when main closes the other
    /// one.
    pub channel: i32,
}

/// Lines that were dropped since the last report.
#[derive(Debug, Serialize, Deserialize)]
pub struct DroppedLines {
    /// How many.
    pub lines: u64,
    /// Why.
    pub error: String,
}

/// The life of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run("log-writer", args, start_logs, run)
}

fn run(privileges: &Privileges, arguments: &LogArguments) -> io::Result<()> {
    let sources = arguments.sources.iter().copied().map(Fd).collect();
    let file = arguments.file.map_or(Fd(2), Fd);
    let writer = Writer::new(sources, file, Fd(arguments.channel))?;
    privileges.confine(Role::LogWriter)?;
    writer.run()
}

/// Tells main of lines that were dropped. `false`: main is busy, and is told later.
fn report(channel: Fd, dropped: &DroppedLines) -> bool {
    matches!(
        message::send(channel, dropped),
        Ok(dormouse_reactor::socket::Attempt::Done(()))
    )
}
