//! Errors of a run, by cause.

use std::fmt;

/// Cause of an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The server under test lost or failed something, but the run was completed.
    Lost,
    /// The options of the run contradict each other or cannot be met.
    Usage,
    /// The server under test could not be used at all, or died.
    Target,
    /// The operating system refused something to this process.
    System,
}

/// An error of a run or of a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The cause.
    pub blame: Blame,
    /// What happened, where, and the remedy.
    pub message: String,
}

impl Error {
    /// The options contradict each other or cannot be met.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Usage,
            message: message.into(),
        }
    }

    /// The server under test failed as a whole.
    pub fn target(message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Target,
            message: message.into(),
        }
    }

    /// The operating system refused.
    pub fn system(message: impl Into<String>) -> Self {
        Self {
            blame: Blame::System,
            message: message.into(),
        }
    }

    /// Some of the work was lost.
    pub fn lost(message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Lost,
            message: message.into(),
        }
    }

    /// The user or the system ended the run.
    pub fn interrupted() -> Self {
        Self::lost("interrupted; figures so far")
    }

    /// Returns the exit status for this error: 1 lost, 2 usage, 3 target or system.
    pub fn exit_status(&self) -> u8 {
        match self.blame {
            Blame::Lost => 1,
            Blame::Usage => 2,
            Blame::Target | Blame::System => 3,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
