//! Descriptors as plain numbers.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A descriptor as a plain number, which lies in a slot and outlives the process.
///
/// It is `Copy` and closes nothing on drop: a worker may die at any instruction, and its connections'
/// descriptors survive in the table that its keeper shares. For a number that is closed or was never open,
/// every call of this crate returns `EBADF`.
///
/// Rust's I/O safety requires that a descriptor is used only by its owner. Here the owner is the slot, and the
/// program keeps the rule: a slot is cleared before its descriptors are closed. No memory depends on a
/// descriptor: a mapping stays when its descriptor is closed.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Fd(pub i32);

/// Whether a descriptor stays open when the process (or a keeper that shares its table) executes another
/// program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnExec {
    /// It is closed. Right for descriptors that belong only to this process.
    #[default]
    Close,
    /// It stays open. Right for descriptors that must survive: connections, listeners, mappings, epoll.
    Keep,
}

impl Fd {
    /// No descriptor.
    pub const NONE: Fd = Fd(-1);

    /// Whether this is a valid number (not whether it is open).
    pub fn is_some(self) -> bool {
        self.0 >= 0
    }

    /// Takes the number out of an owned descriptor, which is then no longer closed on drop.
    pub fn from_owned(owned: OwnedFd) -> Fd {
        Fd(owned.into_raw_fd())
    }

    /// Converts to the standard library's type, which closes the descriptor on drop.
    ///
    /// # Errors
    /// `EBADF` when there is no such open descriptor.
    pub fn into_owned(self) -> io::Result<OwnedFd> {
        self.on_exec()?;
        // SAFETY: the number is not negative and was open a moment ago; the caller hands over the only number
        // for it (see the type's documentation).
        Ok(unsafe { OwnedFd::from_raw_fd(self.0) })
    }

    /// Writes a prefix of `bytes` and returns its length.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn write(self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.borrow()?, bytes)?)
    }

    /// Closes the descriptor. Errors are ignored, because the number is free afterwards in any case.
    pub fn close(self) {
        if self.is_some() {
            // SAFETY: closing a number affects no memory; a number which is not open gives EBADF,
            // which is ignored.
            let _ = unsafe { libc::close(self.0) };
        }
    }

    /// Moves this descriptor to `number`, closing whatever `number` was before, and frees this number.
    /// Processes that share the table see both changes at once.
    ///
    /// # Errors
    /// The operating system's error; nothing has changed then.
    pub fn move_to(self, number: Fd) -> io::Result<()> {
        self.borrow()?;
        number.borrow()?;
        // SAFETY: numbers are replaced; no memory depends on a descriptor (see the type).
        if unsafe { libc::dup2(self.0, number.0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        if self != number {
            self.close();
        }
        Ok(())
    }

    /// Returns another descriptor of the same file, which is closed at an exec.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn duplicate(self) -> io::Result<Fd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.borrow()?, 3)?.into())
    }

    /// Makes all calls on this file non-blocking, also through other descriptors of the same file.
    ///
    /// # Errors
    /// `EBADF` when there is no such open descriptor.
    pub fn set_nonblocking(self) -> io::Result<()> {
        let fd = self.borrow()?;
        let flags = rustix::fs::fcntl_getfl(fd)?;
        Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
    }

    /// Returns whether the descriptor stays open across an exec.
    ///
    /// # Errors
    /// `EBADF` when there is no such open descriptor.
    pub fn on_exec(self) -> io::Result<OnExec> {
        let flags = rustix::io::fcntl_getfd(self.borrow()?)?;
        Ok(if flags.contains(FdFlags::CLOEXEC) {
            OnExec::Close
        } else {
            OnExec::Keep
        })
    }

    /// Sets whether it stays open over an exec.
    ///
    /// # Errors
    /// `EBADF` when there is no such open descriptor.
    pub fn set_on_exec(self, on_exec: OnExec) -> io::Result<()> {
        let flags = match on_exec {
            OnExec::Close => FdFlags::CLOEXEC,
            OnExec::Keep => FdFlags::empty(),
        };
        Ok(rustix::io::fcntl_setfd(self.borrow()?, flags)?)
    }

    /// Returns the descriptor for a call of `rustix`. A negative number must not become a `BorrowedFd`.
    pub(crate) fn borrow(self) -> io::Result<BorrowedFd<'static>> {
        if !self.is_some() {
            return Err(Errno::BADF.into());
        }
        // SAFETY: the number is not -1. It is used for one system call at once; a number which is
        // not open (any more) gives EBADF from that call.
        Ok(unsafe { BorrowedFd::borrow_raw(self.0) })
    }
}

impl From<OwnedFd> for Fd {
    fn from(owned: OwnedFd) -> Fd {
        Fd::from_owned(owned)
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fd({})", self.0)
    }
}

impl fmt::Display for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
