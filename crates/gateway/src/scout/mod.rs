//! The scout: a process that looks names up, and asks backends whether they are well.
//!
//! Both take their time, and both mean to read what strangers have sent; so neither main nor a
//! worker does it. A scout is told everything at its start, by a memory file ([`Task`]), and only
//! speaks from then on, one message for each thing it has found ([`Finding`]). When there is
//! something else to do, main ends it and starts another: what was found lies elsewhere, in the
//! table of backends and with main.
//!
//! ```text
//!   names    lookups, in threads: the operating system's resolver waits for its answer
//!   checks   whether backends are well, in one loop        question   one check of one backend
//! ```

mod checks;
mod names;
mod question;

use crate::beside::{self, Standing};
use crate::config::{Log, StatusCodes};
use crate::handover;
use checks::Checks;
use dormouse_reactor::Fd;
use dormouse_reactor::sandbox::Role;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

/// What a scout is to do.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Hosts with ports.
    pub(crate) names: Vec<String>,
    /// They are looked up so often; without it once, and the scout ends when it has said what it
    /// has found.
    pub(crate) resolve_every_ms: Option<u64>,
    pub(crate) checks: Vec<Check>,
}

impl Task {
    /// Is there nothing to do?
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.checks.is_empty()
    }
}

/// How a backend is to be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Check {
    /// Its address, as the table of backends knows it.
    pub(crate) backend: String,
    /// What is sent before anything else: a PROXY protocol header which says that nobody is behind.
    pub(crate) preface: Vec<u8>,
    /// A request, and the answers to it which are good. `None`: to be connected is enough.
    pub(crate) request: Option<(String, StatusCodes)>,
    pub(crate) every_ms: u64,
    pub(crate) timeout_ms: u64,
    /// Answers in a row.
    pub(crate) rise: u32,
    pub(crate) fall: u32,
}

/// What a scout is told on its command line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) task: i32,
    pub(crate) channel: i32,
}

/// What a scout has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Finding {
    /// The addresses of a name, or why there are none.
    Name {
        name: String,
        found: Result<Vec<SocketAddr>, String>,
    },
    /// A backend is well, or is not, and why.
    Health {
        backend: String,
        well: Result<(), String>,
    },
}

/// The life of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    beside::live("scout", args, start_logs, run)
}

fn run(standing: &Standing, told: &Told) -> io::Result<()> {
    let (task, channel) = (Task::read(Fd(told.task))?, Fd(told.channel));
    standing.confine(Role::Scout)?;
    let searches = names::begin(&task.names, task.resolve_every_ms, channel);
    if task.checks.is_empty() {
        return names::wait(searches);
    }
    Checks::begin(task.checks, channel)?.run()
}

impl Task {
    /// Writes it into a memory file, for a scout to read.
    pub(crate) fn write(&self) -> io::Result<Fd> {
        handover::write_parts(&[], &serde_json::to_vec(self)?, &[])
    }

    fn read(fd: Fd) -> io::Result<Task> {
        let [_, task, _] = handover::parts(fd)?;
        let read = serde_json::from_slice(&handover::part(fd, task)?);
        fd.close();
        Ok(read?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_goes_through_the_memory_file() {
        let task = Task {
            names: vec!["app.example:80".to_owned()],
            resolve_every_ms: Some(30_000),
            checks: vec![Check {
                backend: "10.0.0.1:80".to_owned(),
                preface: Vec::new(),
                request: None,
                every_ms: 2_000,
                timeout_ms: 1_000,
                rise: 2,
                fall: 3,
            }],
        };
        let fd = task.write().expect("a memory file");
        assert!(Task::read(fd).expect("a task") == task);
    }
}
