//! Processes: three ways to start them, supervision, and calls about this process.
//!
//! - [`share_table`] starts a worker that shares its keeper's file table.
//! - [`Program`] starts another program, or replaces this one. [`is_marked`] tells a program of this project.
//! - [`wait`] reports how a child ended; [`Life`] tells whether any process has ended.

mod board;
mod cpu_sampler;
mod mark;
mod oom;
mod privileges;
mod program;
mod resident;
mod share;
mod status;
mod this;
mod title;

pub use board::{Board, BoardReader, FILES_MAX, Post, TEXT_MAX};
pub use cpu_sampler::{CpuSample, CpuSampler};
pub use mark::is_marked;
pub use oom::OomScore;
pub use privileges::{KeptPrivileges, User, can_become, confined, drop_privileges, look_up_user};
pub use program::{Inherit, Program, ProgramFile, open_program};
pub use resident::{ProcessUse, own_bytes, process_use, resident_bytes};
pub use share::{FirstThread, share_table};
pub use status::{Ended, Life, Wait, has_children, kill_child_of, peek, runs, send_signal, wait};
pub use this::{
    boottime_ms, change_directory, change_to_directory, cpu_ns, die_with_parent, forbid_core_dumps,
    futex_wait, futex_wake, group_id, host_name, may_write, monotonic_ms, monotonic_us,
    open_directory, parent, pid, return_heap, set_subreaper, signal_with_parent, thread_cpu_ns,
    user_id,
};
pub use title::{set_name, set_title};

use std::fmt;

/// A process id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pid(pub i32);

impl Pid {
    fn rustix(self) -> std::io::Result<rustix::process::Pid> {
        // Zero and negative numbers would mean process groups.
        let pid = (self.0 > 0).then(|| rustix::process::Pid::from_raw(self.0));
        Ok(pid.flatten().ok_or(rustix::io::Errno::SRCH)?)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
