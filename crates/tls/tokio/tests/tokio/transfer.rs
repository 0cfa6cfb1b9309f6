//! Bytes in both directions, whatever the transport takes at once.

use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::task::Poll;

use dormouse_tokio::FLIGHT_MAX;
use dormouse_tokio::embed::Protocols;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, duplex,
    split,
};

use crate::pair::{over, pair, pattern};

/// Between two messages both sides own nothing.
#[tokio::test]
async fn connections_go_to_rest() {
    for protocols in [Protocols::TLS12, Protocols::TLS13] {
        let (client, server) = duplex(65_536);
        let (mut client, mut server) = over(client, server, protocols).await.unwrap();
        for len in [1, 100, 16_384, 40_000] {
            let sent = pattern(len);
            let mut received = vec![0; len];
            client.write_all(&sent).await.unwrap();
            server.read_exact(&mut received).await.unwrap();
            assert!(received == sent && server.is_at_rest());
            server.write_all(&sent).await.unwrap();
            client.read_exact(&mut received).await.unwrap();
            assert!(received == sent && client.is_at_rest() && server.is_at_rest());
        }
    }
}

/// Both directions at once, through a pipe shorter than a record's header.
#[tokio::test]
async fn each_half_is_woken() {
    let (client, server) = duplex(3);
    let (client, server) = over(client, server, Protocols::ALL).await.unwrap();
    let sent = pattern(30_000);
    let each = [client, server].map(|stream| {
        let (mut reader, mut writer) = split(stream);
        let sent = sent.clone();
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let reading = tokio::spawn(async move {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).await.unwrap();
            received
        });
        (writing, reading)
    });
    for (writing, reading) in each {
        writing.await.unwrap();
        assert_eq!(reading.await.unwrap(), sent);
    }
}

/// A program that writes and then only reads need not flush.
#[tokio::test]
async fn reading_sends_what_a_write_has_left() {
    let (mut client, mut server) = pair(1_000).await;
    tokio::spawn(async move {
        let mut received = vec![0; 40_000];
        server.read_exact(&mut received).await.unwrap();
        server.write_all(&received).await.unwrap();
        server.flush().await.unwrap();
    });
    let sent = pattern(40_000);
    assert_eq!(client.write(&sent).await.unwrap(), sent.len());
    let mut received = vec![0; sent.len()];
    client.read_exact(&mut received).await.unwrap();
    assert_eq!(received, sent);
}

#[tokio::test]
async fn a_peer_that_does_not_read_stops_the_writer() {
    let (mut client, mut server) = pair(100).await;
    let piece = pattern(1_000);
    let mut sent = Vec::new();
    poll_fn(|cx| {
        while let Poll::Ready(count) = Pin::new(&mut client).poll_write(cx, &piece) {
            sent.extend_from_slice(&piece[..count.unwrap()]);
            assert!(sent.len() <= 2 * FLIGHT_MAX);
        }
        Poll::Ready(())
    })
    .await;
    assert!(sent.len() > FLIGHT_MAX / 2);
    let reading = async {
        let mut received = vec![0; sent.len()];
        server.read_exact(&mut received).await.unwrap();
        received
    };
    let (flushed, received) = tokio::join!(client.flush(), reading);
    flushed.unwrap();
    assert_eq!(received, sent);
}

/// Reads and writes that are dropped lose nothing.
#[tokio::test]
async fn cancelled_calls_lose_no_byte() {
    let (mut client, server) = pair(50).await;
    let sent = pattern(20_000);
    let expected = sent.clone();
    let (mut reader, mut writer) = split(server);
    let echo = tokio::spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
    let (mut written, mut received) = (0, Vec::new());
    let mut room = [0; 777];
    while received.len() < sent.len() {
        tokio::select! {
            count = client.write(&sent[written..(written + 500).min(sent.len())]),
                if written < sent.len() => written += count.unwrap(),
            () = tokio::task::yield_now() => {}
        }
        tokio::select! {
            count = client.read(&mut room) => received.extend_from_slice(&room[..count.unwrap()]),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(received, expected);
    drop(client);
    assert!(echo.await.unwrap().is_err());
}

#[tokio::test]
async fn parts_are_written_together() {
    let (mut client, mut server) = pair(65_536).await;
    assert!(client.is_write_vectored());
    let parts = [
        IoSlice::new(b""),
        IoSlice::new(b"one "),
        IoSlice::new(b"two"),
    ];
    assert_eq!(client.write_vectored(&parts).await.unwrap(), 7);
    let mut room = [0; 100];
    assert_eq!(server.read(&mut room).await.unwrap(), 7, "one record");
    assert_eq!(&room[..7], b"one two");
    assert_eq!(
        client.write_vectored(&[IoSlice::new(b"")]).await.unwrap(),
        0
    );
    let long = pattern(40_000);
    let parts = [IoSlice::new(&long), IoSlice::new(&long)];
    let count = client.write_vectored(&parts).await.unwrap();
    assert_eq!(count, FLIGHT_MAX, "the last part is cut");
    let mut received = vec![0; count];
    let (flushed, read) = tokio::join!(client.flush(), server.read_exact(&mut received));
    assert!(flushed.is_ok() && read.is_ok());
    assert_eq!(received, [&long[..], &long[..count - long.len()]].concat());
}

#[tokio::test]
async fn a_stream_is_its_own_reader_with_a_buffer() {
    let (mut client, mut server) = pair(4_096).await;
    client.write_all(b"one\ntwo\nrest").await.unwrap();
    client.shutdown().await.unwrap();
    let mut line = String::new();
    for expected in ["one\n", "two\n", "rest", ""] {
        line.clear();
        server.read_line(&mut line).await.unwrap();
        assert_eq!(line, expected);
    }
    assert!(server.is_at_rest());
}

/// TLS in TLS: the inner stream's transport opens and seals while the inner one does.
#[tokio::test]
async fn a_stream_is_a_transport() {
    let (client, server) = pair(300).await;
    let both = over(client, server, Protocols::ALL).await.unwrap();
    let (client, mut server) = both;
    let sent = pattern(50_000);
    let mut client = BufReader::new(client);
    let mut received = Vec::new();
    let (written, read) = tokio::join!(
        async {
            client.write_all(&sent).await?;
            client.shutdown().await
        },
        server.read_to_end(&mut received)
    );
    assert!(written.is_ok() && read.is_ok());
    assert_eq!(received, sent);
}

#[tokio::test]
async fn an_empty_read_or_write_is_nothing() {
    let (mut client, mut server) = pair(4_096).await;
    assert_eq!(client.write(b"").await.unwrap(), 0);
    assert_eq!(server.read(&mut []).await.unwrap(), 0);
    let mut room = [0; 10];
    let mut reading = pin!(server.read(&mut room));
    let polled = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
    assert!(polled.is_pending());
}
