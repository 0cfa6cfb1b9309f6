//! What a process may ask of the kernel: seccomp for system calls, Landlock for files, ports and
//! other processes.
//!
//! | | may | by |
//! |---|---|---|
//! | worker | what its loop needs: sockets that exist, new TCP connections, unix connections if a route has such a backend, its memory | a list of calls, everything else is refused; Landlock: no file, no port of its choice, no signal, no abstract socket |
//! | redirect, log-writer | the worker's calls, but no new socket | as a worker |
//! | control, scout | the same, look at files under a few paths, resolve names, start threads | a longer list; Landlock: these paths, to read |
//! | keeper | all but calls which no build of this program will ever make | a list of what is refused |
//!
//! **A keeper's filter outlives it.** Filters are inherited by exec, and a keeper executes itself
//! after a crash of its worker, and another binary at an upgrade. So what is refused there is a
//! promise about all later builds (`NEVER` in `calls.rs`): only calls which rule over a machine or over
//! other processes, none that a server could come to need. And a filter is set once only, however
//! often the keeper executes itself: it answers a question that the kernel does not know
//! (`QUESTION` there). Landlock has no such question, allows sixteen layers, and would have to
//! let through every path that a binary may lie under: a keeper goes without.
//!
//! **What is refused fails with EPERM** and ends nobody: should a library come to need another
//! call, one thing does not work, and not a worker with all its connections. A call which is
//! allowed whatever its arguments costs nothing that could be measured, because the kernel keeps
//! those in a bitmap; so no call of a wake is looked at by its arguments.

mod calls;
mod files;
mod probes;

use std::{fmt, io};

pub use probes::{SandboxProbe, probes};

/// Unix sockets that a process connects to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UnixSockets {
    /// None.
    No,
    /// By their path.
    Files,
    /// Abstract ones too.
    Abstract,
}

/// Which process is to be confined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Works on connections: the one that strangers talk to.
    Worker {
        /// The unix sockets that backends have.
        unix: UnixSockets,
    },
    /// Waits in a worker's process for the thread that works: whoever can write to its memory makes
    /// calls in this thread as well.
    WorkersFirstThread {
        /// As for the worker.
        unix: UnixSockets,
    },
    /// Starts workers, and other binaries.
    Keeper,
    /// Answers questions, and looks at processes for it.
    Control,
    /// Asks others over the network: resolvers, backends, stores of keys, authorities.
    Scout,
    /// Answers clients that others have connected to it, and nobody else.
    Redirect,
    /// Writes to a file that is open already.
    LogWriter,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Worker { .. } => "Worker",
            Role::WorkersFirstThread { .. } => "FirstThread",
            Role::Keeper => "Keeper",
            Role::Control => "Control",
            Role::Scout => "Scout",
            Role::Redirect => "Redirect",
            Role::LogWriter => "LogWriter",
        })
    }
}

/// Confines this process for good. But for a keeper: all threads are bound by the list of calls;
/// Landlock binds the calling thread and those that it starts, so that a worker's first thread, which
/// is there before, confines itself.
///
/// # Errors
/// The kernel does not have what it takes, or refuses. What it has is in force all the same.
pub fn enter(role: Role) -> io::Result<()> {
    // Landlock first: it takes calls that are refused afterwards.
    let files = match role {
        Role::Keeper => Ok(()),
        Role::Worker { unix } | Role::WorkersFirstThread { unix } => {
            files::confine(&[], unix == UnixSockets::Abstract)
        }
        Role::Redirect | Role::LogWriter => files::confine(&[], false),
        Role::Control => files::confine(&["/proc"], false),
        Role::Scout => files::confine(files::FOR_NAMES, true),
    };
    match role {
        Role::Keeper => calls::refuse_for_ever()?,
        Role::Worker { unix } => calls::allow_worker(unix != UnixSockets::No)?,
        // The thread that works sets the list, for both.
        Role::WorkersFirstThread { .. } => {}
        Role::Redirect | Role::LogWriter => calls::allow_answering()?,
        Role::Control | Role::Scout => calls::allow_looking()?,
    }
    files
}

/// What this kernel lacks of it, in words; empty if nothing.
pub fn missing() -> Vec<&'static str> {
    let mut missing = Vec::new();
    if !calls::supported() {
        missing.push("seccomp filters (CONFIG_SECCOMP_FILTER)");
    }
    if !files::supported() {
        missing.push("Landlock (Linux 5.13, CONFIG_SECURITY_LANDLOCK, `lsm=landlock`)");
    }
    missing
}
