//! The sandbox of each process: seccomp for system calls, Landlock for files, ports and other processes.
//!
//! | process | allowed | enforced by |
//! |---|---|---|
//! | worker | the needs of its loop: existing sockets, new TCP connections, unix connections if a route has such a backend, its memory | a list of allowed calls; Landlock: no files, no chosen port, no signals, no abstract sockets |
//! | redirect, log-writer | the worker's calls, but no new socket; the log-writer appends to its file, and no more | as for a worker |
//! | spiffe-client | the worker's calls; of new sockets only unix streams | as for a worker |
//! | tcp-repair | its own list: TCP sockets and TCP_REPAIR, two channels | a short list; Landlock: no files, no signals, no abstract sockets |
//! | control | the same, reading files under /proc, starting threads | a longer list; Landlock: this path, read-only |
//! | scout | the same, with sockets, under the paths of name resolution | a longer list; Landlock: these paths, read-only |
//! | signer | what the library of a token may need, but no other program and no signal | a list of refused calls |
//! | upgrade-trial | reading all files, and what another program needs to start | a list of refused calls; Landlock: read-only |
//! | keeper | all calls except those that no build of this program will ever make | a list of refused calls |
//!
//! **A keeper's filter outlives it.** Filters are inherited by exec, and a keeper executes itself after a crash
//! of its worker, and another binary at an upgrade. So the list of refused calls is a promise about all later
//! builds (`NEVER` in `calls/refused.rs`): it contains only calls that control the machine or other processes, and none
//! that a server could ever need. The filter is installed only once, however often the keeper executes itself:
//! an option of prctl that no kernel knows reveals it (`QUESTION` in `calls.rs`). Landlock has no such test, allows
//! sixteen layers, and would have to permit every path of a binary, so keepers do not use it.
//!
//! **Refused calls fail with EPERM** and do not end the process: if a library comes to need another call, one
//! feature fails, not a worker with all its connections. A call that is allowed with any arguments has no
//! measurable cost, because the kernel keeps these in a bitmap; so the filter checks the arguments of no call
//! in a wake. For the others the kernel runs every filter from its start, so those of a new connection come first
//! (`OFTEN` in `calls.rs`).

mod calls;
mod files;
mod ports;
mod probes;

use std::{fmt, io};

pub use ports::OwnPorts;
pub use probes::{SandboxProbe, probes};

/// The unix sockets that a process may connect to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UnixSockets {
    /// None.
    No,
    /// Sockets with a path.
    Files,
    /// Sockets with a path, and abstract ones.
    Abstract,
}

/// The process to confine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Works on connections: the process that untrusted peers talk to.
    Worker {
        /// The unix sockets of backends.
        unix: UnixSockets,
        /// Local ports that it chooses itself, for connections to backends.
        ports: OwnPorts,
    },
    /// Waits in a worker's process for the working thread. Code that can write to the process's memory can make
    /// calls in this thread too.
    WorkersFirstThread {
        /// The unix sockets of backends.
        unix: UnixSockets,
    },
    /// Starts workers, and other binaries.
    Keeper,
    /// Answers requests, and inspects processes for that.
    Control,
    /// Makes network requests: to resolvers, backends, key stores, authorities.
    Scout,
    /// Serves clients that connect to it, and makes no connections.
    Redirect,
    /// Writes to a file that is already open.
    LogWriter,
    /// Takes TCP connections out of the kernel and puts them back.
    TcpRepair,
    /// Runs the library of a token, whose needs nobody knows.
    Signer,
    /// Talks to an agent on a unix socket.
    SpiffeClient,
    /// Executes another binary, which tells whether it can take over.
    UpgradeTrial,
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
            Role::TcpRepair => "TcpRepair",
            Role::Signer => "Signer",
            Role::SpiffeClient => "SpiffeClient",
            Role::UpgradeTrial => "UpgradeTrial",
        })
    }
}

/// Confines this process permanently. Except for a keeper, the filter applies to all threads. Landlock applies
/// only to the calling thread and the threads that it starts; a worker's first thread is older, and confines
/// itself.
///
/// # Errors
/// The kernel lacks a feature or refuses. The supported parts are in force all the same.
pub fn enter(role: Role) -> io::Result<()> {
    // Landlock first: it takes calls that are refused afterwards.
    let files = match role {
        Role::Keeper | Role::Signer => Ok(()),
        Role::Worker { unix, ports } => files::confine(&[], unix == UnixSockets::Abstract, ports),
        Role::WorkersFirstThread { unix } => {
            files::confine(&[], unix == UnixSockets::Abstract, OwnPorts::NONE)
        }
        Role::Redirect | Role::LogWriter | Role::SpiffeClient => {
            files::confine(&[], false, OwnPorts::NONE)
        }
        Role::Control => files::confine(&["/proc"], false, OwnPorts::NONE),
        // Its sockets get the ports of connections that rest.
        Role::TcpRepair => files::confine_files(),
        Role::UpgradeTrial => files::confine(&["/"], false, OwnPorts::NONE),
        Role::Scout => files::confine(files::FOR_NAMES, true, OwnPorts::NONE),
    };
    match role {
        Role::Keeper => calls::refuse_permanently()?,
        Role::Worker { unix, .. } => calls::allow_worker(unix != UnixSockets::No)?,
        // The working thread installs the filter for both.
        Role::WorkersFirstThread { .. } => {}
        Role::Redirect => calls::allow_answering()?,
        Role::LogWriter => calls::allow_appending()?,
        Role::SpiffeClient => calls::allow_unix_sockets()?,
        Role::TcpRepair => calls::allow_tcp_repair()?,
        Role::Control => calls::allow_looking(false)?,
        Role::Scout => calls::allow_looking(true)?,
        Role::Signer => calls::refuse_other_processes()?,
        Role::UpgradeTrial => calls::refuse_effects()?,
    }
    files
}

/// Returns the features that this kernel lacks; empty if none.
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
