//! The SPIFFE client: asks the agent for certificates and authorities, and tells main whenever they change.
//!
//! The agent chooses certificates by the process that asks, so this process runs as the user that the operator names for
//! it. The Workload API is gRPC, which is HTTP/2 (`h2`) with a few bytes around each message. There is one stream and no
//! runtime: this process polls it whenever its socket is ready.
//!
//! ```text
//!   messages  what main learns              stream   one connection to the agent
//!   response  what a response contains      frames   messages in the stream       socket  under h2
//! ```

mod frames;
mod messages;
mod response;
mod socket;
mod stream;

pub use messages::{SpiffeArguments, SpiffeReport};
pub use response::{AUTHORITIES_MAX, CERTIFICATES_MAX};

use crate::helper::{self, Privileges};
use dormouse_config::Log;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::{Fd, OnExec, process};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use stream::{Ended, is_main_there};

pub(crate) use frames::Frames;
pub(crate) use response::reports;

/// Name of the process.
pub const NAME: &str = "spiffe-client";

/// Pause after the first failure; each further one doubles it.
const PAUSE_MS: u64 = 250;
const PAUSE_MAX_MS: u64 = 30_000;

/// Token of the channel to main in the poller.
const CHANNEL: u64 = 0;

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run(NAME, args, start_logs, run)
}

fn run(privileges: &Privileges, arguments: &SpiffeArguments) -> io::Result<()> {
    let poller = Poller::create(OnExec::Close)?;
    let channel = Fd(arguments.channel);
    poller.add(channel, CHANNEL, Interest::READ)?;
    privileges.confine(Role::SpiffeClient)?;
    let mut failures = 0;
    loop {
        let mut has_answered = false;
        let ended = ask(&arguments.path, channel, &poller, &mut has_answered)?;
        let why = match ended {
            Ended::MainIsGone => return Ok(()),
            Ended::Failed(why) => why,
        };
        failures = if has_answered { 0 } else { failures };
        helper::report(channel, &SpiffeReport::Away(why))?;
        let pause_ms = (PAUSE_MS << failures.min(16)).min(PAUSE_MAX_MS);
        failures += 1;
        if !pause(pause_ms, channel, &poller)? {
            return Ok(());
        }
    }
}

/// Reports everything that the agent sends, until the connection ends.
fn ask(agent: &Path, channel: Fd, poller: &Poller, has_answered: &mut bool) -> io::Result<Ended> {
    let mut unsent = Ok(());
    let on_message = |message: &[u8]| {
        let all = match reports(message) {
            Ok(all) => all,
            Err(why) => vec![SpiffeReport::Refused(why)],
        };
        *has_answered = true;
        unsent = all.iter().try_for_each(|one| helper::report(channel, one));
        unsent.is_ok()
    };
    let ended = stream::watch(agent, (poller, channel), on_message);
    unsent?;
    Ok(ended)
}

/// Waits. Returns `false` if main has closed the channel.
fn pause(pause_ms: u64, channel: Fd, poller: &Poller) -> io::Result<bool> {
    let until_ms = process::boottime_ms() + pause_ms;
    let mut events = Events::with_capacity(1);
    loop {
        if !is_main_there(channel) {
            return Ok(false);
        }
        let left_ms = until_ms.saturating_sub(process::boottime_ms());
        if left_ms == 0 {
            return Ok(true);
        }
        poller.wait(&mut events, Some(left_ms))?;
    }
}
