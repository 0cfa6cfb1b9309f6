//! The connection-specific data that rustls' shared objects read and write during a call.
//!
//! rustls reads the time, reports traffic secrets and verifies certificates through objects of the shared
//! configuration, which do not know the current connection. So the connection's [`CallScope`] is put into a
//! thread-local slot for each call into rustls, and taken back afterwards.
//!
//! A scope has a place for the facts of each [`Subject`]. They are a type beside the code that reads and writes them;
//! this module knows only the subject's name. Only boxes move; each secret is written into its box once and never copied
//! through the slot.

use std::any::Any;
use std::cell::RefCell;
use std::time::Duration;

use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

thread_local! {
    static SLOT: RefCell<Option<Box<CallScope>>> = const { RefCell::new(None) };
}

/// A subject of which a scope holds facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// What the client requests, and whether we have it.
    Request,
    /// The certificates of both ends.
    Certificates,
    /// The protection of records.
    Protection,
    /// The traffic secrets.
    TrafficSecrets,
    /// The secrets of sessions, while they are captured or replaced.
    SessionSecrets,
    /// The secrets for an exporter.
    Exporter,
    /// Sessions of a server.
    ServerSessions,
    /// Sessions of a client.
    ClientSessions,
    /// The session of a loopback handshake.
    Loopback,
    /// A key agreement that was computed before.
    Agreement,
    /// A signature that is made elsewhere.
    DeferredSignature,
}

const SUBJECTS: usize = Subject::DeferredSignature as usize + 1;

/// The facts of a subject about a connection. They begin with their default, when they are first used.
pub(crate) trait Facts: Any + Default + Send + Sync {
    /// Their subject. No other type has it.
    const SUBJECT: Subject;
}

/// The data that one connection exchanges with rustls' shared objects.
pub(crate) struct CallScope {
    /// The caller's time for this call.
    pub(crate) now: UnixTime,
    /// Both ends of this handshake are ours, so certificates are not verified.
    pub(crate) is_loopback: bool,
    facts: [Option<Box<dyn Any + Send + Sync>>; SUBJECTS],
}

impl CallScope {
    pub(crate) fn new() -> Box<CallScope> {
        Box::new(CallScope {
            now: UnixTime::since_unix_epoch(Duration::ZERO),
            is_loopback: false,
            facts: [const { None }; SUBJECTS],
        })
    }

    /// Returns the facts of a subject.
    pub(crate) fn of<T: Facts>(&mut self) -> &mut T {
        let facts = self.facts[T::SUBJECT as usize].get_or_insert_with(|| Box::<T>::default());
        let facts = facts.downcast_mut();
        facts.expect("each subject has one type")
    }

    /// Returns the facts of a subject without changing them, if there are any.
    pub(crate) fn peek<T: Facts>(&self) -> Option<&T> {
        self.facts[T::SUBJECT as usize].as_ref()?.downcast_ref()
    }

    /// Drops the facts of a subject.
    pub(crate) fn forget<T: Facts>(&mut self) {
        self.facts[T::SUBJECT as usize] = None;
    }

    /// Returns the facts of a subject, if there are any.
    pub(crate) fn find<T: Facts>(&mut self) -> Option<&mut T> {
        self.facts[T::SUBJECT as usize].as_mut()?.downcast_mut()
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
fn in_call<R>(f: impl FnOnce(&mut CallScope) -> R) -> Option<R> {
    SLOT.with(|slot| slot.borrow_mut().as_deref_mut().map(f))
}

/// Accesses the facts of a subject about the connection of the current call; `None` outside a call.
pub(crate) fn in_scope<T: Facts, R>(f: impl FnOnce(&mut T) -> R) -> Option<R> {
    in_call(|scope| f(scope.of()))
}

/// As [`in_scope`], but `None`, too, if there are no such facts yet.
pub(crate) fn if_in_scope<T: Facts, R>(f: impl FnOnce(&mut T) -> R) -> Option<R> {
    in_call(|scope| scope.find().map(f)).flatten()
}

/// Returns the caller's time for the current call.
pub(crate) fn now() -> Option<UnixTime> {
    in_call(|scope| scope.now)
}

/// Replaces the time for the rest of the current call, or until it is set back. Returns the former one.
pub(crate) fn replace_now(now: UnixTime) -> Option<UnixTime> {
    in_call(|scope| std::mem::replace(&mut scope.now, now))
}

/// Whether both ends of the current call's connection are ours. `None` outside a call.
pub(crate) fn is_loopback() -> Option<bool> {
    in_call(|scope| scope.is_loopback)
}

/// Passes the caller's time for this call to rustls.
#[derive(Debug)]
pub(crate) struct CallerTime;

impl TimeProvider for CallerTime {
    fn current_time(&self) -> Option<UnixTime> {
        now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::secret_log::{
        CLIENT_TRAFFIC_SECRET, CapturedSecrets, SERVER_TRAFFIC_SECRET, SecretCatcher,
    };
    use rustls::KeyLog as _;

    fn client(scope: &mut CallScope) -> &[u8] {
        scope.of::<CapturedSecrets>().client.bytes()
    }

    fn server(scope: &mut CallScope) -> &[u8] {
        scope.of::<CapturedSecrets>().server.bytes()
    }

    #[test]
    fn secrets_reach_only_the_scope_of_their_call() {
        SecretCatcher::default().log(CLIENT_TRAFFIC_SECRET, &[], &[1; 32]);
        let (mut scope, ()) = enter(CallScope::new(), || {
            SecretCatcher::default().log(CLIENT_TRAFFIC_SECRET, &[], &[2; 32]);
            SecretCatcher::default().log("EXPORTER_SECRET", &[], &[3; 32]);
            SecretCatcher::default().log(SERVER_TRAFFIC_SECRET, &[], &[4; 48]);
        });
        assert_eq!(client(&mut scope), [2; 32]);
        assert_eq!(server(&mut scope), [4; 48]);
        assert!(now().is_none());
    }

    #[test]
    fn a_nested_scope_leaves_the_outer_scope_unchanged() {
        let (mut outer, mut inner) = enter(CallScope::new(), || {
            SecretCatcher::default().log(CLIENT_TRAFFIC_SECRET, &[], &[1; 32]);
            let (inner, ()) = enter(CallScope::new(), || {
                SecretCatcher::default().log(SERVER_TRAFFIC_SECRET, &[], &[2; 32]);
            });
            inner
        });
        assert_eq!(client(&mut outer), [1; 32]);
        assert!(server(&mut outer).is_empty());
        assert!(client(&mut inner).is_empty());
        assert_eq!(server(&mut inner), [2; 32]);
        assert!(now().is_none());
    }

    #[test]
    fn there_is_no_time_outside_a_call() {
        assert!(CallerTime.current_time().is_none());
    }

    #[test]
    fn a_panic_leaves_no_secret_in_the_thread() {
        let outcome = std::panic::catch_unwind(|| enter(CallScope::new(), || panic!("as a test")));
        assert!(outcome.is_err());
        assert!(now().is_none());
    }

    #[test]
    fn a_panic_in_a_nested_scope_leaves_the_outer_scope_unchanged() {
        let (mut outer, ()) = enter(CallScope::new(), || {
            SecretCatcher::default().log(CLIENT_TRAFFIC_SECRET, &[], &[1; 32]);
            let nested = || enter(CallScope::new(), || panic!("as a test"));
            assert!(std::panic::catch_unwind(nested).is_err());
            SecretCatcher::default().log(SERVER_TRAFFIC_SECRET, &[], &[2; 32]);
        });
        assert_eq!(client(&mut outer), [1; 32]);
        assert_eq!(server(&mut outer), [2; 32]);
    }
}
