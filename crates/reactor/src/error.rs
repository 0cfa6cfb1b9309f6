//! Why memory which another process left behind is refused.

use std::fmt;
use std::io;

/// A mapping which was to be adopted is not what it should be.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdoptError {
    /// The operating system refused a call.
    System {
        /// What was tried.
        attempt: &'static str,
        /// What it answered.
        source: io::Error,
    },
    /// The memory file could still shrink under the mapping, which would kill its user (SIGBUS).
    NotSealed,
    /// A field of the header, or the length of the file, differs from what this build writes.
    Mismatch {
        /// The name of the field.
        field: &'static str,
        /// What was found.
        found: u64,
        /// What was expected.
        expected: u64,
    },
}

impl AdoptError {
    pub(crate) fn system(attempt: &'static str) -> impl FnOnce(io::Error) -> AdoptError {
        move |source| AdoptError::System { attempt, source }
    }

    pub(crate) fn check(field: &'static str, found: u64, expected: u64) -> Result<(), AdoptError> {
        if found == expected {
            Ok(())
        } else {
            Err(AdoptError::Mismatch {
                field,
                found,
                expected,
            })
        }
    }
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdoptError::System { attempt, source } => {
                write!(f, "operating system: cannot {attempt}: {source}")
            }
            AdoptError::NotSealed => {
                f.write_str("misuse: the memory file is not sealed against shrinking")
            }
            AdoptError::Mismatch {
                field,
                found,
                expected,
            } => write!(
                f,
                "the memory was written by another build: {field} is {found}, expected {expected}"
            ),
        }
    }
}

impl std::error::Error for AdoptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AdoptError::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
