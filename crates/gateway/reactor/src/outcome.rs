//! Outcomes of system calls.

use std::io;

use rustix::io::Errno;

/// Outcome of an operation that may have to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Attempt<T> {
    /// It was done.
    Done(T),
    /// Nothing was done; try again when the descriptor is ready.
    WouldBlock,
}

impl<T> Attempt<T> {
    /// Returns the result, if it was done.
    pub fn done(self) -> Option<T> {
        match self {
            Attempt::Done(value) => Some(value),
            Attempt::WouldBlock => None,
        }
    }
}

/// Repeats calls that a signal interrupts, and maps EAGAIN to `WouldBlock`.
pub(crate) fn attempt<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<Attempt<T>> {
    loop {
        crate::step::step();
        let result = call();
        crate::step::step();
        match result {
            Ok(value) => return Ok(Attempt::Done(value)),
            Err(Errno::AGAIN) => return Ok(Attempt::WouldBlock),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Converts the result of a call that returns 0, or another number with `errno` set.
pub(crate) fn os_result(result: impl Into<i64>) -> io::Result<()> {
    match result.into() {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
