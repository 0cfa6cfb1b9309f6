//! Supervising and ending processes.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, WaitOptions};

use super::{Pid, resident};
use crate::signal::{self, Signal};

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Ended::Exited(code) => write!(f, "exited with code {code}"),
            Ended::Killed(number) => match signal::name(number) {
                Some(name) => write!(f, "killed by {name} ({number})"),
                None => write!(f, "killed by signal {number}"),
            },
        }
    }
}

/// The child to wait for, and whether to block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Blocks until this child ends.
    For(Pid),
    /// This child, if it has already ended.
    IfEnded(Pid),
    /// Any child that has already ended. After a SIGCHLD, call it until none is left.
    AnyEnded,
}

/// Reaps a child. Returns `None` if none has ended (or there are no children).
///
/// # Errors
/// ECHILD if the process is not a child of this one.
pub fn wait(whom: Wait) -> io::Result<Option<(Pid, Ended)>> {
    let (pid, options) = match whom {
        Wait::For(pid) => (Some(pid), WaitOptions::empty()),
        Wait::IfEnded(pid) => (Some(pid), WaitOptions::NOHANG),
        Wait::AnyEnded => (None, WaitOptions::NOHANG),
    };
    let pid = pid.map(Pid::rustix).transpose()?;
    loop {
        // Without WUNTRACED and WCONTINUED, every report is of an end.
        let (pid, status) = match rustix::process::waitpid(pid, options) {
            Ok(Some(report)) => report,
            Ok(None) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(Errno::CHILD) if whom == Wait::AnyEnded => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let pid = Pid(pid.as_raw_nonzero().get());
        if let Some(code) = status.exit_status() {
            return Ok(Some((pid, Ended::Exited(code))));
        }
        if let Some(number) = status.terminating_signal() {
            return Ok(Some((pid, Ended::Killed(number))));
        }
    }
}

/// Whether this process has an unreaped child, running or ended.
pub fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(
        rustix::process::waitid(WaitId::All, options),
        Err(Errno::CHILD)
    )
}

/// Returns how a child ended, if it has; [`wait`] can still reap it.
///
/// Reaping can cost the kernel 40 ms: it then drops its entries under `/proc` for the process one by one, and
/// another process may have listed its 15,000 descriptors.
///
/// # Errors
/// ECHILD if the process is not a child of this one.
pub fn peek(child: Pid) -> io::Result<Option<Ended>> {
    let whom = WaitId::Pid(child.rustix()?);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        let status = match rustix::process::waitid(whom.clone(), options) {
            Ok(status) => status,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        return Ok(status.and_then(|status| {
            let code = status.exit_status().map(Ended::Exited);
            code.or_else(|| status.terminating_signal().map(Ended::Killed))
        }));
    }
}

/// The life of another process, which need not be a child. A process that gets the same id later is not mistaken for it.
#[derive(Debug)]
pub struct Life(Result<OwnedFd, Errno>);

impl Life {
    /// The life of the process that has this id now.
    pub fn of(pid: Pid) -> Life {
        let id = pid.rustix().map_err(|_| Errno::SRCH);
        Life(id.and_then(|id| rustix::process::pidfd_open(id, PidfdFlags::empty())))
    }

    /// Whether the process has ended. `false`, too, if the kernel does not tell.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            Ok(process) => {
                let mut ends = [PollFd::new(process, PollFlags::IN)];
                let now = Timespec::default();
                rustix::event::poll(&mut ends, Some(&now)).is_ok_and(|count| count > 0)
            }
            Err(errno) => *errno == Errno::SRCH,
        }
    }
}

/// Kills the process with this id if one of these is its parent: another process may have the id by now. Returns whether it
/// was killed; `false`, too, if /proc hides the process.
pub fn kill_child_of(parents: &[Pid], child: Pid) -> bool {
    let Life(Ok(process)) = Life::of(child) else {
        return false;
    };
    // Of the process that is held by now, or of none: an id is free only after that has ended.
    let parent = resident::parent_of(child.0);
    let kill = rustix::process::Signal::KILL;
    parent.is_some_and(|parent| parents.contains(&parent))
        && rustix::process::pidfd_send_signal(&process, kill).is_ok()
}

/// Sends a signal to a process.
///
/// # Errors
/// The operating system's error: there is no such process. Never signals a process group.
pub fn send_signal(pid: Pid, signal: Signal) -> io::Result<()> {
    let pid = pid.rustix()?;
    let number = rustix::process::Signal::from_named_raw(signal.number());
    Ok(rustix::process::kill_process(
        pid,
        number.ok_or(Errno::INVAL)?,
    )?)
}

/// Whether a process is running: it exists and is not a zombie.
pub fn runs(pid: Pid) -> bool {
    // Not by /proc, which may hide processes that one may not trace (hidepid).
    !Life::of(pid).is_over()
}
