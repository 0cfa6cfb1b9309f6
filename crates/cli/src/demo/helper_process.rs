//! The other processes of a demo, which end with it.

use std::process::ExitCode;

use dormouse_reactor::process::{self, Pid, Program};
use dormouse_reactor::signal::{self, Signal};

use super::backend::{self, Fault};
use crate::exit_status::ExitStatus;
use crate::terminal;

/// Arguments of a part.
#[derive(Debug, clap::Args)]
pub(crate) struct HelperProcessArgs {
    /// Which one.
    #[arg(value_enum)]
    part: HelperProcess,
    /// The process of the demo: when it ends, for any reason, the part ends too.
    #[arg(long)]
    parent: i32,
    /// A fault of the echo server.
    #[arg(long, value_enum)]
    fault: Option<Fault>,
    /// The command line of `serve`.
    #[arg(last = true)]
    command: Vec<String>,
}

/// A process of the demo.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum HelperProcess {
    /// The plain echo server behind `serve`.
    Echo,
    /// `serve` itself.
    Serve,
}

/// Runs as a part of a demo.
pub(crate) fn run(args: &HelperProcessArgs) -> ExitCode {
    // SIGTERM for `serve`, so that it stops its workers too.
    let last_word = match args.part {
        HelperProcess::Echo => Signal::Kill,
        HelperProcess::Serve => Signal::Terminate,
    };
    let tied =
        signal::unblock_all().and_then(|()| process::die_with_parent(last_word, Pid(args.parent)));
    let outcome = match tied {
        Ok(true) => match args.part {
            HelperProcess::Echo => backend::run(args.fault),
            // The same process continues as `serve`, with the command line that a user would give.
            HelperProcess::Serve => Program::this(&args.command)
                .replace_this()
                .map(|never| match never {}),
        },
        // The demo has exited already.
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::error(format_args!("demo process {:?}: {error}", args.part));
            ExitStatus::Failed.into()
        }
    }
}
