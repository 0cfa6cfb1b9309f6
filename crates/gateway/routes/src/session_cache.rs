//! The session cache of all workers, behind the engine's trait.

use dormouse_engine::ServerSessions;
use dormouse_handover::Descriptors;
use dormouse_reactor::Fd;
use dormouse_reactor::cache::Cache;
use std::io;

/// A handle to the cache. Its values are encrypted by `engine`.
#[derive(Clone, Debug)]
pub struct SessionCache(Cache);

impl SessionCache {
    /// Maps the cache that main has created, if there is one.
    pub fn adopt(descriptors: &Descriptors) -> io::Result<Option<SessionCache>> {
        let Some(fd) = descriptors.session_cache else {
            return Ok(None);
        };
        let cache = Cache::adopt(Fd(fd)).map_err(io::Error::other)?;
        Ok(Some(SessionCache(cache)))
    }
}

impl ServerSessions for SessionCache {
    fn put(&self, id: &[u8], sealed: &[u8]) -> bool {
        self.0.put(id, sealed)
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.get(id)
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.take(id)
    }

    fn mark(&self, id: &[u8]) -> u32 {
        self.0.mark(id)
    }

    fn forget(&self, mark: u32) {
        self.0.forget(mark);
    }
}
