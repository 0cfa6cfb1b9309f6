//! An echo server for `compare`: echo-server TLS CERTIFICATE KEY. It prints its port.
//!
//! TLS: plain, own (tokio-rustls), dormouse. A connection has no buffer of its own: its thread reads for all of them.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use dormouse_tokio::embed::{Identity, ServerContext, ServerSettings};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

type Failure = Box<dyn Error + Send + Sync>;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 65_536]);
}

#[derive(Clone)]
enum Kind {
    Plain,
    Own(tokio_rustls::TlsAcceptor),
    Dormouse(dormouse_tokio::TlsAcceptor),
}

fn kind(name: &str, certificate: &str, key: &str) -> Result<Kind, Failure> {
    match name {
        "plain" => Ok(Kind::Plain),
        "own" => {
            let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
            let config = rustls::ServerConfig::builder()
                .with_no_client_auth()
                .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
            Ok(Kind::Own(Arc::new(config).into()))
        }
        "dormouse" => {
            let identity = Identity::from_files(certificate.as_ref(), key.as_ref())?;
            let context = ServerContext::new(ServerSettings::new(vec![identity]))?;
            Ok(Kind::Dormouse(context.into()))
        }
        other => Err(format!("{other} is none of plain, own, dormouse").into()),
    }
}

/// What was received, copied from the thread's buffer. Empty at the end.
async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    poll_fn(|cx| {
        BUFFER.with_borrow_mut(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
            Poll::Ready(Ok(read.filled().to_vec()))
        })
    })
    .await
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        let received = receive(&mut stream).await?;
        if received.is_empty() {
            return stream.shutdown().await;
        }
        stream.write_all(&received).await?;
        stream.flush().await?;
    }
}

/// As programs do it: one task for the handshake and the connection. A client that leaves is no error of the server.
fn serve(kind: &Kind, tcp: TcpStream) {
    match kind.clone() {
        Kind::Plain => drop(tokio::spawn(async move { echo(tcp).await })),
        Kind::Own(acceptor) => drop(tokio::spawn(async move {
            let stream = acceptor.accept(tcp).await?;
            echo(stream).await
        })),
        Kind::Dormouse(acceptor) => drop(tokio::spawn(async move {
            let stream = acceptor.accept(tcp).await?;
            echo(stream).await
        })),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, certificate, key] = arguments.as_slice() else {
        return Err("echo-server TLS CERTIFICATE KEY".into());
    };
    let kind = kind(name, certificate, key)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        serve(&kind, tcp);
    }
}
