//! The situations of tokio-rustls's own tests (`tests/test.rs`, `src/common/test_stream.rs`), with this library in its
//! place and tokio-rustls as the peer. Not here: early data, which this library does not have, and badssl.com, which
//! needs the network.

use std::io::{self, Cursor, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dormouse_tokio::embed::Protocols;
use dormouse_tokio::{LazyConfigAcceptor, TlsStream};
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufWriter, DuplexStream, ReadBuf,
    copy, copy_buf, duplex, split,
};

use crate::pair::{NAME, acceptor, connector, rustls_acceptor, rustls_connector, server_name, tcp};

/// What a transport does from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Good,
    /// It is never ready.
    Stuck,
    /// It has ended, and takes nothing.
    Ended,
    /// It takes everything, and returns nothing.
    Hole,
}

#[derive(Debug)]
struct Switch {
    io: DuplexStream,
    mode: Mode,
}

impl AsyncRead for Switch {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.mode {
            Mode::Good => Pin::new(&mut self.io).poll_read(cx, buf),
            Mode::Stuck => Poll::Pending,
            Mode::Ended | Mode::Hole => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Switch {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.mode {
            Mode::Good => Pin::new(&mut self.io).poll_write(cx, bytes),
            Mode::Stuck => Poll::Pending,
            Mode::Ended => Poll::Ready(Ok(0)),
            Mode::Hole => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

type Peer = tokio_rustls::server::TlsStream<DuplexStream>;

/// A client of this library, whose transport then changes, and its server.
async fn client(mode: Mode) -> (TlsStream<Switch>, Peer) {
    let (io, server) = duplex(100_000);
    let (connector, acceptor) = (connector(&[], Protocols::ALL), rustls_acceptor(&[]));
    let io = Switch {
        io,
        mode: Mode::Good,
    };
    let both = tokio::try_join!(connector.connect(NAME, io), acceptor.accept(server));
    let (mut client, server) = both.unwrap();
    client.get_mut().0.mode = mode;
    (client, server)
}

#[tokio::test]
async fn stream_good() {
    let file = vec![7; 60_000];
    for (is_vectored, is_buffered) in [(false, false), (true, false), (false, true)] {
        let (mut client, mut server) = client(Mode::Good).await;
        server.write_all(&file).await.unwrap();
        server.shutdown().await.unwrap();
        let mut received = Vec::new();
        match is_buffered {
            true => drop(copy_buf(&mut client, &mut received).await.unwrap()),
            false => drop(client.read_to_end(&mut received).await.unwrap()),
        }
        assert_eq!(received, file);
        match is_vectored {
            true => {
                let parts = [io::IoSlice::new(b"Hello "), io::IoSlice::new(b"World!")];
                assert_eq!(client.write_vectored(&parts).await.unwrap(), 12);
            }
            false => client.write_all(b"Hello World!").await.unwrap(),
        }
        client.shutdown().await.unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "Hello World!");
    }
}

/// A transport that is stuck: writes are taken until the limit.
#[tokio::test]
async fn stream_bad() {
    let (mut client, _server) = client(Mode::Stuck).await;
    assert_eq!(client.write(&[0x42; 8]).await.unwrap(), 8);
    assert_eq!(client.write(&[0x42; 8]).await.unwrap(), 8);
    let large = vec![0; 100_000];
    assert!(client.write(&large).await.unwrap() < large.len());
    std::future::poll_fn(|cx| {
        assert!(Pin::new(&mut client).poll_write(cx, &[1]).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn stream_eof() {
    let (mut client, _server) = client(Mode::Hole).await;
    let error = client.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn stream_write_zero() {
    let (mut client, _server) = client(Mode::Ended).await;
    client.write_all(b"1").await.unwrap();
    let error = client.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WriteZero);
}

#[tokio::test]
async fn stream_handshake_fails() {
    for (mode, expected) in [
        (Mode::Hole, ErrorKind::UnexpectedEof),
        (Mode::Ended, ErrorKind::WriteZero),
    ] {
        let (io, _peer) = duplex(1_000);
        let connecting = connector(&[], Protocols::ALL).connect(NAME, Switch { io, mode });
        assert_eq!(connecting.await.unwrap_err().kind(), expected);
    }
}

/// A server whose first bytes are a fatal close_notify.
#[tokio::test]
async fn stream_handshake_of_an_alert() {
    let (io, mut peer) = duplex(10_000);
    peer.write_all(b"\x15\x03\x01\x00\x02\x02\x00")
        .await
        .unwrap();
    let connecting = connector(&[], Protocols::ALL).connect(NAME, io);
    assert_eq!(connecting.await.unwrap_err().kind(), ErrorKind::InvalidData);
}

#[tokio::test]
async fn stream_buffered_handshake() {
    let (client, server) = duplex(10_000);
    let (connector, acceptor) = (connector(&[], Protocols::ALL), rustls_acceptor(&[]));
    let both = tokio::try_join!(
        connector.connect(NAME, BufWriter::new(client)),
        acceptor.accept(BufWriter::new(server))
    );
    both.unwrap();
}

/// A server over TCP that echoes through the two halves of its stream.
#[tokio::test]
async fn pass_and_fail() {
    let file = vec![3; 200_000];
    for name in [NAME, "other.test"] {
        let (client, server) = tcp().await.unwrap();
        let acceptor = acceptor(&[], Protocols::ALL);
        let echo = tokio::spawn(async move {
            let (mut reader, mut writer) = split(acceptor.accept(server).await?);
            copy(&mut reader, &mut writer).await?;
            writer.shutdown().await
        });
        let domain = name.try_into().unwrap();
        let connected = rustls_connector(&[]).connect(domain, client).await;
        if name != NAME {
            assert!(connected.is_err() && echo.await.unwrap().is_err());
            continue;
        }
        let (mut reader, mut writer) = split(connected.unwrap());
        let mut received = vec![0; file.len()];
        let (written, read) = tokio::join!(
            async {
                writer.write_all(&file).await?;
                writer.flush().await
            },
            reader.read_exact(&mut received)
        );
        assert!(written.is_ok() && read.is_ok());
        assert_eq!(received, file);
        writer.shutdown().await.unwrap();
        echo.await.unwrap().unwrap();
        assert_eq!(reader.read(&mut received).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn lazy_config_acceptor() {
    let (client, server) = duplex(1_200);
    tokio::spawn(async move {
        let connected = rustls_connector(&[]).connect(server_name(), client).await;
        let mut client = connected.unwrap();
        client.write_all(b"hello, world!").await.unwrap();
        client.flush().await.unwrap();
        client.read_to_end(&mut Vec::new()).await.unwrap();
    });
    let start = LazyConfigAcceptor::new(server).await.unwrap();
    assert_eq!(start.client_hello().server_name.as_deref(), Some(NAME));
    assert!(start.client_hello().alpn.is_empty());
    let context = acceptor(&[], Protocols::ALL).context().clone();
    let mut stream = start.into_stream(&context).await.unwrap();
    let mut received = [0; 13];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hello, world!");
    stream.write_all(b"bye").await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn lazy_config_acceptor_eof() {
    let io = Cursor::new(Vec::new());
    let error = LazyConfigAcceptor::new(io).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

/// What is not TLS: the program takes the transport, and can still answer. tokio-rustls refuses here; this library when
/// a context was chosen, which sends the alert.
#[tokio::test]
async fn lazy_config_acceptor_take_io() {
    let (mut client, server) = duplex(1_200);
    client.write_all(b"hello, world!").await.unwrap();
    let start = LazyConfigAcceptor::new(server).await.unwrap();
    assert_eq!(start.client_hello().server_name, None);
    start.into_io().write_all(b"message").await.unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"message");
}

/// A client whose bytes pass two at a time, as those of the server do, with `sent` as its first bytes. Returns what it
/// gets until the end of the connection.
async fn sip(mut client: DuplexStream, sent: &'static [u8]) -> Vec<u8> {
    let _ = client.write_all(sent).await;
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    received
}

/// A whole alert passes, however little the transport takes at once.
#[tokio::test]
async fn acceptor_alert() {
    // An SSL 3.0 ClientHello with one cipher suite.
    const HELLO: [u8; 50] = {
        let mut hello = [7; 50];
        let (head, tail) = hello.split_at_mut(11);
        head.copy_from_slice(&[0x16, 3, 0, 0, 45, 1, 0, 0, 41, 3, 0]);
        let (_random, rest) = tail.split_at_mut(32);
        rest.copy_from_slice(&[0, 0, 2, 0, 0x2f, 1, 0]);
        hello
    };
    let (client, server) = duplex(2);
    let client = tokio::spawn(sip(client, &HELLO));
    let start = LazyConfigAcceptor::new(server).await.unwrap();
    let context = acceptor(&[], Protocols::ALL).context().clone();
    let error = start.into_stream(&context).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("protocol_version"), "{error}");
    let received = client.await.unwrap();
    assert_eq!(received, [0x15, 3, 3, 0, 2, 2, 70], "{error}");
}

/// A peer that does not speak TLS gets no alert, which it could not read: OpenSSL sends none either, tokio-rustls does.
#[tokio::test]
async fn lazy_config_acceptor_alert() {
    let (client, server) = duplex(2);
    let client = tokio::spawn(sip(client, b"not TLS"));
    let start = LazyConfigAcceptor::new(server).await.unwrap();
    let context = acceptor(&[], Protocols::ALL).context().clone();
    let error = start.into_stream(&context).await.unwrap_err();
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
    assert_eq!(client.await.unwrap(), []);
}

/// A transport that passes bytes on at a flush only, and has not done it when it is asked first.
struct AtFlush<IO> {
    io: IO,
    written: Vec<u8>,
    was_asked: bool,
}

impl<IO> AtFlush<IO> {
    fn new(io: IO) -> AtFlush<IO> {
        AtFlush {
            io,
            written: Vec::new(),
            was_asked: false,
        }
    }
}

impl<IO: AsyncWrite + Unpin> AtFlush<IO> {
    fn pass_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.written.is_empty() {
            if !std::mem::replace(&mut self.was_asked, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let sent = ready!(Pin::new(&mut self.io).poll_write(cx, &self.written))?;
            self.written.drain(..sent);
        }
        self.was_asked = false;
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for AtFlush<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for AtFlush<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.pass_on(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.pass_on(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn handshake_flush_pending() {
    for protocols in [Protocols::TLS12, Protocols::TLS13, Protocols::ALL] {
        let (client, server) = duplex(10_000);
        let server = acceptor(&[], protocols).accept(AtFlush::new(server));
        let client = connector(&[], Protocols::ALL).connect(NAME, AtFlush::new(client));
        let (mut client, mut server) = tokio::try_join!(client, server).unwrap();
        pass(&mut client, &mut server).await;
        pass(&mut server, &mut client).await;
        let mut rest = [0; 1];
        let (ended, rest) = tokio::join!(client.shutdown(), server.read(&mut rest));
        assert!(matches!((ended, rest), (Ok(()), Ok(0))));
    }
}

async fn pass<IO: AsyncRead + AsyncWrite + Unpin>(
    from: &mut TlsStream<IO>,
    to: &mut TlsStream<IO>,
) {
    let mut received = [0; 5];
    let send = async {
        from.write_all(b"hello").await?;
        from.flush().await
    };
    tokio::try_join!(send, to.read_exact(&mut received)).unwrap();
    assert_eq!(&received, b"hello");
}
