//! Measurements that other load would change: system calls, CPU time, memory, shared cache lines, gaps in service.
//!
//! Cargo runs one test binary after the other, so no test of `tests/interop` runs at the same time, and
//! each test takes a lock, so these run one by one.

#[macro_use(requires)]
extern crate dormouse_interop;

mod first_connection;
mod memory_budget;
mod service_gap;
mod session_memory;
mod shared_lines;
mod stuck_readers;
mod system_calls;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of this binary runs.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    // A failed test leaves nothing behind that affects the next one.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
