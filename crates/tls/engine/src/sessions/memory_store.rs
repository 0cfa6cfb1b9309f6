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

use crate::call_scope::{self, in_scope};
use crate::sessions::client_facts::ClientResumption;
use crate::sessions::client_session::Reuse;
use crate::sessions::group_hints::FirstShares;

/// A day (RFC 5246 §F.1.4 suggests this limit for session ids).
const REUSE: Reuse = Reuse {
    uses_max: u32::MAX,
    age_max_s: 86_400,
};

/// rustls' cache. It asks for a TLS 1.3 session first, and if there is none, for one of TLS 1.2.
///
/// A full handshake that begins has verified nothing yet. So within a day, all sessions with a server count from the
/// first full handshake, also those of later ones. A connection notes in its scope from which day its sessions come; if
/// that day is over when they arrive, they are not stored.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    cache: ClientSessionMemoryCache,
    first_shares: FirstShares,
    /// When the day's first full handshake with each server began, in seconds of Unix time. A server that is not here
    /// gets a full handshake.
    full_at_s: Mutex<Days>,
    servers_max: usize,
}

type Days = HashMap<ServerName<'static>, u64>;

impl MemoryStore {
    pub(crate) fn new(sessions_max: usize, first_shares: FirstShares) -> MemoryStore {
        MemoryStore {
            cache: ClientSessionMemoryCache::new(sessions_max),
            first_shares,
            full_at_s: Mutex::default(),
            servers_max: sessions_max,
        }
    }

    fn full_at_s(&self) -> MutexGuard<'_, Days> {
        self.full_at_s
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the server's day began. Once it is over, forgets its sessions.
    fn since_s(&self, name: &ServerName<'static>) -> Option<u64> {
        let mut all = self.full_at_s();
        let since_s = all.get(name).copied();
        let since_s = since_s.filter(|since_s| REUSE.allows(0, *since_s, now_s()));
        if since_s.is_none() {
            all.remove(name);
            self.cache.remove_tls12_session(name);
            while self.cache.take_tls13_ticket(name).is_some() {}
        }
        since_s
    }

    /// Notes that a full handshake begins. Returns when the server's day began.
    fn begin(&self, name: ServerName<'static>) -> u64 {
        let mut all = self.full_at_s();
        if all.len() >= self.servers_max && !all.contains_key(&name) {
            // Costs each server one full handshake.
            all.clear();
        }
        *all.entry(name).or_insert_with(now_s)
    }

    /// Returns a lock under which the current connection's session may be stored: no other connection ends the day
    /// meanwhile. `None`: the day is over from which the session comes.
    fn lock_day(&self, name: &ServerName<'static>) -> Option<MutexGuard<'_, Days>> {
        let since_s = in_scope(|own: &mut ClientResumption| own.since_s)?;
        let all = self.full_at_s();
        (all.get(name) == Some(&since_s)).then_some(all)
    }
}

fn note_since(since_s: u64) {
    in_scope(|own: &mut ClientResumption| own.since_s = since_s);
}

fn now_s() -> u64 {
    call_scope::now().map_or(0, |now| now.as_secs())
}

impl ClientSessionStore for MemoryStore {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.cache.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.first_shares.hint(self.cache.kx_hint(name))
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        if let Some(_day) = self.lock_day(&name) {
            self.cache.set_tls12_session(name, value);
        }
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let session = self.cache.tls12_session(name);
        if session.is_none() {
            note_since(self.begin(name.to_owned()));
        }
        session
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.cache.remove_tls12_session(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        if let Some(_day) = self.lock_day(&name) {
            self.cache.insert_tls13_ticket(name, value);
        }
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        note_since(self.since_s(name)?);
        self.cache.take_tls13_ticket(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that gives no sessions gets a full handshake each time. The sessions of others must not be lost by that.
    #[test]
    fn a_known_server_takes_no_room_of_others() {
        let store = MemoryStore::new(2, FirstShares(Vec::new()));
        let [one, other, third] =
            ["a.example", "b.example", "c.example"].map(|name| ServerName::try_from(name).unwrap());
        store.begin(one.clone());
        store.begin(other.clone());
        store.begin(other.clone());
        let may_resume = |name| store.since_s(name).is_some();
        assert!(may_resume(&one) && may_resume(&other));
        store.begin(third.clone());
        assert_eq!(store.full_at_s().len(), 1, "the limit holds");
        assert!(may_resume(&third) && !may_resume(&one));
    }
}
