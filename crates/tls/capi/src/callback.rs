//! Callback functions of the caller.

use std::ffi::c_void;
use std::fmt;

/// A callback with the context pointer that is passed to it.
pub(crate) struct Callback<F> {
    pub(crate) function: F,
    pub(crate) context: *mut c_void,
}

impl<F> Callback<F> {
    pub(crate) fn new(function: F, context: *mut c_void) -> Callback<F> {
        Callback { function, context }
    }
}

// SAFETY: the caller guarantees that its callbacks may run on any thread, several at once.
unsafe impl<F: Send> Send for Callback<F> {}
// SAFETY: as for `Send`.
unsafe impl<F: Sync> Sync for Callback<F> {}

impl<F> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}
