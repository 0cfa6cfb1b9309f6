//! Figures that depend on what else runs: system calls, CPU time, memory, gaps in service.
//!
//! Cargo runs one test binary after the other, so nothing of `tests/interop` runs beside these, and
//! each test takes a lock, so none of these runs beside another.

mod first_connection;
mod memory_budget;
mod service_gap;
mod session_memory;
mod system_calls;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of this binary runs.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    // A test that failed leaves nothing behind that the next one looks at.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
