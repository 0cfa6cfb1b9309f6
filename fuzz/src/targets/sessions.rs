//! Sessions and ticket keys, as stored in tickets, caches and files.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::stream::{Connection, Event};
use dormouse_engine::{
    ClientContext, ClientSettings, HandshakeLimits, Identity, ResumptionSettings, Reuse, Roots,
    ServerContext, ServerSettings, Session, SessionStore, TicketKeys, UnixTime, fuzzed,
};
use dormouse_record::State;

/// A server session, as a decrypted ticket or a cache entry holds it.
pub(crate) fn of_server(data: &[u8]) {
    if fuzzed::is_server_session(data) {
        // The encoding has a fixed end: a byte less or more is invalid.
        assert!(!fuzzed::is_server_session(&data[..data.len() - 1]));
        assert!(!fuzzed::is_server_session(&[data, &[0]].concat()));
    }
}

/// A client session. Another process may have stored it, so a connection that offers it must only fail to resume.
pub(crate) fn of_client(data: &[u8]) {
    let Some(session) = Session::from_bytes(data) else {
        return;
    };
    assert_eq!(session.bytes(), data);
    let _ = (session.expires_at_s(), session.is_for_one_use());
    assert!(Session::from_bytes(&data[..data.len() - 1]).is_none());
    offer(session);
}

thread_local! {
    static CONTEXTS: OnceCell<(ServerContext, ClientContext)> = const { OnceCell::new() };
}

fn contexts() -> (ServerContext, ClientContext) {
    let identity = Identity::self_signed("a.test").expect("a certificate");
    let server = ServerContext::new(ServerSettings::new(vec![identity]));
    let mut settings = ClientSettings::new(Roots::Insecure);
    settings.resumption = Some(ResumptionSettings {
        by_caller: Some(Reuse {
            uses_max: 100,
            age_max_s: 3_600,
        }),
        ..ResumptionSettings::default()
    });
    let client = ClientContext::new(settings);
    (server.expect("a server"), client.expect("a client"))
}

/// A store with this one session.
#[derive(Debug)]
struct Shelf(Session);

impl SessionStore for Shelf {
    fn take(&self, _: UnixTime) -> Option<(u64, Session)> {
        Some((1, self.0.clone()))
    }

    fn begin(&self, _: UnixTime) -> u64 {
        2
    }

    fn put(&self, _: u64, _: &Session) -> bool {
        true
    }
}

/// Offers the session to a server that does not know it: a full handshake follows.
fn offer(session: Session) {
    let [mut client, mut server] = CONTEXTS.with(|both| {
        let (server, client) = both.get_or_init(contexts);
        let limits = HandshakeLimits::default();
        let client = Connection::client(client, "a.test", limits).expect("a name");
        [client, Connection::server(server, limits)]
    });
    client.keep_sessions(Arc::new(Shelf(session)));
    let (mut of_client, mut of_server) = (State::empty(), State::empty());
    receive(&mut client, &mut of_client, &[]);
    for _ in 0..3 {
        let hello = take_output(&mut client);
        receive(&mut server, &mut of_server, &hello);
        let flight = take_output(&mut server);
        let resumed = receive(&mut client, &mut of_client, &flight);
        assert_ne!(
            resumed,
            Some(true),
            "a server without the session's key has resumed it"
        );
    }
}

fn take_output(connection: &mut Connection) -> Vec<u8> {
    let output = connection.output().to_vec();
    connection.output_sent(output.len());
    output
}

/// Handles bytes. Returns whether the handshake resumed a session, once it is done.
fn receive(connection: &mut Connection, state: &mut State, bytes: &[u8]) -> Option<bool> {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let mut bytes = bytes.to_vec();
    let (mut input, mut resumed) = (&mut bytes[..], None);
    loop {
        match connection.handle(state, now, &mut input) {
            Event::Established(info) => resumed = Some(info.resumed),
            Event::InputUsed | Event::Ended(_) => return resumed,
            Event::Data(_) | Event::Ticket(_) => {}
        }
    }
}

/// Ticket keys from main or a store, sealed or not, and ticket key files of other programs.
pub(crate) fn ticket_keys(data: &[u8]) {
    if let Ok(keys) = TicketKeys::import(data) {
        let exported = keys.export();
        let again = TicketKeys::import(&exported).expect("exported keys");
        assert_eq!(again.export(), exported);
        let _ = (keys.rotates_at_s(), keys.period_s(), keys.since_s());
    }
    assert!(TicketKeys::unseal(data, b"a secret of some length, of the fleet").is_err());
    match TicketKeys::from_file(data, b"") {
        Ok(keys) => assert!(!keys.export().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
