//! A child which shares the table of descriptors.

use std::io;
use std::sync::mpsc;
use std::thread;

use super::{Pid, thread_count};

/// Exit code of a child whose work could not be started or has panicked.
const EXIT_PANICKED: i32 = 101;

/// Starts a child process which shares this one's table of descriptors, and runs `work` in it.
/// Memory is copied as by fork; mappings of memory files are shared. What `work` returns is the
/// exit code.
///
/// Descriptors which the child opens are open here too, and stay open when it is killed: that is
/// how connections outlive a worker. Three things follow:
///
/// - The child must never exec: that would give it a table of its own.
/// - glibc does not know about this way of starting a process, and keeps the parent's thread id
///   in its records of the thread that goes on in the child. `work` therefore runs in a thread
///   which is started there, and about which the records are true.
/// - Only the calling thread goes on in the child: a lock that another one holds would stay
///   locked for ever. The caller must be single-threaded, which is checked.
///
/// # Errors
/// What the operating system says; EBUSY when this process has more than one thread.
pub fn share_table(name: &str, work: impl FnOnce() -> i32 + Send + 'static) -> io::Result<Pid> {
    share_table_confined(name, || Ok(()), |_| work())
}

/// As [`share_table`]; the first thread of the child runs `confine`, and waits. `work` is given what
/// came of that ([`FirstThread::confined`]).
///
/// # Errors
/// As [`share_table`].
pub fn share_table_confined(
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
    // SAFETY: without CLONE_VM this is a fork: the child has a copy of the memory and, with a null
    // stack, goes on on a copy of this stack. There was one thread, so no lock is left behind.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match result {
        0 => run(name, confine, work),
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid(pid as i32)),
    }
}

/// The thread that a child began with.
#[derive(Debug)]
pub struct FirstThread(mpsc::Receiver<io::Result<()>>);

impl FirstThread {
    /// Waits until it has confined itself.
    ///
    /// # Errors
    /// Why it has not.
    pub fn confined(self) -> io::Result<()> {
        let confined = self.0.recv();
        confined.unwrap_or_else(|_| Err(io::Error::other("the first thread is gone")))
    }
}

/// The child's whole life.
fn run(
    name: &str,
    confine: impl FnOnce() -> io::Result<()>,
    work: impl FnOnce(FirstThread) -> i32 + Send + 'static,
) -> ! {
    let (confined, first) = mpsc::channel();
    let builder = thread::Builder::new().name(name.to_owned());
    let started = builder.spawn(move || work(FirstThread(first)));
    // Who does not wait for it has ended.
    let _ = confined.send(confine());
    let code = match started.map(thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(_)) | Err(_) => EXIT_PANICKED,
    };
    exit_at_once(code)
}

/// Ends the process without running anything of the parent's that was copied into it.
pub(super) fn exit_at_once(code: i32) -> ! {
    // SAFETY: `_exit` does not return, and runs no code of this program.
    unsafe { libc::_exit(code) }
}
