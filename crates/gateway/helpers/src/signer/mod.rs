//! The signer: signs with keys in PKCS #11 tokens, one signature after the other.
//!
//! The library of a token is foreign code that needs files, devices, sockets and time, of which nobody knows how much. So
//! it is loaded into a process of its own, as a user that may use the token. It cannot execute a program or touch
//! another process. Of TLS it sees a digest, and the worker's loop does not wait for it: only the handshake does.
//!
//! ```text
//!   messages   messages between main and the process
//!   tokens     sessions with tokens, opened again after an error
//!   signature  mechanisms of PKCS #11, and signatures as TLS has them
//! ```

mod messages;
mod signature;
mod tokens;

pub use messages::{KeyAccess, SignOrder, SignReport, SignerArguments};

use std::io;
use std::process::ExitCode;

use dormouse_config::Log;
use dormouse_handover::message;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::{Fd, OnExec};

use crate::helper::{self, Privileges};
use tokens::Tokens;

/// Name of the process.
pub const NAME: &str = "signer";

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run(NAME, args, start_logs, run)
}

fn run(privileges: &Privileges, arguments: &SignerArguments) -> io::Result<()> {
    let poller = Poller::create(OnExec::Close)?;
    let channel = Fd(arguments.channel);
    poller.add(channel, 0, Interest::READ)?;
    privileges.confine(Role::Signer)?;
    let mut tokens = Tokens::new(&arguments.keys);
    let mut events = Events::with_capacity(1);
    loop {
        match message::receive::<SignOrder>(channel) {
            Ok(Some(SignOrder { number, request })) => {
                let signature = tokens.sign(&request);
                helper::report(channel, &SignReport { number, signature })?;
            }
            Ok(None) => poller.wait(&mut events, None)?,
            // Main has closed its end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
