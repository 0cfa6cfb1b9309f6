//! Which process and which thread may use a session.
//!
//! A session that continues in two processes uses a key twice for the same record number, which reveals plaintext to an
//! attacker. So a child of `fork` can't use inherited sessions. Records that two threads seal at once are sent in the
//! wrong order, which ends the connection.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::prelude::*;

use crate::errors;

/// Number of forks of this process's ancestors since the module was loaded.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Records that this process is the child of a fork; `os.register_at_fork` calls it.
#[pyfunction]
pub(crate) fn note_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

thread_local! {
    /// Its address identifies a thread among those alive at the same time.
    static MARK: u8 = const { 0 };
}

fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// The process and thread that may use a session.
pub(crate) struct Owner {
    /// The thread of an event loop; 0: any.
    thread: AtomicUsize,
    generation: u32,
}

impl Owner {
    /// The calling process, any thread.
    pub(crate) fn this_process() -> Owner {
        Owner {
            thread: AtomicUsize::new(0),
            generation: GENERATION.load(Ordering::Relaxed),
        }
    }

    /// Restricts the session to the calling thread.
    pub(crate) fn pin(&self) {
        self.thread.store(this_thread(), Ordering::Relaxed);
    }

    /// Whether the caller may use the session.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.generation != GENERATION.load(Ordering::Relaxed) {
            let why = "the connection belongs to the parent process: before fork(), take it with \
                       export(), and continue it in one of the two with restore()";
            return Err(errors::misuse(py, why));
        }
        match self.thread.load(Ordering::Relaxed) {
            0 => Ok(()),
            thread if thread == this_thread() => Ok(()),
            _ => Err(errors::wrong_thread(py)),
        }
    }
}
