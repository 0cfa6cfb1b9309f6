//! The session cache of all workers, as the engine uses it.

use crate::config::Config;
use crate::handover::Descriptors;
use dormouse_engine::ServerSessions;
use dormouse_reactor::Fd;
use dormouse_reactor::cache::Cache;
use std::io;

/// Room for sessions of TLS 1.2 whose clients know no tickets: some 4,000 of them.
const BESIDE_TICKETS_BYTES: usize = 1 << 20;

/// How large the cache is: as configured, or a small one beside tickets. 0: there is none.
pub(crate) fn bytes(config: &Config) -> usize {
    match config.tickets.session_cache {
        Some(bytes) => bytes.as_usize(),
        None if config.tickets.tickets == 0 || config.routes.is_empty() => 0,
        None => BESIDE_TICKETS_BYTES,
    }
}

/// A handle on the cache. What lies in it is sealed: see `engine`.
#[derive(Clone, Debug)]
pub(crate) struct Sessions(Cache);

impl Sessions {
    /// The cache that main has made, if there is one.
    pub(crate) fn adopt(descriptors: &Descriptors) -> io::Result<Option<Sessions>> {
        let Some(fd) = descriptors.session_cache else {
            return Ok(None);
        };
        let cache = Cache::adopt(Fd(fd)).map_err(io::Error::other)?;
        Ok(Some(Sessions(cache)))
    }
}

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
