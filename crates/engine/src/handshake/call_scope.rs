//! The connection-specific data that rustls' shared objects read and write during a call.
//!
//! rustls reads the time, reports traffic secrets and verifies certificates through objects of the shared
//! configuration, which do not know the current connection. So the connection's [`CallScope`] is put into a
//! thread-local slot for each call into rustls, and taken back afterwards. Only the box moves; each secret is
//! written into it once and never copied through the slot.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::time_provider::TimeProvider;
use rustls::{KeyLog, SignatureScheme};
use rustls_pki_types::UnixTime;

use super::record_rules::{Reading, RecordRefusal};
use super::record_sealer::RecordSealer;
use super::secrets::{Derivation, Secret};
use crate::failure::CertificateProblem;
use crate::failure::NoCertificate;
use crate::hooks::exporter::{EXPORTER_SECRET, ExporterSource};
use crate::hooks::secret_log::SecretLog;
use crate::sessions::client_session::SessionHandle;
use crate::sessions::client_session::{Session, SessionStore};
use crate::sessions::refusal::ResumptionOutcome;
use crate::sessions::server_sessions::StoredSession;
use crate::sessions::tickets::TicketMessages;
use crate::x509::identity::Algorithms;

thread_local! {
    static SLOT: RefCell<Option<Box<CallScope>>> = const { RefCell::new(None) };
}

/// The data that one connection exchanges with rustls' shared objects.
pub(crate) struct CallScope {
    /// The caller's time for this call.
    pub(crate) now: UnixTime,
    /// `client_application_traffic_secret_0`.
    pub(crate) client_secret: Secret,
    /// `server_application_traffic_secret_0`.
    pub(crate) server_secret: Secret,
    /// Server side: the requested server name.
    pub(crate) server_name: Option<String>,
    /// Server side: why the client gets no certificate, if it gets none.
    pub(crate) no_certificate: Option<NoCertificate>,
    /// The signature scheme of the server's handshake signature.
    pub(crate) signature: Option<SignatureScheme>,
    /// Server side: the algorithms of our certificate that suits the client.
    pub(crate) algorithms: Option<Arc<Algorithms>>,
    /// The problem with the peer's certificate, in more detail than rustls' error.
    pub(crate) certificate_problem: Option<CertificateProblem>,
    /// Server side: the application protocol that will be negotiated.
    pub(crate) alpn: Option<Vec<u8>>,
    /// Server side: the subject of the client's certificate.
    pub(crate) client: Option<String>,
    /// Server side: the common name in that subject.
    pub(crate) client_name: Option<String>,
    /// Server side: the outcome for the session that the client offered.
    pub(crate) resumption: ResumptionOutcome,
    /// Server side, TLS 1.2: the stored session that this connection began or resumes.
    pub(crate) stored_session: Option<StoredSession>,
    /// Server side: whether the client supports tickets.
    pub(crate) knows_tickets: bool,
    /// Client side: whether the server requested our certificate.
    pub(crate) own_certificate_sent: bool,
    /// Client side: the caller's session store for this server.
    pub(crate) session_store: Option<Arc<dyn SessionStore>>,
    /// Client side, without a store of the caller: when the full handshake was from which this connection's sessions
    /// count, in seconds of Unix time.
    pub(crate) sessions_since_s: u64,
    /// The chain of the offered session.
    pub(crate) offered_chain: Option<u64>,
    /// A TLS 1.2 session from the caller's store, kept because rustls asks for a TLS 1.3 session first.
    pub(crate) offered_tls12: Option<Session>,
    /// rustls' value of the TLS 1.2 session that this handshake created.
    pub(crate) tls12_value: Option<Tls12ClientSessionValue>,
    /// rustls' value of the TLS 1.3 session that was just restored.
    pub(crate) tls13_value: Option<Tls13ClientSessionValue>,
    /// How the wrapped provider handles the TLS 1.2 master secret.
    pub(crate) master_secret: Derivation,
    /// How the wrapped provider handles a ticket's key.
    pub(crate) psk: Derivation,
    /// The session id or ticket that the server of a loopback handshake issues.
    pub(crate) issued: Option<SessionHandle>,
    /// Seals records to the peer once there are keys.
    pub(crate) sealer: Option<RecordSealer>,
    /// The current protection of the peer's records.
    pub(crate) reading: Reading,
    /// A refusal caused by the content of a protected record; it ends the handshake.
    pub(crate) refused: Option<RecordRefusal>,
    /// The last protected record could not be decrypted.
    pub(crate) is_skipped: bool,
    /// Server side: the TLS 1.3 tickets to send.
    pub(crate) ticket_messages: Option<TicketMessages>,
    /// Both ends of this handshake are ours, so certificates are not verified.
    pub(crate) is_loopback: bool,
    /// The secrets that an exporter needs, if the context has one.
    pub(crate) exporter: Option<Box<ExporterSource>>,
}

impl CallScope {
    pub(crate) fn new() -> Box<CallScope> {
        Box::new(CallScope {
            now: UnixTime::since_unix_epoch(std::time::Duration::ZERO),
            client_secret: Secret::empty(),
            server_secret: Secret::empty(),
            server_name: None,
            no_certificate: None,
            signature: None,
            algorithms: None,
            certificate_problem: None,
            alpn: None,
            client: None,
            client_name: None,
            resumption: ResumptionOutcome::default(),
            stored_session: None,
            knows_tickets: false,
            own_certificate_sent: false,
            session_store: None,
            sessions_since_s: 0,
            offered_chain: None,
            offered_tls12: None,
            tls12_value: None,
            master_secret: Derivation::Unchanged,
            issued: None,
            psk: Derivation::Unchanged,
            tls13_value: None,
            sealer: None,
            reading: Reading::Clear,
            refused: None,
            is_skipped: false,
            ticket_messages: None,
            is_loopback: false,
            exporter: None,
        })
    }
}

/// Runs `call` with `scope` in this thread's slot, then takes the scope back.
///
/// Scopes nest: a loopback handshake may restore a session while rustls looks for one.
pub(crate) fn enter<R>(scope: Box<CallScope>, call: impl FnOnce() -> R) -> (Box<CallScope>, R) {
    /// Restores the outer scope if `call` unwinds, so that no secret stays in the thread.
    struct Restore(Option<Box<CallScope>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            SLOT.with(|slot| slot.replace(self.0.take()));
        }
    }

    let mut restore = Restore(SLOT.with(|slot| slot.replace(Some(scope))));
    let result = call();
    let scope = SLOT.with(|slot| slot.replace(restore.0.take()));
    std::mem::forget(restore);
    (scope.unwrap_or_else(CallScope::new), result)
}

/// Accesses the scope of the current call; `None` outside a call.
pub(crate) fn in_scope<R>(f: impl FnOnce(&mut CallScope) -> R) -> Option<R> {
    SLOT.with(|slot| slot.borrow_mut().as_deref_mut().map(f))
}

/// Captures the application traffic secrets and the exporter's secrets of the current connection. Passes
/// secrets only to the log that the caller configured.
#[derive(Debug, Default)]
pub(crate) struct SecretCatcher {
    pub(crate) log: Option<Arc<dyn SecretLog>>,
}

const CLIENT_TRAFFIC_SECRET: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER_TRAFFIC_SECRET: &str = "SERVER_TRAFFIC_SECRET_0";

impl KeyLog for SecretCatcher {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let is_loopback = in_scope(|scope| {
            match label {
                CLIENT_TRAFFIC_SECRET => scope.client_secret.write(secret),
                SERVER_TRAFFIC_SECRET => scope.server_secret.write(secret),
                _ => {}
            }
            if let Some(exporter) = &mut scope.exporter {
                exporter.note_secret(label, client_random, secret);
            }
            scope.is_loopback
        });
        // Outside the scope, because the caller's log may open a scope of its own.
        if let (Some(log), Some(false)) = (&self.log, is_loopback) {
            log.log_secret(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        let wanted_by_exporter =
            || label == EXPORTER_SECRET && in_scope(|scope| scope.exporter.is_some()) == Some(true);
        matches!(label, CLIENT_TRAFFIC_SECRET | SERVER_TRAFFIC_SECRET)
            || self.log.is_some()
            || wanted_by_exporter()
    }
}

/// Passes the caller's time for this call to rustls.
#[derive(Debug)]
pub(crate) struct CallerTime;

impl TimeProvider for CallerTime {
    fn current_time(&self) -> Option<UnixTime> {
        in_scope(|scope| scope.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_reach_only_the_scope_of_their_call() {
        SecretCatcher::default().log(CLIENT_TRAFFIC_SECRET, &[], &[1; 32]);
        let (scope, ()) = enter(CallScope::new(), || {
            SecretCatcher::default().log(CLIENT_TRAFFIC_SECRET, &[], &[2; 32]);
            SecretCatcher::default().log("EXPORTER_SECRET", &[], &[3; 32]);
            SecretCatcher::default().log(SERVER_TRAFFIC_SECRET, &[], &[4; 48]);
        });
        assert_eq!(scope.client_secret.bytes(), [2; 32]);
        assert_eq!(scope.server_secret.bytes(), [4; 48]);
        assert!(in_scope(|_| ()).is_none());
    }

    #[test]
    fn a_nested_scope_leaves_the_outer_scope_unchanged() {
        let (outer, inner) = enter(CallScope::new(), || {
            SecretCatcher::default().log(CLIENT_TRAFFIC_SECRET, &[], &[1; 32]);
            let (inner, ()) = enter(CallScope::new(), || {
                SecretCatcher::default().log(SERVER_TRAFFIC_SECRET, &[], &[2; 32]);
            });
            inner
        });
        assert_eq!(outer.client_secret.bytes(), [1; 32]);
        assert!(outer.server_secret.bytes().is_empty());
        assert!(inner.client_secret.bytes().is_empty());
        assert_eq!(inner.server_secret.bytes(), [2; 32]);
        assert!(in_scope(|_| ()).is_none());
    }

    #[test]
    fn there_is_no_time_outside_a_call() {
        assert!(CallerTime.current_time().is_none());
    }

    #[test]
    fn a_panic_leaves_no_secret_in_the_thread() {
        let outcome = std::panic::catch_unwind(|| enter(CallScope::new(), || panic!("as a test")));
        assert!(outcome.is_err());
        assert!(in_scope(|_| ()).is_none());
    }

    #[test]
    fn a_panic_in_a_nested_scope_leaves_the_outer_scope_unchanged() {
        let (outer, ()) = enter(CallScope::new(), || {
            SecretCatcher::default().log(CLIENT_TRAFFIC_SECRET, &[], &[1; 32]);
            let nested = || enter(CallScope::new(), || panic!("as a test"));
            assert!(std::panic::catch_unwind(nested).is_err());
            SecretCatcher::default().log(SERVER_TRAFFIC_SECRET, &[], &[2; 32]);
        });
        assert_eq!(outer.client_secret.bytes(), [1; 32]);
        assert_eq!(outer.server_secret.bytes(), [2; 32]);
    }
}
