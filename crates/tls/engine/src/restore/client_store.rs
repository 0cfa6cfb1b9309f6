//! rustls' session store for clients whose caller stores the sessions ([`SessionStore`]).
//!
//! Sessions are passed to the caller as bytes and [restored](crate::restore) when they come back.
//! rustls' value of a restored TLS 1.2 session also stays here, and is used again while the caller returns the
//! same chain.
//!
//! Some TLS 1.2 sessions cannot be bytes: those without an extended master secret, with a ticket too large for
//! the caller, or with an id of unusual length. They stay only here, and this store counts their uses.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dormouse_record::Version;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::{CipherSuite, NamedGroup};
use rustls_pki_types::ServerName;
use zeroize::Zeroizing;

use crate::call_scope::{self, CallScope, in_scope};
use crate::deferred;
use crate::handshake::ClientSessions;
use crate::handshake::info::HandshakeInfo;
use crate::restore::tls12::{self, Tls12Restorer};
use crate::restore::tls13::Tls13Restorer;
use crate::secrets::SessionSecrets;
use crate::sessions::client_facts::ClientResumption;
use crate::sessions::client_session::{Reuse, Session, SessionStore};
use crate::sessions::group_hints::FirstShares;
use crate::sessions::server_flight::ServerFlight;

/// Maximum number of servers. Servers come from the configuration, so there are few.
const SERVERS_MAX: usize = 1_024;

/// rustls' session store.
pub(crate) struct ClientStore {
    /// `None` if TLS 1.3 is disabled.
    tls13_restorer: Option<Tls13Restorer>,
    tls12_restorer: Tls12Restorer,
    reuse: Reuse,
    first_shares: FirstShares,
    groups: Mutex<HashMap<ServerName<'static>, NamedGroup>>,
    tls12: Mutex<HashMap<StoreId, Tls12>>,
}

/// Identifies one of the caller's stores: its address. No other store gets it while a session of this store is here,
/// because the session keeps the memory ([`Tls12::store`]). Otherwise a later store, for another server, would get
/// this store's sessions, and whoever knows their secrets could pose as that server.
type StoreId = usize;

fn id(store: &Arc<dyn SessionStore>) -> StoreId {
    Arc::as_ptr(store).cast::<()>().addr()
}

/// A TLS 1.2 session.
struct Tls12 {
    value: Tls12ClientSessionValue,
    chain: Chain,
    /// The store that it belongs to, and ends with.
    store: Weak<dyn SessionStore>,
}

/// Which store counts the uses of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// The caller's store, as part of this chain.
    Callers(u64),
    /// This store: the number of resumed handshakes since the full one, and the time of the full one, in
    /// seconds of Unix time.
    Own { uses: u32, since_s: u64 },
}

impl ClientStore {
    pub(crate) fn new(
        tls13_restorer: Option<Tls13Restorer>,
        tls12_restorer: Tls12Restorer,
        reuse: Reuse,
        first_shares: FirstShares,
    ) -> ClientStore {
        ClientStore {
            tls13_restorer,
            tls12_restorer,
            reuse,
            first_shares,
            groups: Mutex::default(),
            tls12: Mutex::default(),
        }
    }

    /// Stores rustls' value of a session, as part of a chain of the caller or of our own.
    fn tls12_done(
        &self,
        scope: &mut CallScope,
        store: &Arc<dyn SessionStore>,
        callers: Option<u64>,
        resumed: bool,
    ) {
        let mut all = lock(&self.tls12);
        let former = all.get(&id(store)).map(|former| former.chain);
        let fresh = Chain::Own {
            uses: 0,
            since_s: scope.now.as_secs(),
        };
        let chain = match (callers, former) {
            (Some(chain), _) => Chain::Callers(chain),
            (None, Some(own @ Chain::Own { .. })) if resumed => own,
            (None, _) => fresh,
        };
        match scope.of::<ClientResumption>().tls12_value.take() {
            Some(value) => put_tls12(&mut all, store, value, chain),
            None if resumed => {}
            None => drop(all.remove(&id(store))),
        }
    }

    /// Returns rustls' value of the session that was taken from the caller.
    fn of_caller(
        &self,
        store: &Arc<dyn SessionStore>,
        chain: u64,
        session: &Session,
    ) -> Option<Tls12ClientSessionValue> {
        let chain = Chain::Callers(chain);
        let known = lock(&self.tls12)
            .get(&id(store))
            .filter(|one| one.chain == chain)
            .map(|one| one.value.clone());
        if known.is_some() {
            return known;
        }
        let value = self.tls12_restorer.restore(session)?;
        put_tls12(&mut lock(&self.tls12), store, value.clone(), chain);
        Some(value)
    }

    /// Returns a session that only this store has.
    fn own(&self, id: StoreId, now_s: u64) -> Option<Tls12ClientSessionValue> {
        let mut all = lock(&self.tls12);
        let session = all.get_mut(&id)?;
        let Chain::Own { uses, since_s } = &mut session.chain else {
            return None;
        };
        if !self.reuse.allows(*uses, *since_s, now_s) {
            all.remove(&id);
            return None;
        }
        *uses += 1;
        Some(session.value.clone())
    }
}

impl ClientSessions for ClientStore {
    fn failed(&self, scope: &mut CallScope) {
        let now = scope.now;
        let own = scope.of::<ClientResumption>();
        if let Some(store) = &own.store {
            lock(&self.tls12).remove(&id(store));
            if own.offered_chain.is_some() {
                store.begin(now);
            }
        }
    }

    fn established(
        &self,
        scope: &mut CallScope,
        info: &HandshakeInfo,
        suite: CipherSuite,
        flight: &ServerFlight,
    ) -> Option<(Arc<dyn SessionStore>, u64)> {
        let now = scope.now;
        let own = scope.of::<ClientResumption>();
        let store = Arc::clone(own.store.as_ref()?);
        let chain = if info.resumed {
            own.offered_chain
        } else {
            Some(store.begin(now))
        };
        match info.protocol {
            Version::Tls13 => Some((store, chain?)),
            Version::Tls12 => {
                // A resumed session is new only if it has a new ticket.
                let is_new = !info.resumed || flight.ticket.is_some();
                let secrets = scope.of::<SessionSecrets>();
                let session = tls12::session(suite, now, &secrets.master, flight);
                let kept = match (chain, session.filter(|_| is_new)) {
                    (Some(chain), Some(session)) => store.put(chain, &session),
                    _ => false,
                };
                let callers = chain.filter(|_| kept || info.resumed);
                self.tls12_done(scope, &store, callers, info.resumed);
                None
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores a session, and drops those whose stores are gone: a caller may have a store for each connection.
fn put_tls12(
    all: &mut HashMap<StoreId, Tls12>,
    store: &Arc<dyn SessionStore>,
    value: Tls12ClientSessionValue,
    chain: Chain,
) {
    all.retain(|_, one| one.store.strong_count() > 0);
    let session = Tls12 {
        value,
        chain,
        store: Arc::downgrade(store),
    };
    put(all, id(store), session);
}

fn put<K: Hash + Eq, V>(all: &mut HashMap<K, V>, key: K, value: V) {
    if all.len() < SERVERS_MAX || all.contains_key(&key) {
        all.insert(key, value);
    }
}

impl ClientSessionStore for ClientStore {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        put(&mut lock(&self.groups), name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        let chosen = || lock(&self.groups).get(&name.to_owned()).copied();
        let chosen = deferred::hint(chosen);
        self.first_shares.hint(chosen)
    }

    /// Stored when the handshake is done, because only then is it known whether the session is new or resumed.
    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        in_scope(|own: &mut ClientResumption| own.tls12_value = Some(value));
    }

    /// rustls asks for a TLS 1.3 session first.
    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let (store, taken, chain) = in_scope(|own: &mut ClientResumption| {
            Some((
                own.store.clone()?,
                own.offered_tls12.take(),
                own.offered_chain,
            ))
        })??;
        match (taken, chain) {
            (Some(session), Some(chain)) => self.of_caller(&store, chain, &session),
            _ => self.own(id(&store), call_scope::now()?.as_secs()),
        }
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        let store = in_scope(|own: &mut ClientResumption| own.store.as_ref().map(id));
        if let Some(store) = store.flatten() {
            lock(&self.tls12).remove(&store);
        }
    }

    /// Nothing to do: the code that passed the ticket to rustls has already stored it.
    fn insert_tls13_ticket(&self, _: ServerName<'static>, _: Tls13ClientSessionValue) {}

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let store = in_scope(|own: &mut ClientResumption| own.store.clone())??;
        let now = call_scope::now()?;
        let (chain, session) = deferred::session(|| {
            let (chain, session) = SessionStore::take(&*store, now)?;
            Some((chain, Zeroizing::new(session.bytes().to_vec())))
        })?;
        let session = Session::from_bytes(&session)?;
        in_scope(|own: &mut ClientResumption| own.offered_chain = Some(chain));
        if !session.is_tls13() {
            in_scope(|own: &mut ClientResumption| own.offered_tls12 = Some(session));
            return None;
        }
        self.tls13_restorer.as_ref()?.restore(&session)
    }
}

impl fmt::Debug for ClientStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientStore")
    }
}
