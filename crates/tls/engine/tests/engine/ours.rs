//! Our servers and clients, and their handshakes with each other.

use dormouse_engine::{
    ClientContext, ClientSettings, Handshake, HandshakeInfo, HandshakeLimits, ServerContext,
    ServerSettings,
};
use dormouse_testkit::{Authority, Cut, drive, now};

use crate::stock::NAME;

/// Returns a server with a certificate for [`NAME`]; `change` sets what the test is about.
pub(crate) fn server_with(change: impl FnOnce(&mut ServerSettings)) -> ServerContext {
    let identity = Authority::shared().ecdsa(&[NAME]).identity();
    let mut settings = ServerSettings::new(vec![identity]);
    change(&mut settings);
    ServerContext::new(settings).unwrap()
}

pub(crate) fn server() -> ServerContext {
    server_with(|_| {})
}

/// Returns a client that trusts that certificate; `change` sets what the test is about.
pub(crate) fn client_with(change: impl FnOnce(&mut ClientSettings)) -> ClientContext {
    let mut settings = ClientSettings::new(Authority::shared().roots());
    change(&mut settings);
    ClientContext::new(settings).unwrap()
}

pub(crate) fn client() -> ClientContext {
    client_with(|_| {})
}

/// Returns a server's handshake.
pub(crate) fn server_handshake(context: &ServerContext) -> Handshake {
    Handshake::server(context, HandshakeLimits::default())
}

/// Returns a client's handshake.
pub(crate) fn client_handshake(context: &ClientContext) -> Handshake {
    handshake_with(context, NAME)
}

/// Returns a client's handshake with the server of this name or address.
pub(crate) fn handshake_with(context: &ClientContext, name: &str) -> Handshake {
    Handshake::client(context, name, HandshakeLimits::default()).unwrap()
}

/// Returns a client's handshake whose output is its ClientHello.
pub(crate) fn client_with_hello(context: &ClientContext) -> Handshake {
    let mut client = client_handshake(context);
    client.handle_input(now(), &[]).unwrap();
    client
}

/// Completes a handshake with its tickets, and returns the server's info.
pub(crate) fn visit(client: &ClientContext, server: &ServerContext) -> HandshakeInfo {
    complete(client_handshake(client), server)
}

/// Completes this handshake of a client, with its tickets, and returns the server's info.
pub(crate) fn complete(client: Handshake, server: &ServerContext) -> HandshakeInfo {
    let (mut client, server) = drive(client, server_handshake(server), Cut::Whole).unwrap();
    assert!(client.open(&[]).is_empty());
    assert_eq!(client.info.resumed, server.info.resumed);
    server.info
}
