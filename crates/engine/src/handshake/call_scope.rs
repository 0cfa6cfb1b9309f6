//! What rustls is told, and what it tells, during one call.
//!
//! rustls asks for the time, hands out traffic secrets and judges certificates through
//! objects of the shared configuration, which know nothing of the connection at hand.
//! So each call into rustls is a *turn*: the connection's [`Turn`] is put into a slot of
//! this thread, the call is made, and the turn is taken back. Only the box moves; a secret
//! is written into it once and never copied through the slot.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::time_provider::TimeProvider;
use rustls::{KeyLog, SignatureScheme};
use rustls_pki_types::UnixTime;
use zeroize::Zeroize;

use crate::failure::CertificateProblem;
use crate::failure::NotShown;
use crate::sessions::client_session::{Session, SessionStore};
use crate::sessions::refusal::ResumptionOutcome;
use crate::sessions::restore::tls12::{Dictated, Master};
use crate::sessions::restore::tls13::Psk;
use crate::x509::identity::Algorithms;

/// The longest traffic secret: SHA-384.
const SECRET_MAX: usize = 48;

thread_local! {
    static SLOT: RefCell<Option<Box<Turn>>> = const { RefCell::new(None) };
}

/// One connection's half of the conversation with rustls' shared objects.
pub(crate) struct Turn {
    /// The time, as the caller gave it for this call.
    pub(crate) now: UnixTime,
    /// `client_application_traffic_secret_0`.
    pub(crate) client_secret: Secret,
    /// `server_application_traffic_secret_0`.
    pub(crate) server_secret: Secret,
    /// Server side: whom the client asked for.
    pub(crate) server_name: Option<String>,
    /// Server side: the client is shown no certificate, and why.
    pub(crate) not_shown: Option<NotShown>,
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
    /// Client side: where its caller keeps the sessions of this server.
    pub(crate) sessions: Option<Arc<dyn SessionStore>>,
    /// The chain of the session that was offered.
    pub(crate) offered: Option<u64>,
    /// A TLS 1.2 session which was taken where rustls had asked for one of 1.3 first.
    pub(crate) taken: Option<Session>,
    /// rustls' value of the TLS 1.2 session that was made.
    pub(crate) made: Option<Tls12ClientSessionValue>,
    /// What is done with the master secret of TLS 1.2.
    pub(crate) master: Master,
    /// What the server of a handshake with ourselves gives out.
    pub(crate) dictated: Option<Dictated>,
    /// What is done with the key of a ticket.
    pub(crate) psk: Psk,
    /// A session which the mint has just struck.
    pub(crate) struck: Option<Tls13ClientSessionValue>,
    /// This is a handshake with ourselves, so whatever certificate comes is our own.
    pub(crate) with_self: bool,
}

impl Turn {
    pub(crate) fn new() -> Box<Turn> {
        Box::new(Turn {
            now: UnixTime::since_unix_epoch(std::time::Duration::ZERO),
            client_secret: Secret::empty(),
            server_secret: Secret::empty(),
            server_name: None,
            not_shown: None,
            signature: None,
            algorithms: None,
            certificate_problem: None,
            alpn: None,
            client: None,
            client_name: None,
            resumption: ResumptionOutcome::default(),
            knows_tickets: false,
            sessions: None,
            offered: None,
            taken: None,
            made: None,
            master: Master::Derived,
            dictated: None,
            psk: Psk::Derived,
            struck: None,
            with_self: false,
        })
    }
}

/// Room for a traffic secret; wiped when dropped.
pub(crate) struct Secret {
    bytes: [u8; SECRET_MAX],
    len: usize,
}

impl Secret {
    pub(crate) const fn empty() -> Secret {
        Secret {
            bytes: [0; SECRET_MAX],
            len: 0,
        }
    }

    pub(crate) fn of(secret: &[u8]) -> Secret {
        let mut room = Secret::empty();
        room.write(secret);
        room
    }

    /// A secret too long for any suite of TLS 1.3 leaves this empty, which is refused later.
    pub(crate) fn write(&mut self, secret: &[u8]) {
        self.bytes.zeroize();
        self.len = 0;
        if let Some(room) = self.bytes.get_mut(..secret.len()) {
            room.copy_from_slice(secret);
            self.len = secret.len();
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// Makes `call` with `turn` in this thread's slot, and takes it back.
///
/// Turns nest: while rustls looks for a session, one may be made in a handshake with ourselves.
pub(crate) fn take_turn<R>(turn: Box<Turn>, call: impl FnOnce() -> R) -> (Box<Turn>, R) {
    /// Clears the slot if `call` unwinds, so that no secret stays in the thread.
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            SLOT.with(|slot| slot.take());
        }
    }

    let outer = SLOT.with(|slot| slot.replace(Some(turn)));
    let clear = Clear;
    let result = call();
    std::mem::forget(clear);
    let turn = SLOT.with(|slot| slot.replace(outer));
    (turn.unwrap_or_else(Turn::new), result)
}

/// Looks at, or writes into, the turn of the call at hand, if there is one.
pub(crate) fn with_turn<R>(f: impl FnOnce(&mut Turn) -> R) -> Option<R> {
    SLOT.with(|slot| slot.borrow_mut().as_deref_mut().map(f))
}

/// Catches the application traffic secrets of the connection at hand. Logs nothing, anywhere.
#[derive(Debug)]
pub(crate) struct SecretCatcher;

const CLIENT_TRAFFIC_SECRET: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER_TRAFFIC_SECRET: &str = "SERVER_TRAFFIC_SECRET_0";

impl KeyLog for SecretCatcher {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        with_turn(|turn| match label {
            CLIENT_TRAFFIC_SECRET => turn.client_secret.write(secret),
            SERVER_TRAFFIC_SECRET => turn.server_secret.write(secret),
            _ => {}
        });
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT_TRAFFIC_SECRET | SERVER_TRAFFIC_SECRET)
    }
}

/// Tells rustls the time which the caller gave for the call at hand.
#[derive(Debug)]
pub(crate) struct TurnTime;

impl TimeProvider for TurnTime {
    fn current_time(&self) -> Option<UnixTime> {
        with_turn(|turn| turn.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_reach_the_turn_at_hand_and_nobody_else() {
        SecretCatcher.log(CLIENT_TRAFFIC_SECRET, &[], &[1; 32]);
        let (turn, ()) = take_turn(Turn::new(), || {
            SecretCatcher.log(CLIENT_TRAFFIC_SECRET, &[], &[2; 32]);
            SecretCatcher.log("EXPORTER_SECRET", &[], &[3; 32]);
            SecretCatcher.log(SERVER_TRAFFIC_SECRET, &[], &[4; 48]);
        });
        assert_eq!(turn.client_secret.bytes(), [2; 32]);
        assert_eq!(turn.server_secret.bytes(), [4; 48]);
        assert!(with_turn(|_| ()).is_none());
    }

    #[test]
    fn a_secret_too_long_is_not_kept() {
        let mut secret = Secret::empty();
        secret.write(&[7; 32]);
        secret.write(&[7; 49]);
        assert!(secret.bytes().is_empty());
        assert_eq!(secret.bytes, [0; SECRET_MAX]);
    }

    #[test]
    fn a_turn_within_a_turn_leaves_it_as_it_was() {
        let (outer, inner) = take_turn(Turn::new(), || {
            SecretCatcher.log(CLIENT_TRAFFIC_SECRET, &[], &[1; 32]);
            let (inner, ()) = take_turn(Turn::new(), || {
                SecretCatcher.log(SERVER_TRAFFIC_SECRET, &[], &[2; 32]);
            });
            inner
        });
        assert_eq!(outer.client_secret.bytes(), [1; 32]);
        assert!(outer.server_secret.bytes().is_empty());
        assert!(inner.client_secret.bytes().is_empty());
        assert_eq!(inner.server_secret.bytes(), [2; 32]);
        assert!(with_turn(|_| ()).is_none());
    }

    #[test]
    fn without_a_turn_there_is_no_time() {
        assert!(TurnTime.current_time().is_none());
    }

    #[test]
    fn a_panic_leaves_no_secret_in_the_thread() {
        let outcome = std::panic::catch_unwind(|| take_turn(Turn::new(), || panic!("as a test")));
        assert!(outcome.is_err());
        assert!(with_turn(|_| ()).is_none());
    }
}
