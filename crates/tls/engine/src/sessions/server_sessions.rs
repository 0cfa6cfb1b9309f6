//! The caller's storage for sessions of a server, and the entry that a connection uses.

use std::fmt;
use std::sync::Arc;

/// Storage for sealed sessions. It may lose entries at any time, and must never block.
pub trait ServerSessions: fmt::Debug + Send + Sync {
    /// Stores `sealed` under `id`. Returns false if it does not fit.
    fn put(&self, id: &[u8], sealed: &[u8]) -> bool;

    /// Returns the entry under `id`.
    fn get(&self, id: &[u8]) -> Option<Vec<u8>>;

    /// Removes and returns the entry; later calls, in any process, return nothing.
    fn take(&self, id: &[u8]) -> Option<Vec<u8>>;

    /// Returns a short name of the entry under `id`, which an established TLS 1.2 connection keeps
    /// ([`dormouse_record::State::session_mark`]). 0: entries of this store have none.
    fn mark(&self, id: &[u8]) -> u32 {
        let _ = id;
        0
    }

    /// Removes the entry with this mark, whose connection has failed. It may remove others, too.
    fn forget(&self, mark: u32) {
        let _ = mark;
    }
}

/// The stored session that a TLS 1.2 connection uses. It must not be resumed after a fatal alert (RFC 5246
/// §7.2.2).
#[derive(Debug)]
pub(crate) struct StoredSession {
    pub(crate) store: Arc<dyn ServerSessions>,
    pub(crate) mark: u32,
}

impl StoredSession {
    pub(crate) fn forget(&self) {
        if self.mark != 0 {
            self.store.forget(self.mark);
        }
    }
}
