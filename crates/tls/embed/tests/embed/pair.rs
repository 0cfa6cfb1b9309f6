//! Two sessions and the wire between them.

use dormouse_embed::{
    ClientContext, ClientSettings, End, Event, HandshakeInfo, Protocols, ServerContext,
    ServerSettings, Session,
};
use dormouse_testkit::{Authority, now};

pub(crate) const NAME: &str = "dormouse.test";

/// The events that a session reported.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) plaintext: Vec<u8>,
    pub(crate) info: Option<Box<HandshakeInfo>>,
    pub(crate) end: Option<End>,
}

impl Outcome {
    pub(crate) fn note(&mut self, event: Event<'_>) {
        match event {
            Event::ClientHello(hello) => panic!("unexpected ClientHello: {hello:?}"),
            Event::Established(info) => self.info = Some(info),
            Event::Data(plaintext) => self.plaintext.extend_from_slice(plaintext),
            Event::Ended(end) => self.end = Some(end),
        }
    }
}

pub(crate) fn server_settings() -> ServerSettings {
    ServerSettings::new(vec![Authority::shared().ecdsa(&[NAME]).identity()])
}

pub(crate) fn client_settings() -> ClientSettings {
    ClientSettings::new(Authority::shared().roots())
}

pub(crate) fn server(settings: ServerSettings) -> ServerContext {
    ServerContext::new(settings).unwrap()
}

pub(crate) fn client(settings: ClientSettings) -> ClientContext {
    ClientContext::new(settings).unwrap()
}

/// Contexts for one version, without tickets, so that nothing follows the handshake.
pub(crate) fn contexts(protocols: Protocols) -> (ClientContext, ServerContext) {
    let (mut for_client, mut for_server) = (client_settings(), server_settings());
    (for_client.protocols, for_server.protocols) = (protocols, protocols);
    (for_client.resumption, for_server.tickets) = (None, None);
    (client(for_client), server(for_server))
}

/// Feeds `bytes` in pieces of length `piece`.
pub(crate) fn feed(session: &mut Session, bytes: &[u8], piece: usize) -> Outcome {
    let mut outcome = Outcome::default();
    for piece in bytes.to_vec().chunks_mut(piece) {
        session
            .feed(now(), piece, |event| outcome.note(event))
            .unwrap();
    }
    outcome
}

/// Passes all output of `from` to `to`.
pub(crate) fn pass(from: &mut Session, to: &mut Session, piece: usize) -> Outcome {
    let wire = from.take_output();
    feed(to, &wire, piece)
}

/// Runs the handshake to its end or failure. Returns the events of client and server.
pub(crate) fn run_handshake(
    client: &mut Session,
    server: &mut Session,
    piece: usize,
) -> (Outcome, Outcome) {
    let (mut by_client, mut by_server) = (Outcome::default(), Outcome::default());
    client
        .feed(now(), &mut [], |event| by_client.note(event))
        .unwrap();
    for _ in 0..4 {
        merge(&mut by_server, pass(client, server, piece));
        merge(&mut by_client, pass(server, client, piece));
    }
    (by_client, by_server)
}

fn merge(all: &mut Outcome, more: Outcome) {
    all.plaintext.extend(more.plaintext);
    all.info = all.info.take().or(more.info);
    all.end = all.end.take().or(more.end);
}

/// Returns two sessions at rest.
pub(crate) fn established(protocols: Protocols) -> (Session, Session) {
    let (client, server) = contexts(protocols);
    let mut client = Session::connect(&client, NAME).unwrap();
    let mut server = Session::accept(&server);
    let (by_client, by_server) = run_handshake(&mut client, &mut server, usize::MAX);
    assert!(by_client.info.is_some() && by_server.info.is_some());
    assert!(client.is_at_rest() && server.is_at_rest());
    (client, server)
}

pub(crate) const VERSIONS: [Protocols; 2] = [Protocols::TLS12, Protocols::TLS13];
