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

use crate::beside::{self, Standing};
use crate::config::Log;
use crate::control::talk;
use dormouse_reactor::Fd;
use dormouse_reactor::sandbox::Role;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::ExitCode;

/// What the process is told on its command line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) channel: i32,
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

/// The life of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    beside::live("errand", args, start_logs, run)
}

fn run(standing: &Standing, told: &Told) -> io::Result<()> {
    standing.confine(Role::Scout)?;
    let channel = Fd(told.channel);
    while let Some(job) = talk::receive(channel)? {
        let found = match job {
            Job::Ocsp { id, chain } => Found::Ocsp {
                id,
                answer: ocsp::ask(&chain),
            },
        };
        beside::tell(channel, &found)?;
    }
    Ok(())
}
