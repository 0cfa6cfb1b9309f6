//! Reasons for refusing memory that another process left behind.

use std::fmt;
use std::io;

/// Why a mapping cannot be adopted.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdoptError {
    /// A system call failed.
    System {
        /// The attempted operation.
        attempt: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The memory file could still shrink under the mapping, which would kill the process (SIGBUS).
    NotSealed,
    /// A header field, or the length of the file, differs from this build's value.
    Mismatch {
        /// Name of the field.
        field: &'static str,
        /// The found value.
        found: u64,
        /// The expected value.
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
