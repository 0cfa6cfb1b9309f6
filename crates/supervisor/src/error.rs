//! Why `serve` could not begin, or ended as it should not.

use std::fmt;
use std::io;

/// Why `serve` could not begin, or ended as it should not.
#[derive(Debug)]
pub enum ServeError {
    /// A certificate or key is not what it should be. Each line says which and why.
    Certificates(Vec<String>),
    /// The operating system refused something.
    System {
        /// What was tried.
        what: String,
        /// What it said.
        error: io::Error,
        /// What would be right.
        hint: &'static str,
    },
    /// A worker could not begin, or all of them are gone.
    Workers(String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Certificates(lines) => f.write_str(&lines.join("\n")),
            ServeError::System {
                what,
                error,
                hint: "",
            } => write!(f, "{what}: {error}"),
            ServeError::System { what, error, hint } => write!(f, "{what}: {error}\n  {hint}"),
            ServeError::Workers(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ServeError {}

/// For `map_err`: names what was tried.
pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::System {
        what: what.into(),
        error,
        hint: "",
    }
}
