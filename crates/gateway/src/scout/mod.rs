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

use crate::config::{Log, Sandbox, StatusCodes};
use crate::control::talk;
use crate::handover;
use crate::keeper;
use checks::Checks;
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, User};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::Attempt;
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
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) task: i32,
    pub(crate) channel: i32,
    /// Whom to become: user and group.
    pub(crate) user: Option<(u32, u32)>,
    /// Whether it confines itself.
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) log: Log,
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

/// The command line of the process.
pub(crate) fn command(told: &Told) -> io::Result<[String; 3]> {
    let told = serde_json::to_string(told)?;
    Ok(["dormouse".to_owned(), "scout".to_owned(), told])
}

/// The life of the process; `args` is what follows the subcommand.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> ExitCode {
    let told: Option<Told> = match args {
        [told] => serde_json::from_str(told).ok(),
        _ => None,
    };
    let Some(told) = told else {
        // It is for `dormouse serve` to start, not for people: the command is not shown to them.
        return ExitCode::from(2);
    };
    start_logs(&told.log);
    match run(&told) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the scout cannot go on");
            ExitCode::from(3)
        }
    }
}

fn run(told: &Told) -> io::Result<()> {
    process::drop_privileges(told.user.map(|(uid, gid)| User { uid, gid }))?;
    process::forbid_core_dumps()?;
    let _ = process::set_name("scout");
    let (task, channel) = (Task::read(Fd(told.task))?, Fd(told.channel));
    keeper::confine(Role::Scout, told.sandbox)?;
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

/// Tells main. A main that does not listen is waited for: it has other things to do, and so long
/// nobody needs to know.
fn tell(channel: Fd, finding: &Finding) -> io::Result<()> {
    loop {
        match talk::send(channel, finding)? {
            Attempt::Done(()) => return Ok(()),
            Attempt::WouldBlock => std::thread::sleep(AGAIN),
        }
    }
}

/// When a channel is full, it is tried again after so long.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(20);

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
