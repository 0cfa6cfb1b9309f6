//! Numbers of the gateway as a whole, beside the blocks of its workers.

use dormouse_reactor::shared::{COMMON, Shared};
use std::sync::atomic::Ordering;

/// Words which belong to all workers, written by main.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Common {
    /// Unix time since when the current ticket key seals; 0: not known.
    KeySince = 128,
    /// Unix time at which the next one does; 0: never by itself.
    KeyRotates = 129,
    /// How it stands with the store of the ticket keys; 0: there is none.
    StoreState = 130,
    /// Unix time at which the store was last in order.
    StoreSeen = 131,
    /// Looks at the store which came to nothing.
    StoreFailures = 132,
    /// Lines of the connection log that could not be written.
    LogLinesLost = 133,
}

const _: () = assert!((Common::LogLinesLost as usize) < COMMON);

impl Common {
    /// Stores the value. A word that the mapping does not have is left out.
    pub fn set(self, shared: &Shared, value: u64) {
        if let Some(word) = shared.common(self as usize) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Adds `n` to the value. A word that the mapping does not have is left out.
    pub fn add(self, shared: &Shared, n: u64) {
        if let Some(word) = shared.common(self as usize) {
            word.fetch_add(n, Ordering::Relaxed);
        }
    }
}
