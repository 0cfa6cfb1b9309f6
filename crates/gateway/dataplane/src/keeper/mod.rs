//! The keeper: a small process that shares its file table with its worker.
//!
//! Because the table is shared, the worker's sockets stay open when the worker dies. Because the slots
//! are in shared memory, the state of the connections also survives. The keeper then starts the next
//! worker, which continues with both. The keeper reads no message from a descriptor of the shared
//! table, because a compromised worker could have replaced any of them. It waits for signals, and reads
//! two pages of shared memory: the board, which only main can write, and its worker's heartbeat. The
//! only file that it reads from the table is the handover, and only if main has registered that file on
//! the board.
//!
//! Before it starts another worker, the keeper executes itself again, so that the new worker has a new
//! memory layout: a crash tells an attacker nothing about the next worker.
//!
//! ```text
//!   tend       starts and watches workers    hand_over  the old keeper's part in an upgrade
//!   begin      start of a worker             take_over  the new keeper's part
//!   arguments  command lines                 orphaned   the end after main's death
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

/// Entry point of a keeper. `args` are the arguments after the subcommand. `None`: the arguments are not
/// those of main or of a keeper.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    if let [word, rest @ ..] = args
        && word == TAKE_OVER
    {
        return take_over::process_entry(rest, start_logs);
    }
    let args = KeeperArgs::parse(args)?;
    Some(match args.open() {
        Ok((board, part)) => {
            start_logs(&part.log);
            tend::keep(args, &board, &part, start_logs)
        }
        Err(error) => {
            eprintln!("dormouse: keeper exits and closes its connections: {error}");
            ExitCode::from(3)
        }
    })
}
