//! The session cache of all workers, as the engine uses it.

use dormouse_engine::ServerSessions;
use dormouse_reactor::cache::Cache;

/// A handle on the cache. What lies in it is sealed: see `engine`.
#[derive(Clone, Debug)]
pub(crate) struct Sessions(pub(crate) Cache);

impl ServerSessions for Sessions {
    fn put(&self, id: &[u8], sealed: &[u8]) -> bool {
        self.0.put(id, sealed)
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.get(id)
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.take(id)
    }
}
