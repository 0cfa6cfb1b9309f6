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

pub(crate) use acme::{Asked, Binding, Challenge, Credentials, Had, Server, Wanted, Window};

use crate::config::{Ca, Log, Sandbox};
use crate::control::talk;
use crate::keeper;
use acme::Acme;
use dormouse_engine::{Roots, read_pem_file};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, User};
use dormouse_reactor::sandbox::Role;
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
    pub(crate) sandbox: Sandbox,
    pub(crate) log: Log,
    /// Who may vouch for ACME servers, if one is to be asked.
    pub(crate) acme_ca: Option<Ca>,
}

/// What is to be done.
#[derive(Serialize, Deserialize)]
pub(crate) enum Job {
    /// Ask the authority whether the first certificate of this chain (DER) is revoked.
    Ocsp { id: u64, chain: Vec<Vec<u8>> },
    /// Have a certificate made for a name.
    Obtain(Wanted),
    /// Ask when a certificate is to be renewed.
    AskWindow(Asked),
    /// All workers show the challenge: the server may look.
    Proceed,
}

/// What was found.
#[derive(Serialize, Deserialize)]
pub(crate) enum Found {
    /// A new account, for main to keep.
    Account(Credentials),
    /// What workers are to show to the one who asks whether a name is ours.
    Challenge(Challenge),
    /// The certificate for this name, or why there is none.
    Certificate {
        name: String,
        had: Result<Had, String>,
    },
    /// When the certificate for this name is to be renewed; `None`: the server does not say.
    Window {
        name: String,
        window: Result<Option<Window>, String>,
    },
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
    // It may lie where only the owner reads.
    let own = match &told.acme_ca {
        Some(Ca::File(path)) => Some(read_pem_file(path).map_err(io::Error::other)?),
        Some(Ca::System) | None => None,
    };
    process::drop_privileges(told.user.map(|(uid, gid)| User { uid, gid }))?;
    process::forbid_core_dumps()?;
    let _ = process::set_name("errand");
    let system = match &told.acme_ca {
        Some(Ca::System) => Some(Roots::system_pem().map_err(io::Error::other)?),
        Some(Ca::File(_)) | None => None,
    };
    keeper::confine(Role::Scout, Some(told.sandbox))?;
    let channel = Fd(told.channel);
    let trust = own.as_deref().map(String::as_str).or(system.as_deref());
    let mut acme = match trust {
        Some(trust) => Some(Acme::new(trust, channel).map_err(io::Error::other)?),
        None => None,
    };
    while let Some(job) = talk::receive(channel)? {
        if let Some(found) = find(job, acme.as_mut()) {
            say(channel, &found)?;
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

/// Main reads when it comes to it.
fn say(channel: Fd, found: &Found) -> io::Result<()> {
    const AGAIN: Duration = Duration::from_millis(20);
    while let Attempt::WouldBlock = talk::send(channel, found)? {
        thread::sleep(AGAIN);
    }
    Ok(())
}
