//! `dormouse demo`: the gateway at work, for a first look.
//!
//! It starts `serve`, this very binary, before a plain echo server, opens thousands of real TLS
//! connections, and shows how they go to rest and what they cost. Then it wakes a random part of
//! them repeatedly, kills the workers with SIGKILL, and checks that every connection still works.
//! It compares every echo byte for byte; a lost connection makes the exit status non-zero.
//!
//! Three process trees keep their memory separate: `serve` with its workers, the
//! echo server ([`backend`]), and this one with the clients ([`fleet`]).

mod backend;
mod children;
mod client;
mod fleet;
mod format;
mod helper_process;
mod plan;
mod random;
mod script;
mod show;
mod summary;
mod traffic;
mod upgrade;
mod view;
mod watch;

pub(crate) use helper_process::{HelperProcessArgs, run as run_part};

use std::io;
use std::process::ExitCode;

use crate::exit_status::ExitStatus;
use crate::terminal;
use plan::Plan;
use show::{DemoError, Show};
use summary::Results;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Number of TLS connections to open [default: 5000, with --quick 500]
    #[arg(short = 'n', long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(i64::from(plan::CONNECTIONS_MIN)..=i64::from(plan::CONNECTIONS_MAX)))]
    connections: Option<u32>,

    /// Run for a few seconds only
    #[arg(long)]
    quick: bool,

    /// Print lines of text instead of the animation
    #[arg(long)]
    plain: bool,

    /// Give the echo server a fault, to prove that the demo can fail
    #[arg(long, value_enum, hide = true)]
    fault: Option<backend::Fault>,
}

/// Runs the demo and prints the result.
pub(crate) fn run(args: &DemoArgs) -> ExitCode {
    let plan = match Plan::new(args.connections, args.quick) {
        Ok(plan) => plan,
        Err(trouble) => return failed(&trouble),
    };
    let mut results = Results::default();
    // The show must end before anything is printed: it owns the terminal until then.
    let end = Show::open(&plan, args.fault, args.plain)
        .and_then(|mut show| script::play(&mut show, &plan, &mut results));
    match end {
        Ok(()) => {
            let verdict = results.verdict();
            let colours = terminal::colours_on(&io::stdout());
            terminal::print(&summary::page(&plan, &results, &verdict, colours));
            match verdict.as_slice() {
                [] => ExitCode::SUCCESS,
                _ => ExitStatus::Lost.into(),
            }
        }
        Err(DemoError::Interrupted) => {
            terminal::note("the demo was interrupted; all its processes have been stopped");
            ExitStatus::Lost.into()
        }
        Err(DemoError::Failed(trouble)) => failed(&trouble),
    }
}

fn failed(trouble: &str) -> ExitCode {
    terminal::error(trouble);
    ExitStatus::Failed.into()
}
