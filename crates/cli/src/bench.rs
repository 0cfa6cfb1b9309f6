//! `dormouse bench`: the command line of the instrument.

use std::process::ExitCode;

use crate::outcome::Outcome;
use crate::terminal;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Mode, address and options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Measures as it was told to.
pub(crate) fn run(args: BenchArgs) -> ExitCode {
    terminal::error(format_args!(
        "this build has no instrument for {:?}",
        args.args
    ));
    Outcome::Failed.into()
}
