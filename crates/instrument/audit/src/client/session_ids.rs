//! Session store for clients that resume by id.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dormouse_engine::ServerSessions;

/// Maximum number of stored sessions.
const SESSIONS_MAX: usize = 10_000;

/// TLS 1.2 sessions for clients without ticket support. Such a client resumes only by session id, so the server must
/// issue one before the audit can say that the client does not resume.
#[derive(Debug, Default)]
pub(super) struct SessionIdStore(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl SessionIdStore {
    fn sessions(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerSessions for SessionIdStore {
    fn put(&self, id: &[u8], sealed: &[u8]) -> bool {
        let mut sessions = self.sessions();
        if sessions.len() >= SESSIONS_MAX {
            return false;
        }
        sessions.insert(id.to_vec(), sealed.to_vec());
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.sessions().get(id).cloned()
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.sessions().remove(id)
    }
}
