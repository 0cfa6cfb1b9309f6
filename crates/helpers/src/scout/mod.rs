//! The scout: a process that looks names up, and asks backends whether they are well.
//!
//! Both take their time, and both mean to read what strangers have sent; so neither main nor a
//! worker does it. A scout is told what to do at its start, by a memory file ([`Task`]), and says
//! what it has found, one message for each thing ([`Finding`]). When a name stands for others, it
//! is told by another such file whom to check from now on, and keeps what it knows of those who
//! stay. When there is anything else to do, main ends it and starts another: what was found lies
//! elsewhere, in the table of backends and with main.
//!
//! ```text
//!   names    lookups, in threads: the operating system's resolver waits for its answer
//!   dns      for how long what a name stands for may be believed
//!   checks   whether backends are well, in one loop        question   one check of one backend
//!   speech   its TLS
//! ```

mod checks;
mod dns;
mod names;
mod question;
mod speech;

use crate::beside::{self, Standing};
use checks::Checks;
use dormouse_config::{Log, StatusCodes};
use dormouse_handover::{OriginPem, Pem, parts};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

/// What a scout is to do.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Hosts with ports.
    pub names: Vec<String>,
    /// When they are looked up again; without it never, and the scout ends when it has said what it
    /// has found.
    pub again: Option<Again>,
    /// In the order of the backends' names.
    pub checks: Vec<Check>,
    /// How TLS is spoken in checks.
    pub speeches: Vec<Speech>,
}

/// When a name is looked up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// Where nobody says how long its addresses hold.
    pub every_ms: u64,
    /// Where DNS does, and says less, or more.
    pub ttl_min_ms: u64,
    /// Longest time, whatever DNS says.
    pub ttl_max_ms: u64,
}

/// How TLS is spoken with the backends of a route.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Speech {
    /// Trust and own certificate, as clients' connections have them.
    pub pem: OriginPem,
    /// Application protocols that are offered, the preferred one first.
    pub alpn: Vec<String>,
}

/// A check that speaks TLS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckTls {
    /// Which of the task's speeches.
    pub speech: usize,
    /// Whom the backend's certificate has to be for.
    pub server_name: String,
}

impl Task {
    /// Is there nothing to do?
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.checks.is_empty()
    }

    /// Whether a scout that was told `other` only needs to be told whom to check.
    pub fn is_same_but_for_whom_to_check(&self, other: &Task) -> bool {
        let is_unix = |check: &Check| check.backend.starts_with("unix:");
        let asks = |task: &Task| (!task.checks.is_empty(), task.checks.iter().any(is_unix));
        asks(self) == asks(other)
            && self.names == other.names
            && self.again == other.again
            && self.speeches == other.speeches
    }
}

/// How a backend is to be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its address, as the table of backends knows it.
    pub backend: String,
    /// What is sent before anything else: a PROXY protocol header which says that nobody is behind.
    pub preface: Vec<u8>,
    /// TLS, then.
    pub tls: Option<CheckTls>,
    /// A request, and the answers to it which are good. `None`: to be connected, with TLS if it is
    /// spoken, is enough.
    pub request: Option<(String, StatusCodes)>,
    /// Milliseconds between two checks.
    pub every_ms: u64,
    /// Milliseconds for one check.
    pub timeout_ms: u64,
    /// Answers in a row.
    pub rise: u32,
    /// Bad answers in a row after which a backend is down.
    pub fall: u32,
}

/// What a scout is told on its command line.
#[derive(Serialize, Deserialize)]
pub struct Told {
    /// Descriptor of the memory file with the task.
    pub task: i32,
    /// The scout's end of the channel to main.
    pub channel: i32,
}

/// What a scout has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Finding {
    /// The addresses of a name, or why there are none.
    Name {
        /// The host and port that were looked up.
        name: String,
        /// The addresses, at least one, or why there are none.
        found: Result<Vec<SocketAddr>, String>,
    },
    /// A backend is well, or is not, and why.
    Health {
        /// The backend's address, as in its check.
        backend: String,
        /// `Ok` if the backend is well, else why not.
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
    let searches = names::begin(&task.names, task.again, channel);
    if task.checks.is_empty() {
        return names::wait(searches);
    }
    let checks = Checks::begin(task.checks, &task.speeches, channel)?;
    // Made into contexts; the text of the keys is wiped.
    drop(task.speeches);
    checks.run()
}

/// What a message to a scout at work begins with: a memory file with checks comes along.
const CHECKS: &[u8] = b"checks";

/// Main: from now on these are to be checked, and no others. `WouldBlock`: the scout does not
/// listen.
pub fn tell_checks(channel: Fd, checks: &[Check]) -> io::Result<Attempt<()>> {
    let task = Task {
        checks: checks.to_vec(),
        ..Task::default()
    };
    let file = task.write()?;
    let told = socket::send_message(channel, CHECKS, &[file]);
    file.close();
    told
}

/// What a scout hears from main.
enum Heard {
    Nothing,
    Checks(Vec<Check>),
    /// Main is gone, or has ended this.
    End,
}

fn hear_checks(channel: Fd) -> io::Result<Heard> {
    let mut room = [0; CHECKS.len()];
    let Attempt::Done(message) = socket::receive_message(channel, &mut room, OnExec::Close)? else {
        return Ok(Heard::Nothing);
    };
    match message.descriptors.as_slice() {
        [file] => Ok(Heard::Checks(Task::read(*file)?.checks)),
        _ => Ok(Heard::End),
    }
}

impl Task {
    /// Writes it into a memory file, for a scout to read.
    pub fn write(&self) -> io::Result<Fd> {
        let keys = parts::join_secrets(self.own().map(|pem| pem.key.as_bytes()).collect());
        parts::write(&[], &serde_json::to_vec(self)?, &keys)
    }

    /// What is shown to backends.
    fn own(&self) -> impl Iterator<Item = &Pem> {
        let speeches = self.speeches.iter();
        speeches.filter_map(|speech| speech.pem.identity.as_ref())
    }

    fn read(fd: Fd) -> io::Result<Task> {
        let [_, task, keys] = parts::locate(fd)?;
        let read = serde_json::from_slice(&parts::read(fd, task)?);
        let keys = parts::read(fd, keys);
        fd.close();
        let (mut task, keys): (Task, _) = (read?, keys?);
        let mut rest = keys.as_slice();
        let speeches = task.speeches.iter_mut();
        for own in speeches.filter_map(|speech| speech.pem.identity.as_mut()) {
            let key = parts::take_secret(&mut rest)?.to_vec();
            own.key = String::from_utf8(key).map_err(io::Error::other)?;
        }
        Ok(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_goes_through_the_memory_file() {
        let task = Task {
            names: vec!["app.example:80".to_owned()],
            again: Some(Again {
                every_ms: 30_000,
                ttl_min_ms: 1_000,
                ttl_max_ms: 3_600_000,
            }),
            checks: vec![Check {
                backend: "10.0.0.1:80".to_owned(),
                preface: Vec::new(),
                tls: Some(CheckTls {
                    speech: 0,
                    server_name: "app.example".to_owned(),
                }),
                request: None,
                every_ms: 2_000,
                timeout_ms: 1_000,
                rise: 2,
                fall: 3,
            }],
            speeches: vec![Speech {
                pem: OriginPem {
                    roots: Some("roots".to_owned()),
                    identity: Some(Pem {
                        name: "own.pem".to_owned(),
                        key_name: "own.key".to_owned(),
                        chain: "chain".to_owned(),
                        ocsp: Vec::new(),
                        ocsp_from_file: false,
                        key: "key".to_owned(),
                    }),
                },
                alpn: vec!["http/1.1".to_owned()],
            }],
        };
        let fd = task.write().expect("a memory file");
        assert!(Task::read(fd).expect("a task") == task);
    }
}
