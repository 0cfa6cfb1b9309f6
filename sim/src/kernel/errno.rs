//! Errors of system calls.

use std::io;

pub(crate) const BAD_DESCRIPTOR: i32 = 9;
pub(crate) const EXISTS: i32 = 17;
pub(crate) const NO_ENTRY: i32 = 2;
pub(crate) const TOO_MANY_FILES: i32 = 24;
pub(crate) const NO_WATCH: i32 = 28;
pub(crate) const BROKEN_PIPE: i32 = 32;
pub(crate) const NOT_SUPPORTED: i32 = 95;
pub(crate) const NO_PORT: i32 = 99;
pub(crate) const RESET: i32 = 104;
pub(crate) const NOT_CONNECTED: i32 = 107;
pub(crate) const TIMED_OUT: i32 = 110;
pub(crate) const REFUSED: i32 = 111;

/// The error that a system call returns.
pub(crate) fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
