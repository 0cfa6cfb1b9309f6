//! Streams that continue elsewhere.

use std::io::ErrorKind;

use dormouse_tokio::TlsStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::pair::{pair, pattern};

/// Moves a stream, as between two processes.
fn moved(mut stream: TlsStream<DuplexStream>) -> (TlsStream<DuplexStream>, usize) {
    let bytes = stream.export().unwrap();
    assert!(stream.export().is_err(), "only once");
    let before = format!("{:?}", stream.get_ref().1);
    let stream = TlsStream::import(stream.into_inner().0, &bytes).unwrap();
    assert_eq!(format!("{:?}", stream.get_ref().1), before);
    (stream, bytes.len())
}

#[tokio::test]
async fn a_stream_continues_where_it_was() {
    let (client, server) = pair(65_536).await;
    let (mut client, _) = moved(client);
    let (mut server, len) = moved(server);
    assert!(len < 180, "{len}");
    assert!(server.is_at_rest());
    client.write_all(b"hello").await.unwrap();
    let mut received = [0; 5];
    server.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hello");
}

/// Bytes that were not read, the start of a record, and bytes that were not sent.
#[tokio::test]
async fn what_is_under_way_moves_too() {
    let (mut client, mut server) = pair(20_000).await;
    let sent = pattern(60_000);
    assert_eq!(client.write(&sent).await.unwrap(), sent.len());
    let mut received = vec![0; 10];
    server.read_exact(&mut received).await.unwrap();
    let ((mut client, _), (mut server, len)) = (moved(client), moved(server));
    assert!(len > 16_000);
    let mut rest = vec![0; sent.len() - received.len()];
    let (flushed, read) = tokio::join!(client.flush(), server.read_exact(&mut rest));
    assert!(flushed.is_ok() && read.is_ok());
    received.extend(rest);
    assert_eq!(received, sent);
}

#[tokio::test]
async fn what_was_closed_stays_closed() {
    let (mut client, mut server) = pair(4_096).await;
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0);
    let ((mut client, _), (mut server, _)) = (moved(client), moved(server));
    assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0);
    assert_eq!(
        client.write(b"x").await.unwrap_err().kind(),
        ErrorKind::BrokenPipe
    );
    server.write_all(b"bye").await.unwrap();
    let mut received = [0; 3];
    client.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"bye");
}

#[tokio::test]
async fn other_bytes_are_refused() {
    let (_client, mut server) = pair(4_096).await;
    let bytes = server.export().unwrap();
    let import = |bytes: &[u8]| TlsStream::import((), bytes).err().map(|error| error.kind());
    for len in 0..bytes.len() {
        assert_eq!(import(&bytes[..len]), Some(ErrorKind::InvalidData), "{len}");
    }
    let mut other = bytes.to_vec();
    other[0] = 2;
    assert_eq!(import(&other), Some(ErrorKind::InvalidData));
    other[0] = 1;
    other.push(0);
    assert_eq!(import(&other), Some(ErrorKind::InvalidData));
}
