//! strace, attached to a process of a test: it counts the system calls, delays them, or kills the process at one.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{signal, status};
use crate::requirement::{Requirement as _, Root};
use crate::tools;
use crate::wait;

/// How long each call takes that waits for a slow disk.
pub const DELAY: Duration = Duration::from_secs(15);

/// Acts on a process and its threads until it is dropped.
#[derive(Debug)]
pub struct Strace(Child);

impl Strace {
    /// `None`: strace is missing, or may not be attached, because `dormouse` closes its processes to all but root.
    ///
    /// # Panics
    /// When strace cannot be attached.
    pub fn of(pid: u32, options: &[&str]) -> Option<Strace> {
        if !(Root.is_met() && tools::present(&["strace"])) {
            return None;
        }
        let strace = Command::new("strace")
            .args(["-f", "-qq"])
            .args(options)
            .args(["-p", &pid.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace starts");
        let attached = Strace(strace);
        wait::until_true("strace to be attached", || status(pid, "TracerPid:") != "0");
        Some(attached)
    }

    /// Calls that wait for the disk take [`DELAY`].
    ///
    /// # Panics
    /// As [`Strace::of`].
    pub fn slow_disk(pid: u32) -> Option<Strace> {
        let calls = "fsync,fdatasync,sync_file_range";
        let delayed = format!("inject={calls}:delay_enter={}", DELAY.as_micros());
        Strace::of(pid, &["-e", &format!("trace={calls}"), "-e", &delayed])
    }

    /// The process is killed when it begins this system call, counted from 1. Calls that only wait are not counted.
    ///
    /// # Panics
    /// As [`Strace::of`].
    pub fn kill_at(pid: u32, call: u32) -> Option<Strace> {
        let calls = "!epoll_wait,epoll_pwait,epoll_pwait2,poll,ppoll,clock_gettime,restart_syscall";
        let killed = format!("inject={calls}:signal=SIGKILL:when={call}");
        Strace::of(pid, &["-e", &format!("trace={calls}"), "-e", &killed])
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::INT);
        let _ = self.0.wait();
    }
}
