//! Which process and which thread may use a session.
//!
//! A session that goes on in two processes uses a key twice for the same record number, which tells an
//! attacker what was sent. So a child of `fork` can't use the sessions that it inherited. And records
//! that two threads seal at once leave in the wrong order, which ends the connection.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::prelude::*;

use crate::errors;

/// How often this process' ancestors have forked since the module was loaded.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Notes that this process is the child of a fork; `os.register_at_fork` calls it.
#[pyfunction]
pub(crate) fn note_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

thread_local! {
    /// Its address tells threads apart that live at the same time.
    static MARK: u8 = const { 0 };
}

fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Who may use a session.
pub(crate) struct Owner {
    /// The thread of an event loop; 0: any.
    thread: AtomicUsize,
    generation: u32,
}

impl Owner {
    /// The process that calls, and any thread of it.
    pub(crate) fn this_process() -> Owner {
        Owner {
            thread: AtomicUsize::new(0),
            generation: GENERATION.load(Ordering::Relaxed),
        }
    }

    /// From now on only the thread that calls.
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
