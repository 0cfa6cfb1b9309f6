//! Exit status, the same for every subcommand.

use std::process::ExitCode;

/// Exit status of a subcommand that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It ran, but something was lost or wrong, or it did not complete.
    Lost = 1,
    /// The usage or the configuration is wrong.
    Misused = 2,
    /// The operating system or the target failed.
    Failed = 3,
}

impl From<ExitStatus> for ExitCode {
    fn from(outcome: ExitStatus) -> Self {
        ExitCode::from(outcome as u8)
    }
}
