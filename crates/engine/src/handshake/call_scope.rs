//! What rustls' shared objects learn about the connection of the current call, and tell about it.
//!
//! rustls asks for the time, hands out traffic secrets and judges certificates through
//! objects of the shared configuration, which know nothing of the current connection.
//! So the connection's [`CallScope`] is put into a slot of the thread for the length of each
//! call into rustls, and taken back after it. Only the box moves; a secret is written into it
//! once and never copied through the slot.

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
use crate::sessions::tickets::TicketMessages;
use crate::x509::identity::Algorithms;

thread_local! {
    static SLOT: RefCell<Option<Box<CallScope>>> = const { RefCell::new(None) };
}

/// What one connection exchanges with rustls' shared objects.
pub(crate) struct CallScope {
    /// The time, as the caller gave it for this call.
    pub(crate) now: UnixTime,
    /// `client_application_traffic_secret_0`.
    pub(crate) client_secret: Secret,
    /// `server_application_traffic_secret_0`.
    pub(crate) server_secret: Secret,
    /// Server side: whom the client asked for.
    pub(crate) server_name: Option<String>,
    /// Server side: the client is shown no certificate, and why.
    pub(crate) no_certificate: Option<NoCertificate>,
    /// The signature scheme by which the server proved itself.
    pub(crate) signature: Option<SignatureScheme>,
    /// Server side: what the certificate is made with that fits the client.
    pub(crate) algorithms: Option<Arc<Algorithms>>,
    /// What was wrong with the peer's certificate, in more words than rustls' error has.
    pub(crate) certificate_problem: Option<CertificateProblem>,
    /// Server side: the application protocol that will be agreed on.
    pub(crate) alpn: Option<Vec<u8>>,
    /// Server side: whose certificate the client showed, by its own account.
    pub(crate) client: Option<String>,
    /// Server side: the common name in it.
    pub(crate) client_name: Option<String>,
    /// Server side: what became of the session that the client offered.
    pub(crate) resumption: ResumptionOutcome,
    /// Server side: the client can be given a ticket.
    pub(crate) knows_tickets: bool,
    /// Client side: the caller's sessions of this server.
    pub(crate) session_store: Option<Arc<dyn SessionStore>>,
    /// The chain of the session that was offered.
    pub(crate) offered_chain: Option<u64>,
    /// A TLS 1.2 session from the caller's store: rustls asked for one of TLS 1.3 first.
    pub(crate) offered_tls12: Option<Session>,
    /// rustls' value of the TLS 1.2 session that the handshake made.
    pub(crate) tls12_value: Option<Tls12ClientSessionValue>,
    /// rustls' value of the TLS 1.3 session that was just restored.
    pub(crate) tls13_value: Option<Tls13ClientSessionValue>,
    /// What the wrapped provider does with the master secret of TLS 1.2.
    pub(crate) master_secret: Derivation,
    /// What the wrapped provider does with a ticket's key.
    pub(crate) psk: Derivation,
    /// The id or ticket which the server of a loopback handshake gives out.
    pub(crate) issued: Option<SessionHandle>,
    /// Seals records to the peer, once there are keys.
    pub(crate) sealer: Option<RecordSealer>,
    /// How records of the peer are protected by now.
    pub(crate) reading: Reading,
    /// A protected record ends the handshake, because of what was in it.
    pub(crate) refused: Option<RecordRefusal>,
    /// Server side: the tickets of TLS 1.3 that will be sent.
    pub(crate) ticket_messages: Option<TicketMessages>,
    /// Both ends of this handshake are ours, so its certificate is not judged.
    pub(crate) is_loopback: bool,
    /// What an exporter is made of, where one is wanted.
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
            knows_tickets: false,
            session_store: None,
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
            ticket_messages: None,
            is_loopback: false,
            exporter: None,
        })
    }
}

/// Makes `call` with `scope` in this thread's slot, and takes it back.
///
/// Scopes nest: while rustls looks for a session, a loopback handshake may restore it.
pub(crate) fn enter<R>(scope: Box<CallScope>, call: impl FnOnce() -> R) -> (Box<CallScope>, R) {
    /// Puts the outer scope back if `call` unwinds, so that no secret stays in the thread.
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

/// Reads or writes the scope of the current call; `None` outside of one.
pub(crate) fn in_scope<R>(f: impl FnOnce(&mut CallScope) -> R) -> Option<R> {
    SLOT.with(|slot| slot.borrow_mut().as_deref_mut().map(f))
}

/// Catches the application traffic secrets of the current connection, and what its exporter is made
/// of. Tells secrets to nobody but the log that the caller asked for.
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
        // Not in the scope: what the caller does there may open one of its own.
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

/// Tells rustls the time that the caller gave for this call.
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
    fn secrets_reach_the_scope_of_the_call_and_no_other() {
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
    fn a_nested_scope_leaves_the_outer_one_as_it_was() {
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
    fn outside_of_a_call_there_is_no_time() {
        assert!(CallerTime.current_time().is_none());
    }

    #[test]
    fn a_panic_leaves_no_secret_in_the_thread() {
        let outcome = std::panic::catch_unwind(|| enter(CallScope::new(), || panic!("as a test")));
        assert!(outcome.is_err());
        assert!(in_scope(|_| ()).is_none());
    }

    #[test]
    fn a_panic_in_a_nested_scope_leaves_the_outer_one_as_it_was() {
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
