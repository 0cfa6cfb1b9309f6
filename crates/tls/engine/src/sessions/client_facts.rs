//! Client side: what a handshake has to do with sessions.

use std::sync::Arc;

use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};

use crate::call_scope::{Facts, Subject};
use crate::sessions::client_session::{Session, SessionStore};

/// Client side: what a handshake has to do with sessions.
#[derive(Default)]
pub(crate) struct ClientResumption {
    /// The caller's session store for this server.
    pub(crate) store: Option<Arc<dyn SessionStore>>,
    /// Without a store of the caller: when the full handshake was from which this connection's sessions count, in
    /// seconds of Unix time.
    pub(crate) since_s: u64,
    /// The chain of the offered session.
    pub(crate) offered_chain: Option<u64>,
    /// A TLS 1.2 session from the caller's store, kept because rustls asks for a TLS 1.3 session first.
    pub(crate) offered_tls12: Option<Session>,
    /// rustls' value of the TLS 1.2 session that this handshake created.
    pub(crate) tls12_value: Option<Tls12ClientSessionValue>,
    /// rustls' value of the TLS 1.3 session that was just restored.
    pub(crate) tls13_value: Option<Tls13ClientSessionValue>,
}

impl Facts for ClientResumption {
    const SUBJECT: Subject = Subject::ClientSessions;
}
