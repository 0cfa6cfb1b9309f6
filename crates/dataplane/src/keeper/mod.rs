//! The keeper: a tiny process which shares its file table with its worker.
//!
//! Because the table is shared, the worker's sockets stay open when the worker dies; because the
//! slots are shared memory, so does everything that is known of them. The keeper then starts the
//! next worker, which goes on. It reads no message from a descriptor of the shared table (whoever
//! takes over a worker can replace any of them): it waits for signals, and looks at two pages of
//! shared memory, the board that main writes and the heartbeat of its worker. The one file that it
//! reads there, the handover, it believes only if main vouches for it on the board.
//!
//! Before it starts another worker it executes itself anew, so that the new worker has a new
//! memory layout: a crash tells an attacker nothing about the next one.
//!
//! ```text
//!   tend       starts workers and watches them    hand_over  the old binary's part in an upgrade
//!   begin      how a worker begins                take_over  the new binary's
//!   arguments  what they are told                 orphaned   their end without main
//! ```

pub(crate) mod arguments;
pub(crate) mod begin;
mod hand_over;
mod orphaned;
mod take_over;
mod tend;

pub use arguments::{EXIT_CANNOT_BEGIN, EXIT_HANDED_OVER, KnownFile, first_command};
#[cfg(test)]
pub(crate) use begin::adopt_pending;

use arguments::{KeeperArgs, TAKE_OVER};
use dormouse_config::Log;
use std::process::ExitCode;

/// The life of a process which main or a keeper has started: `args` is what follows the
/// subcommand. `None`: nobody has started it as they do.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    if let [word, rest @ ..] = args
        && word == TAKE_OVER
    {
        return take_over::process_entry(rest, start_logs);
    }
    let args = KeeperArgs::parse(args)?;
    Some(match args.open() {
        Ok((board, told)) => {
            start_logs(&told.log);
            tend::keep(args, &board, &told, start_logs)
        }
        Err(error) => {
            eprintln!("dormouse: a keeper ends, and its connections: {error}");
            ExitCode::from(3)
        }
    })
}
