//! Errors of `serve`.

use std::fmt;
use std::io;
use std::path::Path;

/// Why `serve` could not start, or ended unexpectedly.
#[derive(Debug)]
pub enum ServeError {
    /// Invalid certificates or keys, one line for each.
    Certificates(Vec<String>),
    /// The operating system refused something.
    System {
        /// The failed action, as an infinitive: "listen on 0.0.0.0:443".
        what: String,
        /// The system's error.
        error: io::Error,
        /// The remedy; may be empty.
        hint: &'static str,
    },
    /// Connections cannot leave the kernel on this machine, but a route's `rest_after` asks for it. What failed, as an
    /// infinitive.
    Rest(String),
    /// A worker could not start, or all workers are gone.
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
            } => write!(f, "cannot {what}: {error}"),
            ServeError::System { what, error, hint } => {
                write!(f, "cannot {what}: {error}\n  {hint}")
            }
            ServeError::Rest(what) => write!(
                f,
                "`rest_after`: connections cannot leave the kernel here: cannot {what}\n  it needs Linux 5.9 and, at the \
                 start, CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW; without the option they stay in the kernel"
            ),
            ServeError::Workers(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ServeError {}

/// For `map_err`: adds the failed action to an error.
pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::System {
        what: what.into(),
        error,
        hint: "",
    }
}

/// Why a file or directory that the configuration names cannot be read, and in the next line the remedy.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            "\ncheck the path: in a file it is relative to that file, in a flag to the current directory"
        }
        io::ErrorKind::IsADirectory => "\nname a file in this directory",
        io::ErrorKind::PermissionDenied => "\nmake it readable for the user who starts dormouse",
        _ => "",
    };
    format!("{}: cannot be read: {error}{remedy}", path.display())
}
