//! An errand: a process of a moment, without privileges, which asks others over the network what
//! main wants to know, so that main and the workers never read what a stranger sends.
//!
//! It is told what to do before it begins, by messages which wait in its channel; it says what it
//! found by the same way, and ends. Main ends it if it takes too long.
//!
//! ```text
//!   http   a request, bounded in time and bytes          ocsp   is a certificate revoked?
//! ```

mod http;
mod ocsp;

use crate::config::Log;
use crate::control::talk;
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, User};
use dormouse_reactor::socket::Attempt;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// What the process is told on its command line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) channel: i32,
    /// Whom to become: user and group.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) log: Log,
}

/// What is to be done.
#[derive(Serialize, Deserialize)]
pub(crate) enum Job {
    /// Ask the authority whether the first certificate of this chain (DER) is revoked.
    Ocsp { id: u64, chain: Vec<Vec<u8>> },
}

/// What was found.
#[derive(Serialize, Deserialize)]
pub(crate) enum Found {
    /// The authority's answer, which was looked at: DER, and until when it holds.
    Ocsp {
        id: u64,
        answer: Result<(Vec<u8>, u64), String>,
    },
}

/// The command line of the process.
pub(crate) fn command(told: &Told) -> io::Result<[String; 3]> {
    let told = serde_json::to_string(told)?;
    Ok(["dormouse".to_owned(), "errand".to_owned(), told])
}

/// The life of the process; `args` is what follows the subcommand.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> ExitCode {
    let told: Option<Told> = match args {
        [told] => serde_json::from_str(told).ok(),
        _ => None,
    };
    let Some(told) = told else {
        eprintln!("dormouse: `errand` is for `dormouse serve` to start, not for people");
        return ExitCode::from(2);
    };
    start_logs(&told.log);
    match run(&told) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "an errand cannot go on");
            ExitCode::from(3)
        }
    }
}

fn run(told: &Told) -> io::Result<()> {
    process::drop_privileges(told.user.map(|(uid, gid)| User { uid, gid }))?;
    process::forbid_core_dumps()?;
    let _ = process::set_name("errand");
    let channel = Fd(told.channel);
    while let Some(job) = talk::receive(channel)? {
        let found = match job {
            Job::Ocsp { id, chain } => Found::Ocsp {
                id,
                answer: ocsp::ask(&chain),
            },
        };
        say(channel, &found)?;
    }
    Ok(())
}

/// Main reads when it comes to it.
fn say(channel: Fd, found: &Found) -> io::Result<()> {
    const AGAIN: Duration = Duration::from_millis(20);
    while let Attempt::WouldBlock = talk::send(channel, found)? {
        thread::sleep(AGAIN);
    }
    Ok(())
}
