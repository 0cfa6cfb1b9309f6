//! A child that shares its parent's file table.

use std::io;
use std::sync::mpsc;
use std::thread;

use super::Pid;
use super::this::thread_count;

/// Exit code of a child whose work failed to start or panicked.
const EXIT_PANICKED: i32 = 101;

/// Starts a child process that shares this process's file table, and runs `work` in it. Memory is copied as by
/// fork; mappings of memory files are shared. The result of `work` is the exit code.
///
/// Descriptors that the child opens are also open here, and stay open when it is killed: that is how
/// connections outlive a worker. Three consequences:
///
/// - The child must never exec, which would give it a separate table.
/// - glibc does not know this way of starting a process, and its data about the child's first thread has the
///   parent's thread id. So `work` runs in a new thread of the child, for which the data is correct.
/// - Only the calling thread exists in the child: a lock held by another thread would stay locked forever. The
///   caller must be single-threaded, which is checked.
///
/// The child's first thread runs `confine` and then waits. `work` gets the result
/// ([`FirstThread::confined`]).
///
/// # Errors
/// The operating system's error; EBUSY if this process has more than one thread.
pub fn share_table(
    name: &str,
    confine: impl FnOnce() -> io::Result<()>,
    work: impl FnOnce(FirstThread) -> i32 + Send + 'static,
) -> io::Result<Pid> {
    if thread_count()? != 1 {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "misuse: a process must be single-threaded to start one that shares its table",
        ));
    }
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is a fork: the child has a copy of the memory and, with a null stack,
    // continues on a copy of this stack. There was one thread, so no lock is left held.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match result {
        0 => run(name, confine, work),
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid(pid as i32)),
    }
}

/// The first thread of a child.
#[derive(Debug)]
pub struct FirstThread(mpsc::Receiver<io::Result<()>>);

impl FirstThread {
    /// Waits until it has confined itself.
    ///
    /// # Errors
    /// The reason why it could not.
    pub fn confined(self) -> io::Result<()> {
        let confined = self.0.recv();
        confined.unwrap_or_else(|_| Err(io::Error::other("the first thread has ended")))
    }
}

/// Runs the whole life of the child.
fn run(
    name: &str,
    confine: impl FnOnce() -> io::Result<()>,
    work: impl FnOnce(FirstThread) -> i32 + Send + 'static,
) -> ! {
    let (confined, first) = mpsc::channel();
    let builder = thread::Builder::new().name(name.to_owned());
    let started = builder.spawn(move || work(FirstThread(first)));
    // If `work` does not wait for the result, it has ended.
    let _ = confined.send(confine());
    let code = match started.map(thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(_)) | Err(_) => EXIT_PANICKED,
    };
    exit_at_once(code)
}

/// Ends the process without running any of the parent's copied destructors.
pub(super) fn exit_at_once(code: i32) -> ! {
    // SAFETY: `_exit` does not return, and runs no code of this program.
    unsafe { libc::_exit(code) }
}
