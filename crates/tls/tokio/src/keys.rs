//! Expanded keys of the busy connections of this process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use dormouse_embed::KeptKeys;

/// Tables that threads lock separately. A stream moves between threads, so a thread cannot have its own: the keys of a
/// connection that ended in another thread would stay there.
static TABLES: LazyLock<Vec<Mutex<KeptKeys>>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::iter::repeat_with(Mutex::default)
        .take(cores.min(TABLES_MAX))
        .collect()
});

const TABLES_MAX: usize = 16;

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
        let tables = TABLES.len() as u64;
        let table = TABLES.get((self.0 % tables) as usize);
        match table {
            Some(table) => {
                let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
                work(&mut table, self.0 / tables)
            }
            None => work(&mut KeptKeys::default(), self.0),
        }
    }
}

impl Drop for KeptPlace {
    fn drop(&mut self) {
        self.with(|keys, number| keys.forget(number));
    }
}
