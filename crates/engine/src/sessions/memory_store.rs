//! A client's sessions in memory: rustls' own cache, with a limit on the time since the full handshake.
//!
//! A resumed handshake verifies no certificate, and brings new tickets. Without a limit, a client that connects often
//! would trust a certificate that has expired since. "It is RECOMMENDED that implementations place limits on the total
//! lifetime of such keying material" (RFC 8446 §4.6.1).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls_pki_types::ServerName;

use crate::handshake::call_scope::in_scope;
use crate::sessions::client_session::Reuse;

/// A day (RFC 5246 §F.1.4 suggests this limit for session ids).
const REUSE: Reuse = Reuse {
    uses_max: u32::MAX,
    age_max_s: 86_400,
};

/// rustls' cache. It asks for a TLS 1.3 session first, and if there is none, for one of TLS 1.2.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    cache: ClientSessionMemoryCache,
    /// When the last handshake with each server began that had no session to offer, in seconds of Unix time. A server
    /// that is not here gets a full handshake.
    full_at_s: Mutex<HashMap<ServerName<'static>, u64>>,
    servers_max: usize,
}

impl MemoryStore {
    pub(crate) fn new(sessions_max: usize) -> MemoryStore {
        MemoryStore {
            cache: ClientSessionMemoryCache::new(sessions_max),
            full_at_s: Mutex::default(),
            servers_max: sessions_max,
        }
    }

    fn full_at_s(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, u64>> {
        self.full_at_s
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server's sessions may be used now.
    fn may_resume(&self, name: &ServerName<'static>) -> bool {
        let full_at_s = self.full_at_s().get(name).copied();
        full_at_s.is_some_and(|since_s| REUSE.allows(0, since_s, now_s()))
    }

    /// Notes that a full handshake begins.
    fn begin(&self, name: ServerName<'static>) {
        let mut all = self.full_at_s();
        if all.len() >= self.servers_max && !all.contains_key(&name) {
            // Costs each server one full handshake.
            all.clear();
        }
        all.insert(name, now_s());
    }
}

fn now_s() -> u64 {
    in_scope(|scope| scope.now.as_secs()).unwrap_or_default()
}

impl ClientSessionStore for MemoryStore {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.cache.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.cache.kx_hint(name)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.cache.set_tls12_session(name, value);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let session = self.cache.tls12_session(name);
        if session.is_none() {
            self.begin(name.to_owned());
        }
        session
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.cache.remove_tls12_session(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.cache.insert_tls13_ticket(name, value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        if !self.may_resume(name) {
            self.cache.remove_tls12_session(name);
            while self.cache.take_tls13_ticket(name).is_some() {}
        }
        self.cache.take_tls13_ticket(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that gives no sessions gets a full handshake each time. The sessions of others must not be lost by that.
    #[test]
    fn a_known_server_takes_no_room_of_others() {
        let store = MemoryStore::new(2);
        let [one, other, third] =
            ["a.example", "b.example", "c.example"].map(|name| ServerName::try_from(name).unwrap());
        store.begin(one.clone());
        store.begin(other.clone());
        store.begin(other.clone());
        assert!(store.may_resume(&one) && store.may_resume(&other));
        store.begin(third.clone());
        assert_eq!(store.full_at_s().len(), 1, "the limit holds");
        assert!(store.may_resume(&third) && !store.may_resume(&one));
    }
}
