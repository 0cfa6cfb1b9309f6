//! The sessions of a client whose caller keeps them: what rustls sees of [`SessionStore`].
//!
//! TLS 1.3 sessions go to the caller as bytes and come back by way of the [mint](crate::mint).
//! Those of TLS 1.2 stay here, as rustls' values: their ticket passes by within the handshake,
//! where only rustls sees it. So they are shared by all connections of this context, but not
//! with other processes.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls_pki_types::{ServerName, UnixTime};

use crate::client::Reuse;
use crate::mint::Mint;
use crate::session::SessionStore;
use crate::turn::with_turn;

/// Names are a matter of configuration, so there are few.
const SERVERS_MAX: usize = 1_024;

/// rustls' store.
pub(crate) struct Kept {
    /// None where TLS 1.3 is off.
    mint: Option<Mint>,
    reuse: Reuse,
    servers: Mutex<HashMap<ServerName<'static>, Server>>,
}

#[derive(Default)]
struct Server {
    group: Option<NamedGroup>,
    tls12: Option<Tls12>,
}

/// A TLS 1.2 session, and how much it was used.
struct Tls12 {
    value: Tls12ClientSessionValue,
    /// Handshakes resumed with it, or with one that it follows from.
    uses: u32,
    /// When the full handshake was, in seconds of Unix time.
    since_s: u64,
}

impl Kept {
    pub(crate) fn new(mint: Option<Mint>, reuse: Reuse) -> Kept {
        Kept {
            mint,
            reuse,
            servers: Mutex::new(HashMap::new()),
        }
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, name: ServerName<'static>, change: impl FnOnce(&mut Server)) {
        let mut servers = self.servers();
        if servers.len() < SERVERS_MAX || servers.contains_key(&name) {
            change(servers.entry(name).or_default());
        }
    }
}

fn now() -> Option<UnixTime> {
    with_turn(|turn| turn.now)
}

impl ClientSessionStore for Kept {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.change(name, |server| server.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.servers().get(&name.to_owned())?.group
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        // A server which resumed a session may give a new ticket for it: the count goes on.
        // Whether it did is seen when the handshake is done (`full_tls12_done`).
        let now_s = now().map_or(0, |now| now.as_secs());
        self.change(name, |server| {
            let (uses, since_s) = match &server.tls12 {
                Some(former) => (former.uses, former.since_s),
                None => (0, now_s),
            };
            server.tls12 = Some(Tls12 {
                value,
                uses,
                since_s,
            });
        });
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let now_s = now()?.as_secs();
        let mut servers = self.servers();
        let server = servers.get_mut(&name.to_owned())?;
        let session = server.tls12.as_mut()?;
        if !self.reuse.allows(session.uses, session.since_s, now_s) {
            server.tls12 = None;
            return None;
        }
        session.uses += 1;
        Some(session.value.clone())
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        if let Some(server) = self.servers().get_mut(name) {
            server.tls12 = None;
        }
    }

    /// Whoever showed rustls the ticket has taken note of all of it.
    fn insert_tls13_ticket(&self, _: ServerName<'static>, _: Tls13ClientSessionValue) {}

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mint = self.mint.as_ref()?;
        let (store, now) = with_turn(|turn| Some((turn.sessions.clone()?, turn.now)))??;
        let (chain, session) = SessionStore::take(&*store, now)?;
        let struck = mint.strike(&session)?;
        with_turn(|turn| turn.offered = Some(chain));
        Some(struck)
    }
}

impl Kept {
    /// A full TLS 1.2 handshake with this server is done: what came of it counts from now on.
    pub(crate) fn full_tls12_done(&self, name: &ServerName<'_>, now: UnixTime) {
        if let Some(session) = self
            .servers()
            .get_mut(&name.to_owned())
            .and_then(|server| server.tls12.as_mut())
        {
            (session.uses, session.since_s) = (0, now.as_secs());
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}
