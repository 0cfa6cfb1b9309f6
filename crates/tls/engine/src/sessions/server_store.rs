//! Sessions that the server stores, for tickets that work once and for TLS 1.2 session ids.
//!
//! The store holds tickets that never leave the server: sealed with the same keys, bound to the same policy,
//! checked in the same way. So a store needs no secrets and no locks. It may lose entries, return old ones or
//! mix two of them up: every entry is authenticated.

use std::fmt;
use std::sync::Arc;

use rustls::server::StoresServerSessions;
use zeroize::Zeroizing;

use crate::call_scope::{self, in_scope};
use crate::sessions::refusal::{ResumptionRefused, ServerResumption};
use crate::sessions::resumption;
use crate::sessions::server_sessions::{ServerSessions, StoredSession};
use crate::sessions::tickets::Ticketer;

/// rustls' view of a store.
pub(crate) struct SealedStore {
    pub(crate) ticketer: Arc<Ticketer>,
    pub(crate) store: Arc<dyn ServerSessions>,
    /// Whether it serves clients without ticket support.
    pub(crate) beside_tickets: bool,
}

impl SealedStore {
    fn open(&self, found: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let now = call_scope::now()?;
        let outcome = match found {
            None => Err(ResumptionRefused::NotCached),
            Some(sealed) => self.ticketer.open(&sealed, now),
        };
        resumption::note(outcome)
    }

    /// Notes that the connection of this call uses the session under `id`.
    fn note_use(&self, id: &[u8]) {
        in_scope(|resumption: &mut ServerResumption| {
            resumption.stored = Some(StoredSession {
                store: Arc::clone(&self.store),
                mark: self.store.mark(id),
            });
        });
    }
}

impl StoresServerSessions for SealedStore {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let value = Zeroizing::new(value);
        let knows_tickets = in_scope(|resumption: &mut ServerResumption| resumption.knows_tickets);
        if self.beside_tickets && knows_tickets == Some(true) {
            return false;
        }
        if Ticketer::has_enough() {
            return false;
        }
        let kept = call_scope::now()
            .and_then(|now| self.ticketer.seal(&value, now))
            .is_some_and(|sealed| self.store.put(&key, &sealed));
        // In TLS 1.3 the key is the ticket, and we send the message; rustls sends none.
        let is_ours = self.ticketer.issue(&value, kept.then_some(&key));
        if kept && !is_ours {
            self.note_use(&key);
        }
        kept && !is_ours
    }

    /// TLS 1.2: a session id may be reused during its session's lifetime.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let session = self.open(self.store.get(key))?;
        self.note_use(key);
        Some(session)
    }

    /// TLS 1.3: a ticket works for one connection.
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.open(self.store.take(key))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedStore")
    }
}
