//! What a process asks of itself.

use std::fs;
use std::io;
use std::sync::atomic::AtomicU32;

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::futex;
use rustix::time::ClockId;

use super::Pid;
use crate::os_result::os_result;
use crate::signal::Signal;

/// This process.
pub fn pid() -> Pid {
    Pid(std::process::id() as i32)
}

/// The name of this machine, if it is one that protocols take: ASCII without spaces.
pub fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then_some(name)
}

/// The user whose rights this process has (its effective user id).
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group whose rights this process has (its effective group id).
pub fn group_id() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Whether this process may make files in the directory.
///
/// # Errors
/// Why it may not.
pub fn may_write(directory: &std::path::Path) -> io::Result<()> {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    let flags = rustix::fs::AtFlags::EACCESS;
    Ok(rustix::fs::accessat(
        rustix::fs::CWD,
        directory,
        access,
        flags,
    )?)
}

/// Milliseconds since the machine was started, time of sleep included (CLOCK_BOOTTIME). The same
/// for all processes; it never goes back.
pub fn boottime_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since the machine was started, time of sleep left out (CLOCK_MONOTONIC): for how
/// long somebody has been silent who cannot speak while the machine sleeps.
pub fn monotonic_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Microseconds on the clock of [`monotonic_ms`].
pub fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// The process that this one is a child of now.
pub fn parent() -> Pid {
    Pid(rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()))
}

/// CPU time that this process has used, all its threads, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let used = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// How many threads this process has.
///
/// # Errors
/// `/proc` cannot be read.
pub fn thread_count() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Becomes the parent of descendants whose own parents are gone. Survives an exec.
///
/// # Errors
/// What the operating system says.
pub fn set_subreaper() -> io::Result<()> {
    let this = rustix::process::getpid();
    Ok(rustix::process::set_child_subreaper(Some(this))?)
}

/// Asks for a signal when the thread that started this process ends. A parent that is gone
/// already is told by the result: false.
///
/// # Errors
/// What the operating system says.
pub fn die_with_parent(signal: Signal, parent: Pid) -> io::Result<bool> {
    signal_with_parent(signal)?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    Ok(now == Some(parent.0))
}

/// Asks for a signal when the parent ends, whoever that is then. An exec keeps the wish, a change of
/// user forgets it.
///
/// # Errors
/// What the operating system says.
pub fn signal_with_parent(signal: Signal) -> io::Result<()> {
    let signal = rustix::process::Signal::from_named_raw(signal.number()).ok_or(Errno::INVAL)?;
    Ok(rustix::process::set_parent_process_death_signal(Some(
        signal,
    ))?)
}

/// No core dumps, and no debugger or reader of `/proc/self/mem` without privileges: the memory
/// holds secrets. An exec sets "dumpable" back; the limit stays.
///
/// # Errors
/// What the operating system says.
pub fn forbid_core_dumps() -> io::Result<()> {
    let zero = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::setrlimit(Resource::Core, zero)?;
    let not = DumpableBehavior::NotDumpable;
    Ok(rustix::process::set_dumpable_behavior(not)?)
}

/// How soon the kernel takes this process when memory runs out: -1000 (never; needs privileges)
/// to 1000 (first).
///
/// # Errors
/// What the operating system says.
pub fn protect_from_oom(score_adjustment: i16) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", score_adjustment.to_string())
}

/// Marks every descriptor from `first` on to be closed by an exec.
///
/// # Errors
/// What the operating system says.
pub fn set_close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: only marks are changed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    os_result(result)
}

/// Gives free memory of the heap back to the operating system. Worth a call when a burst is over:
/// 0.1 to 3 ms. True if there was any.
pub fn return_heap() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes nothing that is in use.
    return unsafe { libc::malloc_trim(0) } != 0;
    #[cfg(not(target_env = "gnu"))]
    false
}

/// Sleeps until `word` is woken, as long as it is `expected`; or for `timeout_ms`. The word may
/// lie in a mapping that processes share. Returns early without reason now and then: look at the
/// word.
///
/// # Errors
/// What the operating system says.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) -> io::Result<()> {
    let timeout = timeout_ms.map(|ms| Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: (ms % 1000 * 1_000_000) as i64,
    });
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Wakes up to `count` of those who sleep on `word`, in any process; says how many.
///
/// # Errors
/// What the operating system says.
pub fn futex_wake(word: &AtomicU32, count: u32) -> io::Result<usize> {
    Ok(futex::wake(word, futex::Flags::empty(), count)?)
}
