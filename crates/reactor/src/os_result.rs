//! Results of system calls that `libc` returns as numbers.

use std::io;

/// Converts the result of a call that returns 0, or another number with `errno` set.
pub(crate) fn os_result(result: impl Into<i64>) -> io::Result<()> {
    match result.into() {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
