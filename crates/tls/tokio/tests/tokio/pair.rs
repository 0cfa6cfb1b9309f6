//! A client and a server that are connected in memory.

use std::io;

use dormouse_testkit::Authority;
use dormouse_tokio::embed::{
    ClientContext, ClientSettings, Identity, Protocols, ServerContext, ServerSettings,
};
use dormouse_tokio::{TlsAcceptor, TlsConnector, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

pub(crate) const NAME: &str = "one.test";

pub(crate) fn identity() -> Identity {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let (certificate, key) = (leaf.certificate_pem.as_bytes(), leaf.key_pem.as_bytes());
    Identity::from_pem(certificate, key, "certificate", "key").expect("an identity")
}

pub(crate) fn server_settings() -> ServerSettings {
    ServerSettings {
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        ..ServerSettings::new(vec![identity()])
    }
}

pub(crate) fn client_settings() -> ClientSettings {
    ClientSettings {
        alpn: vec![b"h2".to_vec()],
        ..ClientSettings::new(Authority::shared().roots())
    }
}

pub(crate) fn acceptor(settings: ServerSettings) -> TlsAcceptor {
    TlsAcceptor::from(ServerContext::new(settings).expect("a context"))
}

pub(crate) fn connector(settings: ClientSettings) -> TlsConnector {
    TlsConnector::from(ClientContext::new(settings).expect("a context"))
}

/// A client and a server, over a pipe that holds `room` bytes.
pub(crate) async fn pair(room: usize) -> (TlsStream<DuplexStream>, TlsStream<DuplexStream>) {
    let (client, server) = tokio::io::duplex(room);
    over(client, server, Protocols::ALL).await.expect("a pair")
}

pub(crate) async fn over<IO: AsyncRead + AsyncWrite + Unpin>(
    client: IO,
    server: IO,
    protocols: Protocols,
) -> io::Result<(TlsStream<IO>, TlsStream<IO>)> {
    let settings = ServerSettings {
        protocols,
        ..server_settings()
    };
    let (connector, acceptor) = (connector(client_settings()), acceptor(settings));
    tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server))
}

/// Bytes in which every position shows.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}
