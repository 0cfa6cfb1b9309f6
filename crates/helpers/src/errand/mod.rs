//! An errand: a process of a moment, without privileges, which asks others over the network what
//! main wants to know, so that main and the workers never read what a stranger sends.
//!
//! It is told what to do before it begins, by messages which wait in its channel; it says what it
//! found by the same way, and ends. Main ends it if it takes too long.
//!
//! ```text
//!   http   a request, bounded in time and bytes          ocsp   is a certificate revoked?
//!   acme   a certificate for a name, and when to renew it
//! ```

mod acme;
mod http;
mod ocsp;

pub use acme::{Asked, Binding, Challenge, Credentials, Had, Server, Wanted, Window};

use crate::beside::{self, Standing};
use acme::Acme;
use dormouse_config::Log;
use dormouse_handover::parts;
use dormouse_handover::talk;
use dormouse_reactor::Fd;
use dormouse_reactor::sandbox::Role;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::ExitCode;

/// What the process is told on its command line.
#[derive(Serialize, Deserialize)]
pub struct Told {
    /// The process's end of the channel to main.
    pub channel: i32,
    /// A memory file with those who may vouch for ACME servers, PEM, if one is to be asked.
    pub trust: Option<i32>,
}

/// What is to be done.
#[derive(Serialize, Deserialize)]
pub enum Job {
    /// Ask the authority whether the first certificate of this chain (DER) is revoked.
    Ocsp {
        /// Comes back with the answer.
        id: u64,
        /// The certificate, then those of its issuers.
        chain: Vec<Vec<u8>>,
    },
    /// Have a certificate made for a name.
    Obtain(Wanted),
    /// Ask when a certificate is to be renewed.
    AskWindow(Asked),
    /// All workers show the challenge: the server may look.
    Proceed,
}

/// What was found.
#[derive(Serialize, Deserialize)]
pub enum Found {
    /// A new account, for main to keep.
    Account(Credentials),
    /// What workers are to show to the one who asks whether a name is ours.
    Challenge(Challenge),
    /// The certificate for this name, or why there is none.
    Certificate {
        /// The name that the certificate was wanted for.
        name: String,
        /// The certificate, or why there is none.
        had: Result<Had, String>,
    },
    /// When the certificate for this name is to be renewed; `None`: the server does not say.
    Window {
        /// The certificate's name.
        name: String,
        /// The window, or why the server could not be asked.
        window: Result<Option<Window>, String>,
    },
    /// The authority's answer, which was looked at: DER, and until when it holds.
    Ocsp {
        /// The id of the job.
        id: u64,
        /// The response (DER) and the Unix time until which it holds, or why there is none.
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
    let mut acme = match told.trust {
        Some(file) => {
            let trust = parts::read_text(Fd(file))?;
            Some(Acme::new(&trust, channel).map_err(io::Error::other)?)
        }
        None => None,
    };
    while let Some(job) = talk::receive(channel)? {
        if let Some(found) = find(job, acme.as_mut()) {
            beside::tell(channel, &found)?;
        }
    }
    Ok(())
}

fn find(job: Job, acme: Option<&mut Acme>) -> Option<Found> {
    match (job, acme) {
        (Job::Ocsp { id, chain }, _) => Some(Found::Ocsp {
            id,
            answer: ocsp::ask(&chain),
        }),
        (Job::Obtain(wanted), Some(acme)) => Some(Found::Certificate {
            had: acme.obtain(&wanted),
            name: wanted.name,
        }),
        (Job::AskWindow(asked), Some(acme)) => Some(Found::Window {
            window: acme.ask(&asked),
            name: asked.name,
        }),
        (Job::Obtain(_) | Job::AskWindow(_) | Job::Proceed, _) => None,
    }
}
