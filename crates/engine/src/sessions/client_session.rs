//! A client's session as bytes, so that it can be kept anywhere: in another process, in a file, in
//! memory which outlives both.
//!
//! ```text
//! | version 1 | suite 2 | received 8 | lifetime 4 | age_add 4 | psk len 1, psk | ticket len 2, ticket |
//! ```
//!
//! Those of TLS 1.2, which the suite tells, have the master secret in the place of the key, and
//! `age_add` says what is in that of the ticket: 0 a ticket, 1 a session id.
//!
//! These bytes are a secret: whoever has them can take part in the session.

use std::fmt;

use rustls::CipherSuite;
use rustls_pki_types::UnixTime;
use zeroize::Zeroizing;

const VERSION: u8 = 1;
/// Seven days (RFC 8446 §4.6.1).
const LIFETIME_MAX_S: u32 = 604_800;
/// SHA-384.
const PSK_MAX: usize = 48;

/// A session which a client may resume: a ticket (with TLS 1.2 it may be an id), and the key that it
/// stands for.
#[derive(Clone, PartialEq, Eq)]
pub struct Session(Zeroizing<Vec<u8>>);

/// Where a client keeps the sessions of one server.
///
/// A *chain* is what follows from one full handshake: its tickets, and those which the
/// connections bring that were resumed with them. The store bounds how often and how long a
/// chain is used.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// A session to resume now, with the number of its chain; it counts as used.
    fn take(&self, now: UnixTime) -> Option<(u64, Session)>;

    /// A full handshake was done: a new chain begins, whose number is returned. Nothing of
    /// earlier ones is given out any more.
    fn begin(&self, now: UnixTime) -> u64;

    /// A ticket has come. `false`: it is not kept, since its chain is not the newest, or it is too
    /// large.
    fn put(&self, chain: u64, session: &Session) -> bool;
}

/// How often and how long what one full handshake agreed on may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// Resumed handshakes after one full one.
    pub uses_max: u32,
    /// Seconds after it.
    pub age_max_s: u64,
}

impl Reuse {
    /// May it be used once more, after so many uses since then?
    pub fn allows(&self, uses: u32, since_s: u64, now_s: u64) -> bool {
        uses < self.uses_max && now_s.saturating_sub(since_s) < self.age_max_s
    }
}

/// A digest (SHA-256) of texts, for naming what depends on all of them.
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

/// RFC 5246 §7.4.1.2. rustls' servers, OpenSSL and all that use it make ids of this length.
pub(crate) const SESSION_ID_LEN: usize = 32;

/// What a server finds a TLS 1.2 session by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionHandle {
    Ticket(Vec<u8>),
    Id([u8; SESSION_ID_LEN]),
}

const HANDLE_IS_TICKET: u32 = 0;
const HANDLE_IS_ID: u32 = 1;

/// What a session says.
pub(crate) struct Parts<'a> {
    pub(crate) suite: CipherSuite,
    pub(crate) received_s: u64,
    pub(crate) lifetime_s: u32,
    pub(crate) age_add: u32,
    pub(crate) psk: &'a [u8],
    pub(crate) ticket: &'a [u8],
}

impl Session {
    /// From bytes which [`Session::bytes`] gave out. `None`: they are something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Session> {
        let session = Session(Zeroizing::new(bytes.to_vec()));
        session.parts().is_some().then_some(session)
    }

    /// To be kept as a secret.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// When it ends, by what its server said, in seconds of Unix time.
    pub fn expires_at_s(&self) -> u64 {
        self.parts().map_or(0, |parts| {
            // A server need not say it (RFC 5077 §3.3): then it is the longest there is.
            let lifetime_s = match parts.lifetime_s {
                0 => LIFETIME_MAX_S,
                lifetime_s => lifetime_s,
            };
            parts.received_s.saturating_add(lifetime_s.into())
        })
    }

    /// Whether it should be offered once only, so that nobody who listens can tell that two
    /// connections are of the same client (RFC 8446 §C.4). A TLS 1.2 session may be used again.
    pub fn is_for_one_use(&self) -> bool {
        self.is_tls13()
    }

    pub(crate) fn is_tls13(&self) -> bool {
        // Suites 0x13.. are of TLS 1.3 and of nothing else (RFC 8446 §B.4).
        self.0.get(1) == Some(&0x13)
    }

    /// A session of TLS 1.2.
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

    /// What its server finds it by, if it is of TLS 1.2.
    pub(crate) fn handle(&self) -> Option<SessionHandle> {
        let parts = self.parts().filter(|_| !self.is_tls13())?;
        match parts.age_add {
            HANDLE_IS_TICKET => Some(SessionHandle::Ticket(parts.ticket.to_vec())),
            HANDLE_IS_ID => parts.ticket.try_into().ok().map(SessionHandle::Id),
            _ => None,
        }
    }

    /// The session which a NewSessionTicket (RFC 8446 §4.6.1) began. `None`: it is to be
    /// discarded at once, or malformed.
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
        let sound = version == VERSION
            && (1..=PSK_MAX).contains(&psk.len())
            && ticket.len() == usize::from(u16::from_be_bytes(*ticket_len))
            && !ticket.is_empty();
        sound.then(|| Parts {
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
    fn bytes_say_what_the_ticket_said() {
        let session = Session::from_bytes(session().bytes()).unwrap();
        let parts = session.parts().unwrap();
        assert_eq!(parts.suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!((parts.received_s, parts.lifetime_s), (1_000, 3_600));
        assert_eq!((parts.age_add, parts.psk), (0x0102_0304, &[7; 32][..]));
        assert_eq!(parts.ticket, b"tickt");
        assert_eq!(session.expires_at_s(), 4_600);
    }

    #[test]
    fn sessions_of_tls12_have_an_id_or_a_ticket() {
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

    #[test]
    fn what_is_cut_short_or_longer_is_nothing() {
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
