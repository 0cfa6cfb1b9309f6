//! A disk that takes long to write, for one process.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{signal, status};
use crate::tools;
use crate::wait;

/// How long each call takes that waits for the disk.
pub const DELAY: Duration = Duration::from_secs(15);

/// Until this is dropped, calls that wait for the disk take [`DELAY`].
#[derive(Debug)]
pub struct SlowDisk(Child);

impl SlowDisk {
    /// For this process and its threads. `None`: strace is missing.
    ///
    /// # Panics
    /// When strace cannot be attached.
    pub fn under(pid: u32) -> Option<SlowDisk> {
        if !tools::present(&["strace"]) {
            return None;
        }
        let calls = "fsync,fdatasync,sync_file_range";
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-e", &format!("trace={calls}"), "-e"])
            .arg(format!("inject={calls}:delay_enter={}", DELAY.as_micros()))
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .expect("strace starts");
        let slow = SlowDisk(strace);
        wait::until_true("strace to be attached", || status(pid, "TracerPid:") != "0");
        Some(slow)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::INT);
        let _ = self.0.wait();
    }
}
