//! A client's session as bytes, so that it can be stored anywhere: in another process, in a file, or in memory
//! that outlives both.
//!
//! ```text
//! | version 1 | suite 2 | received 8 | lifetime 4 | age_add 4 | psk len 1, psk | ticket len 2, ticket |
//! ```
//!
//! TLS 1.2 sessions, recognised by their suite, store the master secret in place of the key. Their `age_add`
//! says what the ticket field holds: 0 a ticket, 1 a session id.
//!
//! These bytes are secret: anyone with them can use the session.

use std::fmt;

use rustls::CipherSuite;
use rustls_pki_types::UnixTime;
use zeroize::Zeroizing;

const VERSION: u8 = 1;
/// Seven days (RFC 8446 §4.6.1).
const LIFETIME_MAX_S: u32 = 604_800;
/// SHA-384.
const PSK_MAX: usize = 48;

/// A session that a client may resume: a ticket (or, in TLS 1.2, a session id) and the key that belongs to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Session(Zeroizing<Vec<u8>>);

/// Stores a client's sessions for one server. Nothing compares the server's name with that of the connection in which
/// a session began, and a resumed handshake verifies no certificate, so no two servers may share a store.
///
/// A *chain* is everything that follows from one full handshake: its tickets, and the tickets from connections
/// that were resumed with them. The store limits how often and for how long a chain is used.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// Returns a session to resume now, with the number of its chain; it counts as used.
    fn take(&self, now: UnixTime) -> Option<(u64, Session)>;

    /// Starts a new chain after a full handshake and returns its number. Sessions of earlier chains are not
    /// returned any more.
    fn begin(&self, now: UnixTime) -> u64;

    /// Stores a ticket that has arrived. Returns false if it was not stored, because its chain is not the
    /// newest, or it is too large.
    fn put(&self, chain: u64, session: &Session) -> bool;
}

/// How often, and for how long, the result of one full handshake may be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// Maximum number of resumed handshakes after a full one.
    pub uses_max: u32,
    /// Maximum age in seconds since the full handshake.
    pub age_max_s: u64,
}

impl Reuse {
    /// Whether a session may be resumed again after `uses` uses.
    pub fn allows(&self, uses: u32, since_s: u64, now_s: u64) -> bool {
        uses < self.uses_max
            && now_s
                .checked_sub(since_s)
                .is_some_and(|age_s| age_s < self.age_max_s)
    }
}

/// A SHA-256 digest of several texts, used as a name for data that depends on all of them.
pub fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// Length of the ids that rustls, OpenSSL and programs based on it create (RFC 5246 §7.4.1.2).
pub(crate) const SESSION_ID_LEN: usize = 32;

/// How a server finds a TLS 1.2 session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionHandle {
    Ticket(Vec<u8>),
    Id([u8; SESSION_ID_LEN]),
}

const HANDLE_IS_TICKET: u32 = 0;
const HANDLE_IS_ID: u32 = 1;

/// The fields of a session.
pub(crate) struct Parts<'a> {
    pub(crate) suite: CipherSuite,
    pub(crate) received_s: u64,
    pub(crate) lifetime_s: u32,
    pub(crate) age_add: u32,
    pub(crate) psk: &'a [u8],
    pub(crate) ticket: &'a [u8],
}

impl Session {
    /// Parses the output of [`Session::bytes`]; `None` if these are other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Session> {
        let session = Session(Zeroizing::new(bytes.to_vec()));
        session.parts().is_some().then_some(session)
    }

    /// Returns the session as bytes, which must be kept secret.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns when it expires according to its server, in seconds of Unix time.
    pub fn expires_at_s(&self) -> u64 {
        self.parts().map_or(0, |parts| {
            // A server need not send a lifetime (RFC 5077 §3.3); the maximum applies then.
            let lifetime_s = match parts.lifetime_s {
                0 => LIFETIME_MAX_S,
                lifetime_s => lifetime_s,
            };
            parts.received_s.saturating_add(lifetime_s.into())
        })
    }

    /// Whether it should be offered only once, so that an eavesdropper cannot link two connections to the same
    /// client (RFC 8446 §C.4). A TLS 1.2 session may be reused.
    pub fn is_for_one_use(&self) -> bool {
        self.is_tls13()
    }

    pub(crate) fn is_tls13(&self) -> bool {
        // Suites 0x13.. belong to TLS 1.3 only (RFC 8446 §B.4).
        self.0.get(1) == Some(&0x13)
    }

    /// Returns a session of TLS 1.2.
    pub(crate) fn of_tls12(
        suite: CipherSuite,
        now: UnixTime,
        lifetime_s: u32,
        master: &[u8],
        handle: &SessionHandle,
    ) -> Option<Session> {
        let (kind, handle) = match handle {
            SessionHandle::Ticket(ticket) => (HANDLE_IS_TICKET, ticket.as_slice()),
            SessionHandle::Id(id) => (HANDLE_IS_ID, id.as_slice()),
        };
        let lifetime_s = lifetime_s.min(LIFETIME_MAX_S);
        let session = Session::write(suite, now, lifetime_s, kind, master, handle)?;
        (!session.is_tls13()).then_some(session)
    }

    /// Returns its id or ticket if it is a TLS 1.2 session.
    pub(crate) fn handle(&self) -> Option<SessionHandle> {
        let parts = self.parts().filter(|_| !self.is_tls13())?;
        match parts.age_add {
            HANDLE_IS_TICKET => Some(SessionHandle::Ticket(parts.ticket.to_vec())),
            HANDLE_IS_ID => parts.ticket.try_into().ok().map(SessionHandle::Id),
            _ => None,
        }
    }

    /// Returns the session that a NewSessionTicket (RFC 8446 §4.6.1) starts; `None` if it is malformed or must
    /// be discarded at once.
    pub(crate) fn of_ticket(
        suite: CipherSuite,
        now: UnixTime,
        psk: &[u8],
        payload: &[u8],
    ) -> Option<Session> {
        let (lifetime, rest) = payload.split_first_chunk::<4>()?;
        let (age_add, rest) = rest.split_first_chunk::<4>()?;
        let (&nonce_len, rest) = rest.split_first()?;
        let rest = rest.get(usize::from(nonce_len)..)?;
        let (ticket_len, rest) = rest.split_first_chunk::<2>()?;
        let ticket = rest.get(..usize::from(u16::from_be_bytes(*ticket_len)))?;
        let lifetime_s = u32::from_be_bytes(*lifetime).min(LIFETIME_MAX_S);
        if lifetime_s == 0 {
            return None;
        }
        let age_add = u32::from_be_bytes(*age_add);
        Session::write(suite, now, lifetime_s, age_add, psk, ticket)
    }

    fn write(
        suite: CipherSuite,
        now: UnixTime,
        lifetime_s: u32,
        age_add: u32,
        psk: &[u8],
        ticket: &[u8],
    ) -> Option<Session> {
        let ticket_len = u16::try_from(ticket.len()).ok()?;
        if psk.is_empty() || psk.len() > PSK_MAX || ticket.is_empty() {
            return None;
        }
        let room = 22 + psk.len() + ticket.len();
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.push(VERSION);
        bytes.extend_from_slice(&u16::from(suite).to_be_bytes());
        bytes.extend_from_slice(&now.as_secs().to_be_bytes());
        bytes.extend_from_slice(&lifetime_s.to_be_bytes());
        bytes.extend_from_slice(&age_add.to_be_bytes());
        bytes.push(psk.len() as u8);
        bytes.extend_from_slice(psk);
        bytes.extend_from_slice(&ticket_len.to_be_bytes());
        bytes.extend_from_slice(ticket);
        Some(Session(bytes))
    }

    pub(crate) fn parts(&self) -> Option<Parts<'_>> {
        let (&version, rest) = self.0.split_first()?;
        let (suite, rest) = rest.split_first_chunk::<2>()?;
        let (received, rest) = rest.split_first_chunk::<8>()?;
        let (lifetime, rest) = rest.split_first_chunk::<4>()?;
        let (age_add, rest) = rest.split_first_chunk::<4>()?;
        let (&psk_len, rest) = rest.split_first()?;
        let (psk, rest) = rest.split_at_checked(psk_len.into())?;
        let (ticket_len, ticket) = rest.split_first_chunk::<2>()?;
        let is_valid = version == VERSION
            && (1..=PSK_MAX).contains(&psk.len())
            && ticket.len() == usize::from(u16::from_be_bytes(*ticket_len))
            && !ticket.is_empty();
        is_valid.then(|| Parts {
            suite: CipherSuite::from(u16::from_be_bytes(*suite)),
            received_s: u64::from_be_bytes(*received),
            lifetime_s: u32::from_be_bytes(*lifetime),
            age_add: u32::from_be_bytes(*age_add),
            psk,
            ticket,
        })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TICKET: [u8; 20] = [
        0, 0, 14, 16, 1, 2, 3, 4, 2, 9, 9, 0, 5, b't', b'i', b'c', b'k', b't', 0, 0,
    ];

    fn session() -> Session {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_000));
        let suite = CipherSuite::TLS13_AES_128_GCM_SHA256;
        Session::of_ticket(suite, now, &[7; 32], &TICKET).unwrap()
    }

    #[test]
    fn bytes_preserve_the_ticket() {
        let session = Session::from_bytes(session().bytes()).unwrap();
        let parts = session.parts().unwrap();
        assert_eq!(parts.suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!((parts.received_s, parts.lifetime_s), (1_000, 3_600));
        assert_eq!((parts.age_add, parts.psk), (0x0102_0304, &[7; 32][..]));
        assert_eq!(parts.ticket, b"tickt");
        assert_eq!(session.expires_at_s(), 4_600);
    }

    #[test]
    fn tls12_sessions_have_an_id_or_a_ticket() {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_000));
        let suite = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
        for handle in [
            SessionHandle::Ticket(b"tickt".to_vec()),
            SessionHandle::Id([5; 32]),
        ] {
            let session = Session::of_tls12(suite, now, 0, &[7; 48], &handle).unwrap();
            let session = Session::from_bytes(session.bytes()).unwrap();
            assert_eq!(session.handle(), Some(handle));
            assert!(!session.is_tls13() && !session.is_for_one_use());
            assert_eq!(session.expires_at_s(), 1_000 + u64::from(LIFETIME_MAX_S));
        }
        assert!(
            Session::of_tls12(suite, now, 0, &[7; 48], &SessionHandle::Ticket(Vec::new()))
                .is_none()
        );
        assert!(session().is_tls13() && session().handle().is_none());
    }

    /// A process that can write to the caller's store could date a session later, so that it never ages.
    #[test]
    fn a_session_of_the_future_is_not_used() {
        let reuse = Reuse {
            uses_max: 5,
            age_max_s: 60,
        };
        assert!(reuse.allows(4, 1_000, 1_059) && reuse.allows(0, 1_000, 1_000));
        assert!(!reuse.allows(5, 1_000, 1_000), "too many uses");
        assert!(!reuse.allows(0, 1_000, 1_060), "too old");
        assert!(!reuse.allows(0, 1_001, 1_000) && !reuse.allows(0, u64::MAX, 1_000));
    }

    #[test]
    fn truncated_or_overlong_bytes_are_refused() {
        let bytes = session().bytes().to_vec();
        for cut in 0..bytes.len() {
            assert!(Session::from_bytes(&bytes[..cut]).is_none(), "{cut}");
        }
        assert!(Session::from_bytes(&[&bytes[..], &[0]].concat()).is_none());
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_000));
        let suite = CipherSuite::TLS13_AES_128_GCM_SHA256;
        for cut in 0..TICKET.len() - 2 {
            assert!(Session::of_ticket(suite, now, &[7; 32], &TICKET[..cut]).is_none());
        }
        let at_once = [&[0; 4], &TICKET[4..]].concat();
        assert!(Session::of_ticket(suite, now, &[7; 32], &at_once).is_none());
    }
}
