//! Expanded keys of the busy connections of this process.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_embed::{KeptKeys, SharedKeys};

static KEYS: LazyLock<SharedKeys> = LazyLock::new(SharedKeys::default);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A connection's place among the kept keys, which are wiped when this is dropped.
#[derive(Debug)]
pub(crate) struct KeptPlace(u64);

impl KeptPlace {
    pub(crate) fn new() -> KeptPlace {
        KeptPlace(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Calls `work` with the table and the connection's number in it.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut KeptKeys, u64) -> T) -> T {
        KEYS.with(self.0, work)
    }
}

impl Drop for KeptPlace {
    fn drop(&mut self) {
        KEYS.forget(self.0);
    }
}
