//! Sessions which the caller keeps as bytes: another context, as another process would have it,
//! resumes with them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dormouse_engine::{
    ClientContext, ClientSettings, Handshake, HandshakeInfo, HandshakeLimits, Protocols,
    ResumptionSettings, Reuse, Roots, ServerContext, ServerSettings, Session, SessionStore,
    TicketSettings, TrustStore, UnixTime, Version,
};
use dormouse_testkit::{Authority, Cut, drive};

use crate::stock::NAME;

/// Bytes and nothing else, as a file would hold them.
#[derive(Debug, Default)]
struct Shelf {
    chain: AtomicU64,
    sessions: Mutex<Vec<Vec<u8>>>,
}

impl SessionStore for Shelf {
    fn take(&self, _: UnixTime) -> Option<(u64, Session)> {
        let bytes = self.sessions.lock().unwrap().pop()?;
        let session = Session::from_bytes(&bytes).expect("what was put there");
        Some((self.chain.load(Ordering::Relaxed), session))
    }

    fn begin(&self, _: UnixTime) -> u64 {
        self.sessions.lock().unwrap().clear();
        self.chain.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn put(&self, chain: u64, session: &Session) {
        if chain == self.chain.load(Ordering::Relaxed) {
            let mut sessions = self.sessions.lock().unwrap();
            sessions.push(session.bytes().to_vec());
        }
    }
}

fn server(protocols: Protocols, tickets: bool) -> ServerContext {
    let identity = Authority::shared().ecdsa(&[NAME]).identity();
    let mut settings = ServerSettings::new(vec![identity]);
    settings.protocols = protocols;
    settings.tickets = tickets.then(TicketSettings::default);
    ServerContext::new(settings).unwrap()
}

fn client(uses_max: u32) -> ClientContext {
    let store = TrustStore::from_pem(Authority::shared().certificate_pem().as_bytes()).unwrap();
    let mut settings = ClientSettings::new(Roots::Store(store));
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

fn visit(client: &ClientContext, server: &ServerContext, shelf: &Arc<Shelf>) -> HandshakeInfo {
    let limits = HandshakeLimits::default();
    let mut handshake = Handshake::client(client, NAME, limits).unwrap();
    handshake.keep_sessions(Arc::clone(shelf) as _);
    let server = Handshake::server(server, limits);
    let (mut client, server) = drive(handshake, server, Cut::Whole).unwrap();
    assert!(client.open(&[]).is_empty());
    assert_eq!(client.info.resumed, server.info.resumed);
    server.info
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
fn a_session_that_the_server_does_not_know_costs_a_full_handshake() {
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

/// A damaged ticket is the server's to refuse; a damaged key must not get anybody in.
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
    // The binder of a wrong key does not verify (RFC 8446 §4.2.11): the server must give up.
    damaged(20);
    let limits = HandshakeLimits::default();
    let mut handshake = Handshake::client(&client, NAME, limits).unwrap();
    handshake.keep_sessions(Arc::clone(&shelf) as _);
    assert!(drive(handshake, Handshake::server(&server, limits), Cut::Whole).is_err());
}

#[test]
fn tls12_sessions_are_renewed_after_so_many_uses() {
    let server = server(Protocols::TLS12, true);
    let shelf = Arc::new(Shelf::default());
    let client = client(3);
    let resumed: Vec<bool> = (0..9)
        .map(|_| {
            let info = visit(&client, &server, &shelf);
            assert_eq!(info.protocol, Version::Tls12);
            info.resumed
        })
        .collect();
    let round = [false, true, true, true];
    let want: Vec<bool> = round.iter().copied().cycle().take(9).collect();
    assert_eq!(resumed, want);
}
