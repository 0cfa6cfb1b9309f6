//! A peer that asks for new keys, with tokio-rustls: this library's own streams never ask.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::Poll;

use dormouse_tokio::embed::Protocols;
use dormouse_tokio::{FLIGHT_MAX, TlsStream};
use tokio::io::{
    AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};

use crate::pair::{NAME, connector, rustls_acceptor};

type Peer = tokio_rustls::server::TlsStream<DuplexStream>;

async fn client() -> (TlsStream<DuplexStream>, Peer) {
    let (client, server) = duplex(1_000);
    let (connector, acceptor) = (connector(&[], Protocols::TLS13), rustls_acceptor(&[]));
    let both = tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server));
    both.unwrap()
}

async fn ask(server: &mut Peer) {
    server.get_mut().1.refresh_traffic_keys().unwrap();
    server.write_all(b"x").await.unwrap();
    server.flush().await.unwrap();
}

/// Reads once, if there is something.
async fn read_now(client: &mut TlsStream<DuplexStream>) -> usize {
    poll_fn(|cx| {
        let mut room = [0; 100];
        let mut read = ReadBuf::new(&mut room);
        match Pin::new(&mut *client).poll_read(cx, &mut read) {
            Poll::Ready(result) => {
                result.unwrap();
                Poll::Ready(read.filled().len())
            }
            Poll::Pending => Poll::Ready(0),
        }
    })
    .await
}

#[tokio::test]
async fn a_request_is_answered_by_a_read() {
    let (mut client, mut server) = client().await;
    for _ in 0..10 {
        ask(&mut server).await;
        client.read_u8().await.unwrap();
        assert!(client.is_at_rest());
        client.write_all(b"y").await.unwrap();
        server.read_u8().await.unwrap();
    }
}

/// Answers that the peer does not read must not pile up.
#[tokio::test]
async fn a_peer_that_asks_and_does_not_read_stops_the_reader() {
    let (mut client, mut server) = client().await;
    let mut count = 0;
    loop {
        ask(&mut server).await;
        match read_now(&mut client).await {
            0 => break,
            read => count += read,
        }
        assert!(count < FLIGHT_MAX, "it reads on");
    }
    // The transport's end wakes it.
    let mut rest = Vec::new();
    let (read, ()) = tokio::join!(client.read_to_end(&mut rest), async { drop(server) });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}
