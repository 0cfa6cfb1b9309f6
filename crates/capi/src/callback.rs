//! Functions of the caller.

use std::ffi::c_void;
use std::fmt;

/// A callback with what the caller wants to be told with it.
pub(crate) struct Callback<F> {
    pub(crate) function: F,
    pub(crate) context: *mut c_void,
}

// SAFETY: the caller promises that its callbacks may run on any thread, several at once.
unsafe impl<F: Send> Send for Callback<F> {}
// SAFETY: the same.
unsafe impl<F: Sync> Sync for Callback<F> {}

impl<F> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}
