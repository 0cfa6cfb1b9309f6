//! Sessions that the caller stores as bytes: another context, like another process, resumes with them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dormouse_engine::{
    ClientContext, ClientSettings, Handshake, HandshakeInfo, Protocols, ResumptionSettings, Reuse,
    Roots, ServerContext, ServerSessions, ServerSettings, Session, SessionStore, Suite,
    TicketSettings, TrustStore, UnixTime, Version,
};
use dormouse_testkit::{Authority, Cut, drive};

use crate::ours::{client_handshake, complete, server_handshake, server_with};
use crate::stock::NAME;

/// Stores only bytes, like a file.
#[derive(Debug)]
struct Shelf {
    chain: AtomicU64,
    sessions: Mutex<Vec<Vec<u8>>>,
    bytes_max: AtomicUsize,
}

impl Default for Shelf {
    fn default() -> Self {
        Shelf {
            chain: AtomicU64::new(0),
            sessions: Mutex::default(),
            bytes_max: AtomicUsize::new(2_000),
        }
    }
}

impl SessionStore for Shelf {
    fn take(&self, _: UnixTime) -> Option<(u64, Session)> {
        let mut sessions = self.sessions.lock().unwrap();
        let session = Session::from_bytes(sessions.last()?).expect("an encoded session");
        if session.is_for_one_use() {
            sessions.pop();
        }
        Some((self.chain.load(Ordering::Relaxed), session))
    }

    fn begin(&self, _: UnixTime) -> u64 {
        self.sessions.lock().unwrap().clear();
        self.chain.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn put(&self, chain: u64, session: &Session) -> bool {
        let fits = chain == self.chain.load(Ordering::Relaxed)
            && session.bytes().len() <= self.bytes_max.load(Ordering::Relaxed);
        if fits {
            let mut sessions = self.sessions.lock().unwrap();
            sessions.push(session.bytes().to_vec());
        }
        fits
    }
}

fn server(protocols: Protocols, tickets: bool) -> ServerContext {
    server_with(|settings| {
        settings.protocols = protocols;
        settings.tickets = tickets.then(TicketSettings::default);
    })
}

fn client(uses_max: u32) -> ClientContext {
    client_with_suites(uses_max, &Suite::ALL)
}

fn client_with_suites(uses_max: u32, suites: &[Suite]) -> ClientContext {
    let store = TrustStore::from_pem(Authority::shared().certificate_pem().as_bytes()).unwrap();
    let mut settings = ClientSettings::new(Roots::Store(store));
    settings.suites = suites.to_vec();
    settings.resumption = Some(ResumptionSettings {
        tickets_expected: 2,
        by_caller: Some(Reuse {
            uses_max,
            age_max_s: 3_600,
        }),
        ..ResumptionSettings::default()
    });
    ClientContext::new(settings).unwrap()
}

/// Returns a client's handshake with the sessions of `shelf`.
fn handshake(client: &ClientContext, shelf: &Arc<Shelf>) -> Handshake {
    let mut handshake = client_handshake(client);
    handshake.keep_sessions(Arc::clone(shelf) as _);
    handshake
}

fn visit(client: &ClientContext, server: &ServerContext, shelf: &Arc<Shelf>) -> HandshakeInfo {
    complete(handshake(client, shelf), server)
}

#[test]
fn another_process_resumes_with_the_bytes() {
    let server = server(Protocols::ALL, true);
    let shelf = Arc::new(Shelf::default());
    let (one, other) = (client(100), client(100));
    assert!(!visit(&one, &server, &shelf).resumed);
    for n in 0..6 {
        let client = if n % 2 == 0 { &other } else { &one };
        assert!(visit(client, &server, &shelf).resumed, "{n}");
    }
    assert_eq!(shelf.chain.load(Ordering::Relaxed), 1, "one full handshake");
}

#[test]
fn a_client_with_one_suite_resumes_with_the_bytes() {
    let server = server(Protocols::ALL, true);
    // The server's certificate is ECDSA.
    let is_rsa = |suite: &Suite| {
        use Suite::{RsaAes128Gcm, RsaAes256Gcm, RsaChacha20};
        matches!(suite, RsaAes128Gcm | RsaAes256Gcm | RsaChacha20)
    };
    for suite in Suite::ALL.into_iter().filter(|suite| !is_rsa(suite)) {
        let [one, other] = [(); 2].map(|()| client_with_suites(100, &[suite]));
        let shelf = Arc::new(Shelf::default());
        assert!(!visit(&one, &server, &shelf).resumed);
        assert!(visit(&other, &server, &shelf).resumed, "{suite:?}");
    }
}

#[test]
fn an_unknown_session_costs_a_full_handshake() {
    let shelf = Arc::new(Shelf::default());
    let client = client(100);
    let (first, second) = (server(Protocols::ALL, true), server(Protocols::ALL, true));
    assert!(!visit(&client, &first, &shelf).resumed);
    assert!(!visit(&client, &second, &shelf).resumed);
    assert!(visit(&client, &second, &shelf).resumed);
    assert_eq!(shelf.chain.load(Ordering::Relaxed), 2);
    let silent = server(Protocols::ALL, false);
    assert!(!visit(&client, &silent, &shelf).resumed);
    assert!(!visit(&client, &silent, &shelf).resumed);
}

/// The server refuses a damaged ticket; a damaged key must not authenticate.
#[test]
fn damaged_sessions_do_not_resume() {
    let server = server(Protocols::ALL, true);
    let shelf = Arc::new(Shelf::default());
    let client = client(100);
    visit(&client, &server, &shelf);
    let whole = shelf.sessions.lock().unwrap().pop().unwrap();
    let damaged = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        *shelf.sessions.lock().unwrap() = vec![bytes];
    };
    damaged(whole.len() - 1);
    assert!(!visit(&client, &server, &shelf).resumed);
    // The binder of a wrong key does not verify (RFC 8446 §4.2.11): the server must abort.
    damaged(20);
    let client = handshake(&client, &shelf);
    assert!(drive(client, server_handshake(&server), Cut::Whole).is_err());
}

/// The same for TLS 1.2: other contexts resume with the bytes, for every kind of server certificate, with
/// tickets and with ids.
#[test]
fn another_process_resumes_tls12_with_the_bytes() {
    let authority = Authority::shared();
    let identities = [
        authority.ecdsa(&[NAME]).identity(),
        authority.rsa(&[NAME]).identity(),
    ];
    for (n, identity) in identities.into_iter().enumerate() {
        for by_id in [false, true] {
            let mut settings = ServerSettings::new(vec![identity.clone()]);
            settings.protocols = Protocols::TLS12;
            settings.sessions = by_id.then(|| Arc::new(Ids::default()) as _);
            let server = ServerContext::new(settings).unwrap();
            let shelf = Arc::new(Shelf::default());
            assert!(!visit(&client(100), &server, &shelf).resumed);
            let (one, other) = (client(100), client(100));
            for round in 0..6 {
                let client = if round % 2 == 0 { &one } else { &other };
                let info = visit(client, &server, &shelf);
                assert!(info.resumed, "certificate {n}, by id: {by_id}, {round}");
                assert_eq!(info.protocol, Version::Tls12);
            }
            assert_eq!(shelf.chain.load(Ordering::Relaxed), 1, "one full handshake");
        }
    }
}

/// Stores sessions by id, as many TLS 1.2 servers do.
#[derive(Debug, Default)]
struct Ids(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl ServerSessions for Ids {
    fn put(&self, id: &[u8], sealed: &[u8]) -> bool {
        self.0.lock().unwrap().insert(id.to_vec(), sealed.to_vec());
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(id).cloned()
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().remove(id)
    }
}

/// A TLS 1.2 session with a wrong master secret must not authenticate, and is not tried again.
#[test]
fn damaged_tls12_sessions_do_not_resume() {
    let server = server(Protocols::TLS12, true);
    let shelf = Arc::new(Shelf::default());
    visit(&client(100), &server, &shelf);
    let whole = shelf.sessions.lock().unwrap().pop().unwrap();
    let damage = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        *shelf.sessions.lock().unwrap() = vec![bytes];
    };
    let second = client(100);
    damage(whole.len() - 1);
    assert!(
        !visit(&second, &server, &shelf).resumed,
        "the server refuses the ticket"
    );
    assert!(visit(&second, &server, &shelf).resumed);
    damage(20 + 10);
    let other = client(100);
    let refused = handshake(&other, &shelf);
    assert!(drive(refused, server_handshake(&server), Cut::Whole).is_err());
    assert!(!visit(&other, &server, &shelf).resumed);
    assert!(visit(&other, &server, &shelf).resumed);
}

/// A session too large for the caller's store stays in the context, which counts its uses.
#[test]
fn a_tls12_session_too_large_for_the_caller_stays_in_the_context() {
    let server = server(Protocols::TLS12, true);
    let shelf = Arc::new(Shelf::default());
    shelf.bytes_max.store(0, Ordering::Relaxed);
    let client = client(2);
    let resumed: Vec<bool> = (0..6)
        .map(|_| visit(&client, &server, &shelf).resumed)
        .collect();
    assert_eq!(resumed, [false, true, true, false, true, true]);
    assert!(shelf.sessions.lock().unwrap().is_empty());
}

/// The caller decides: a session that its store does not return is not used.
#[test]
fn a_tls12_session_ends_with_its_chain() {
    let server = server(Protocols::TLS12, true);
    let shelf = Arc::new(Shelf::default());
    let (one, other) = (client(100), client(100));
    assert!(!visit(&one, &server, &shelf).resumed);
    assert!(visit(&other, &server, &shelf).resumed);
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
    shelf.begin(now);
    assert!(!visit(&one, &server, &shelf).resumed);
    assert!(visit(&other, &server, &shelf).resumed, "the new one");
}

/// The bytes of a session hold no certificate, and that of the handshake which restores a session is nobody's.
#[test]
fn a_stored_session_has_no_certificates() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let server = server(protocols, true);
        let shelf = Arc::new(Shelf::default());
        let (one, other) = (client(100), client(100));
        for (client, resumed) in [(&one, false), (&one, true), (&other, true)] {
            let client = handshake(client, &shelf);
            let (mut client, _) = drive(client, server_handshake(&server), Cut::Whole).unwrap();
            assert!(client.open(&[]).is_empty());
            assert_eq!(client.info.resumed, resumed);
            assert_eq!(client.info.peer_certificates.is_empty(), resumed);
        }
    }
}

/// A caller may have a store for each connection, and a new store may get the address of one that is gone. rustls does
/// not compare names: a session of another server would let that server pose as this one.
#[test]
fn a_new_store_never_gets_the_sessions_of_another_one() {
    let [one, other] = [(); 2].map(|()| server(Protocols::TLS12, true));
    let client = client(100);
    let of_other = Arc::new(Shelf::default());
    visit(&client, &other, &of_other);
    for _ in 0..50 {
        // Its sessions stay in the context.
        let shelf = Arc::new(Shelf::default());
        shelf.bytes_max.store(0, Ordering::Relaxed);
        assert!(!visit(&client, &one, &shelf).resumed);
        assert!(visit(&client, &one, &shelf).resumed);
        drop(shelf);
        let shelf = Arc::new(Shelf::default());
        assert!(!visit(&client, &one, &shelf).resumed, "it has no session");
        assert!(visit(&client, &one, &shelf).resumed);
        drop(shelf);
        // A chain with the same number, of another server.
        let shelf = Arc::new(Shelf::default());
        shelf.chain.store(1, Ordering::Relaxed);
        let sessions = of_other.sessions.lock().unwrap().clone();
        *shelf.sessions.lock().unwrap() = sessions;
        assert!(visit(&client, &other, &shelf).resumed);
    }
}
