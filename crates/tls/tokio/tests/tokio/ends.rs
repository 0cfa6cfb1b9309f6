//! How connections end.

use std::io::ErrorKind;

use dormouse_tokio::embed::{End, Protocols, ServerContext, Session, UnixTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use crate::pair::{NAME, client_settings, connector, over, pair, server_settings};

/// A server without a stream, for what a stream never sends.
struct Bare {
    session: Session,
    io: DuplexStream,
    received: Vec<u8>,
    end: Option<End>,
}

impl Bare {
    async fn send(&mut self) {
        let output = self.session.take_output();
        self.io.write_all(&output).await.unwrap();
    }

    /// Receives once, and sends the answer.
    async fn step(&mut self) {
        let mut input = [0; 20_000];
        let count = self.io.read(&mut input).await.unwrap();
        let (received, end) = (&mut self.received, &mut self.end);
        self.session
            .feed(UnixTime::now(), &mut input[..count], |event| match event {
                dormouse_tokio::embed::Event::Data(data) => received.extend_from_slice(data),
                dormouse_tokio::embed::Event::Ended(ended) => *end = Some(ended),
                _ => {}
            })
            .unwrap();
        self.send().await;
    }
}

async fn client_of_bare() -> (dormouse_tokio::TlsStream<DuplexStream>, Bare) {
    let (client, io) = duplex(65_536);
    let context = ServerContext::new(server_settings()).unwrap();
    let mut bare = Bare {
        session: Session::accept(&context),
        io,
        received: Vec::new(),
        end: None,
    };
    let connector = connector(client_settings());
    let shaking = async {
        while bare.session.is_handshaking() {
            bare.step().await;
        }
    };
    let (client, ()) = tokio::join!(connector.connect(NAME, client), shaking);
    (client.unwrap(), bare)
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let (mut client, mut server) = pair(4_096).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"question");
    assert_eq!(
        server.read(&mut [0; 10]).await.unwrap(),
        0,
        "it stays ended"
    );
    server.write_all(b"answer").await.unwrap();
    server.shutdown().await.unwrap();
    server.shutdown().await.unwrap();
    received.clear();
    client.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"answer");
    for stream in [&mut client, &mut server] {
        let error = stream.write(b"more").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert!(stream.is_at_rest());
    }
}

#[tokio::test]
async fn an_end_without_close_notify_is_an_error() {
    for protocols in [Protocols::TLS12, Protocols::TLS13] {
        let (client, server) = duplex(4_096);
        let (mut client, mut server) = over(client, server, protocols).await.unwrap();
        client.write_all(b"cut of").await.unwrap();
        drop(client);
        let mut received = Vec::new();
        let error = server.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(received, b"cut of");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        let again = server.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::UnexpectedEof);
    }
}

/// Dropping a stream sends nothing: not even what makes an end of it.
#[tokio::test]
async fn a_dropped_stream_sends_nothing() {
    let (client, mut bare) = client_of_bare().await;
    drop(client);
    let mut rest = Vec::new();
    bare.io.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_peers_alert_has_its_name() {
    let (mut client, mut bare) = client_of_bare().await;
    bare.session.send(b"last words").unwrap();
    let alert = dormouse_tokio::embed::AlertDescription::InternalError;
    bare.session.abort(alert).unwrap();
    bare.send().await;
    let mut room = [0; 100];
    assert_eq!(client.read(&mut room).await.unwrap(), 10);
    let error = client.read(&mut room).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("internal_error"), "{error}");
    let end = error.get_ref().and_then(|end| end.downcast_ref::<End>());
    assert_eq!(end, Some(&End::Alert(80)));
    assert_eq!(
        client.write(b"x").await.unwrap_err().kind(),
        ErrorKind::BrokenPipe
    );
    assert!(client.export().is_err());
}

#[tokio::test]
async fn a_forged_record_is_answered_by_an_alert() {
    let (mut client, mut bare) = client_of_bare().await;
    let mut forged = [7; 40];
    forged[..5].copy_from_slice(&[23, 3, 3, 0, 35]);
    bare.io.write_all(&forged).await.unwrap();
    let error = client.read(&mut [0; 10]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    bare.step().await;
    assert_eq!(bare.end, Some(End::Alert(20)), "bad_record_mac");
}

/// Secrets are replaced while their keys are kept.
#[tokio::test]
async fn keys_are_replaced() {
    let (mut client, mut bare) = client_of_bare().await;
    let mut room = [0; 10];
    for round in 0..5 {
        client.write_all(&[round]).await.unwrap();
        bare.step().await;
        bare.session.update_keys().unwrap();
        bare.session.send(&[round]).unwrap();
        bare.send().await;
        assert_eq!(client.read(&mut room).await.unwrap(), 1);
        assert_eq!(room[0], round);
        client.flush().await.unwrap();
    }
    assert_eq!(bare.received, [0, 1, 2, 3, 4]);
    assert!(client.is_at_rest());
}

/// A transport that fails in the middle of a record must not get the next one.
#[tokio::test]
async fn a_transport_that_fails_gets_nothing_more() {
    let (mut client, server) = pair(100).await;
    assert_eq!(client.write(&[1; 1_000]).await.unwrap(), 1_000);
    drop(server);
    for expected in [ErrorKind::BrokenPipe; 2] {
        assert_eq!(client.write(b"more").await.unwrap_err().kind(), expected);
    }
    assert!(client.export().is_err());
}

/// A program may stop waiting for a shutdown and ask again: the end is sent once, behind all that was written.
#[tokio::test]
async fn a_shutdown_that_was_cancelled_is_continued() {
    let (mut client, mut server) = pair(100).await;
    let sent = [7; 20_000];
    assert_eq!(client.write(&sent).await.unwrap(), sent.len());
    for _ in 0..3 {
        tokio::select! {
            biased;
            _ = client.shutdown() => panic!("the transport has no room"),
            () = tokio::task::yield_now() => {}
        }
        let error = client.write(b"more").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
    let mut received = Vec::new();
    let (ended, read) = tokio::join!(client.shutdown(), server.read_to_end(&mut received));
    ended.unwrap();
    read.unwrap();
    assert!(received == sent);
    client.flush().await.unwrap();
}
