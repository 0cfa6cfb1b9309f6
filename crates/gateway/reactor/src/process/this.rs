//! Calls about this process.

use std::fs;
use std::io;
use std::sync::atomic::AtomicU32;

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::futex;
use rustix::time::ClockId;

use super::Pid;
use crate::Fd;
use crate::outcome::os_result;
use crate::signal::Signal;

/// Returns the id of this process.
pub fn pid() -> Pid {
    Pid(std::process::id() as i32)
}

/// Returns the host name, if protocols accept it: ASCII without spaces.
pub fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then_some(name)
}

/// Returns the effective user id of this process.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the effective group id of this process.
pub fn group_id() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Checks that this process may create files in the directory.
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

/// Changes the working directory.
///
/// # Errors
/// The operating system's error.
pub fn change_directory(path: impl AsRef<std::path::Path>) -> io::Result<()> {
    Ok(rustix::process::chdir(path.as_ref())?)
}

/// Changes the working directory to that of another process, which has opened it.
///
/// # Errors
/// The operating system's error.
pub fn change_to_directory(directory: Fd) -> io::Result<()> {
    Ok(rustix::process::fchdir(directory.borrow()?)?)
}

/// Opens the working directory, for [`change_to_directory`].
///
/// # Errors
/// The operating system's error.
pub fn open_directory() -> io::Result<Fd> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
    let flags = flags | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(".", flags, rustix::fs::Mode::empty())?.into())
}

/// Returns the milliseconds since boot, including time asleep (CLOCK_BOOTTIME). The same for all processes;
/// never decreases.
pub fn boottime_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Returns the milliseconds since boot, without time asleep (CLOCK_MONOTONIC). For silence timeouts of
/// processes that cannot run while the machine sleeps.
pub fn monotonic_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Returns microseconds on the clock of [`monotonic_ms`].
pub fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Returns the current parent process.
pub fn parent() -> Pid {
    Pid(rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()))
}

/// Returns the CPU time of this process, all threads, in nanoseconds.
pub fn cpu_ns() -> u64 {
    used_ns(ClockId::ProcessCPUTime)
}

/// Returns the CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    used_ns(ClockId::ThreadCPUTime)
}

fn used_ns(clock: ClockId) -> u64 {
    let used = rustix::time::clock_gettime(clock);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Returns the number of threads of this process.
pub(super) fn thread_count() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Makes this process the parent of orphaned descendants. Survives an exec.
///
/// # Errors
/// The operating system's error.
pub fn set_subreaper() -> io::Result<()> {
    let this = rustix::process::getpid();
    Ok(rustix::process::set_child_subreaper(Some(this))?)
}

/// Requests a signal when the thread that started this process ends. Returns false if the parent has already
/// ended.
///
/// # Errors
/// The operating system's error.
pub fn die_with_parent(signal: Signal, parent: Pid) -> io::Result<bool> {
    signal_with_parent(signal)?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    Ok(now == Some(parent.0))
}

/// Requests a signal when the current parent ends. The setting survives an exec, but not a change of user.
///
/// # Errors
/// The operating system's error.
pub fn signal_with_parent(signal: Signal) -> io::Result<()> {
    let signal = rustix::process::Signal::from_named_raw(signal.number()).ok_or(Errno::INVAL)?;
    Ok(rustix::process::set_parent_process_death_signal(Some(
        signal,
    ))?)
}

/// Forbids core dumps, and debuggers and readers of `/proc/self/mem` without privileges, because the memory
/// holds secrets. An exec resets "dumpable"; the limit stays.
///
/// # Errors
/// The operating system's error.
pub fn forbid_core_dumps() -> io::Result<()> {
    let zero = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::setrlimit(Resource::Core, zero)?;
    let not = DumpableBehavior::NotDumpable;
    Ok(rustix::process::set_dumpable_behavior(not)?)
}

/// Sets close-on-exec on every descriptor from `first` on.
pub(super) fn set_close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: changes only flags.
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

/// Returns free heap memory to the operating system. Worth calling after a burst: it takes 0.1 to 3 ms. Returns
/// true if there was any.
pub fn return_heap() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes no memory in use.
    return unsafe { libc::malloc_trim(0) } != 0;
    #[cfg(not(target_env = "gnu"))]
    false
}

/// Sleeps while `word` is `expected`, until it is woken, or for `timeout_ms`. The word may lie in a mapping
/// shared by processes. May return early: check the word.
///
/// # Errors
/// The operating system's error.
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

/// Wakes up to `count` sleepers on `word`, in any process. Returns how many.
///
/// # Errors
/// The operating system's error.
pub fn futex_wake(word: &AtomicU32, count: u32) -> io::Result<usize> {
    Ok(futex::wake(word, futex::Flags::empty(), count)?)
}
