//! Values of the gateway as a whole, beside the blocks of its workers.

use dormouse_reactor::shared::{COMMON, Shared};
use std::sync::atomic::Ordering;

/// Words for the whole gateway, written by main.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Common {
    /// Unix time of the last ticket key rotation; 0: unknown.
    KeySince = 128,
    /// Unix time of the next ticket key rotation; 0: no automatic rotation.
    KeyRotates = 129,
    /// State of the ticket key store; 0: there is none.
    StoreState = 130,
    /// Unix time of the last successful access to the store.
    StoreSeen = 131,
    /// Failed accesses to the store.
    StoreFailures = 132,
    /// Lines of the connection log that could not be written.
    LogLinesLost = 133,
}

const _: () = assert!((Common::LogLinesLost as usize) < COMMON);

impl Common {
    /// Stores the value, if the mapping has this word.
    pub fn set(self, shared: &Shared, value: u64) {
        if let Some(word) = shared.common(self as usize) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Adds `n` to the value, if the mapping has this word.
    pub fn add(self, shared: &Shared, n: u64) {
        if let Some(word) = shared.common(self as usize) {
            word.fetch_add(n, Ordering::Relaxed);
        }
    }
}
