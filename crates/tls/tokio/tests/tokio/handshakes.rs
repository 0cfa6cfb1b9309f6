//! Handshakes: what they agree on, how they fail, and contexts that the ClientHello chooses.

use std::io::ErrorKind;
use std::sync::Arc;

use dormouse_testkit::Authority;
use dormouse_tokio::LazyConfigAcceptor;
use dormouse_tokio::embed::{AlertDescription, ClientCertificates, ServerContext, Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter, duplex};

use crate::pair::{
    NAME, acceptor, client_settings, connector, identity, over, pair, server_settings,
};

#[tokio::test]
async fn both_sides_say_what_was_negotiated() {
    let (client, server) = pair(64).await;
    for negotiated in [client.get_ref().1, server.get_ref().1] {
        assert_eq!(negotiated.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(negotiated.server_name(), Some(NAME));
        assert_eq!(negotiated.protocol_version(), Version::Tls13);
        assert!(negotiated.cipher_suite().starts_with("TLS_AES_"));
        assert!(!negotiated.is_resumed() && negotiated.exporter().is_none());
    }
    assert_eq!(client.get_ref().1.peer_certificates().len(), 1);
    assert!(server.get_ref().1.peer_certificates().is_empty());
}

#[tokio::test]
async fn connections_share_what_they_have_in_common() {
    let ((_one, one), (_other, other)) = (pair(4_096).await, pair(4_096).await);
    assert!(Arc::ptr_eq(&one.into_inner().1, &other.into_inner().1));
}

#[tokio::test]
async fn a_client_certificate_is_known_to_the_server() {
    let authority = Authority::shared().certificate_pem().into_bytes();
    let mut settings = server_settings();
    settings.client_certificates = Some(ClientCertificates {
        required: true,
        roots: authority,
        ..ClientCertificates::default()
    });
    let acceptor = acceptor(settings);
    let mut settings = client_settings();
    settings.identity = Some(identity());
    let connector = connector(settings);
    let (client, server) = duplex(4_096);
    let both = tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server));
    let (_client, server) = both.unwrap();
    assert_eq!(server.get_ref().1.peer_certificates().len(), 1);
}

#[tokio::test]
async fn a_client_that_refuses_the_server_says_why() {
    let (client, server) = duplex(4_096);
    let (connector, acceptor) = (connector(client_settings()), acceptor(server_settings()));
    let handshakes = (
        connector.connect("other.test", client).into_fallible(),
        acceptor.accept(server).into_fallible(),
    );
    let (client, server) = tokio::join!(handshakes.0, handshakes.1);
    let (client_error, _io) = client.unwrap_err();
    let (server_error, mut io) = server.unwrap_err();
    assert_eq!(client_error.kind(), ErrorKind::InvalidData);
    assert!(client_error.to_string().contains(NAME), "{client_error}");
    assert_eq!(server_error.kind(), ErrorKind::InvalidData);
    let named = server_error.to_string().contains("bad_certificate");
    assert!(named, "{server_error}");
    // The transport is still there.
    io.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_server_name_that_is_none_fails() {
    let (io, _peer) = duplex(64);
    let connecting = connector(client_settings()).connect("no name", io);
    assert_eq!(
        connecting.await.unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[tokio::test]
async fn what_is_not_tls_fails() {
    let (io, mut peer) = duplex(4_096);
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let error = acceptor(server_settings()).accept(io).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("HTTP"), "{error}");
}

#[tokio::test]
async fn an_end_during_the_handshake_is_an_unexpected_one() {
    let (io, peer) = duplex(4_096);
    drop(peer);
    let error = acceptor(server_settings()).accept(io).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let (io, peer) = duplex(4_096);
    drop(peer);
    let error = LazyConfigAcceptor::new(io).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

/// A transport that buffers passes bytes on only when it is flushed.
#[tokio::test]
async fn transports_that_buffer_are_flushed() {
    let (client, server) = duplex(4_096);
    let both = over(
        BufWriter::new(client),
        BufWriter::new(server),
        dormouse_tokio::embed::Protocols::ALL,
    );
    let (mut client, mut server) = both.await.unwrap();
    client.write_all(b"hello").await.unwrap();
    client.flush().await.unwrap();
    let mut received = [0; 5];
    server.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hello");
}

#[tokio::test]
async fn the_client_hello_chooses_the_context() {
    let (client, server) = duplex(600);
    let connector = connector(client_settings());
    let accepting = async {
        let start = LazyConfigAcceptor::new(server).await?;
        assert_eq!(start.client_hello().server_name.as_deref(), Some(NAME));
        assert_eq!(start.client_hello().alpn, [b"h2".to_vec()]);
        let context = ServerContext::new(server_settings()).expect("a context");
        start.into_stream(&context).await
    };
    let (mut client, mut server) =
        tokio::try_join!(connector.connect(NAME, client), accepting).unwrap();
    client.write_all(b"hello").await.unwrap();
    let mut received = [0; 5];
    server.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hello");
}

#[tokio::test]
async fn a_client_is_refused_by_its_client_hello() {
    let (client, server) = duplex(4_096);
    let connector = connector(client_settings());
    let accepting = async {
        let start = LazyConfigAcceptor::new(server).await?;
        start.refuse(AlertDescription::UnrecognizedName).await
    };
    let (client, server) = tokio::join!(connector.connect(NAME, client), accepting);
    let error = client.unwrap_err().to_string();
    assert!(error.contains("unrecognized_name"), "{error}");
    assert_eq!(server.unwrap_err().kind(), ErrorKind::InvalidData);
}

#[tokio::test]
async fn a_second_connection_resumes_the_session() {
    let (connector, acceptor) = (connector(client_settings()), acceptor(server_settings()));
    for is_resumed in [false, true] {
        let (client, server) = duplex(4_096);
        let both = tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server));
        let (mut client, mut server) = both.unwrap();
        assert_eq!(client.get_ref().1.is_resumed(), is_resumed);
        assert_eq!(server.get_ref().1.is_resumed(), is_resumed);
        server.write_all(b"x").await.unwrap();
        client.read_u8().await.unwrap();
    }
}
