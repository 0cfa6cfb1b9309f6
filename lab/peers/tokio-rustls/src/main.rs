//! An echo server on tokio-rustls: one thread, one task per connection, one context for all.
//!
//! `tokio-rustls-echo default|memory PORT CERT KEY`

#![forbid(unsafe_code)]

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::error::Error;
use std::sync::Arc;
use tokio::io::{self, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, version::TLS13};
use tokio_rustls::server::TlsStream;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, variant, port, cert, key] = arguments.as_slice() else {
        return Err("usage: tokio-rustls-echo default|memory PORT CERT KEY".into());
    };
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let config = ServerConfig::builder_with_protocol_versions(&[&TLS13])
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let small = variant == "memory";

    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(format!("127.0.0.1:{port}").parse()?)?;
    let listener = socket.listen(4096)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        // An error ends only its own connection.
        tokio::spawn(async move {
            let _ = serve(acceptor, stream, small).await;
        });
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, small: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Boxed, so that the handshake's large future is freed when the connection is quiet.
    let stream = Box::pin(acceptor.accept(stream)).await?;
    if small { echo_small(stream).await } else { echo(stream).await }
}

/// As in the documentation: `copy` allocates a buffer of 8 KiB.
async fn echo(stream: TlsStream<TcpStream>) -> io::Result<()> {
    let (mut reader, mut writer) = io::split(stream);
    io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await
}

/// Waits for one byte; a buffer exists only while there is something to read.
async fn echo_small(mut stream: TlsStream<TcpStream>) -> io::Result<()> {
    let mut first = [0; 1];
    while stream.read(&mut first).await? == 1 {
        let mut buffer = vec![0; 16 * 1024];
        buffer[0] = first[0];
        let rest = Box::pin(read_what_is_there(&mut stream, &mut buffer[1..])).await?;
        stream.write_all(&buffer[..1 + rest]).await?;
        stream.flush().await?;
    }
    stream.shutdown().await
}

/// Returns what was decrypted together with the first byte, without waiting for more.
async fn read_what_is_there(stream: &mut TlsStream<TcpStream>, buffer: &mut [u8]) -> io::Result<usize> {
    tokio::select! {
        biased;
        count = stream.read(buffer) => count,
        () = std::future::ready(()) => Ok(0),
    }
}
