//! A backend that says who it is, and what it was told about the client.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use dormouse_interop::certificates::Files;
use dormouse_interop::namespace::Room;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The beginning of version 2 of the PROXY header.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Starts a backend inside of a room. With a certificate, it speaks TLS after the header.
pub(super) fn start(room: &Room, name: &'static str, at: SocketAddr, files: Option<&Files>) {
    let tls = files.map(server_config);
    let listener = room.run(move || TcpListener::bind(at).expect("a free address in this room"));
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let tls = tls.clone();
            std::thread::spawn(move || {
                // Probes of the port send nothing.
                let _ = serve(tcp, name, tls);
            });
        }
    });
}

fn server_config(files: &Files) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(&files.cert).expect("a readable PEM file");
    let chain = chain.map(|cert| cert.expect("valid PEM")).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a readable PEM file");
    let config = ServerConfig::builder().with_no_client_auth();
    Arc::new(
        config
            .with_single_cert(chain, key)
            .expect("a certificate with its key"),
    )
}

fn serve(tcp: TcpStream, name: &str, tls: Option<Arc<ServerConfig>>) -> std::io::Result<()> {
    tcp.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(tcp.try_clone()?);
    let told = header(&mut reader)?;
    let rest = Buffered { reader, tcp };
    match tls {
        None => answer(rest, &format!("{name} told {told}")),
        Some(config) => {
            let Ok(connection) = ServerConnection::new(config) else {
                return Ok(());
            };
            answer(
                StreamOwned::new(connection, rest),
                &format!("{name} by TLS told {told}"),
            )
        }
    }
}

/// A socket of which the beginning has been read.
struct Buffered {
    reader: BufReader<TcpStream>,
    tcp: TcpStream,
}

impl Read for Buffered {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(room)
    }
}

impl Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.tcp.flush()
    }
}

/// Reads a PROXY header if there is one, and returns the client's address in it.
fn header(reader: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let first = reader.fill_buf()?.first().copied();
    match first {
        Some(b'P') => {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            Ok(format!("v1 {}", line.split(' ').nth(2).unwrap_or_default()))
        }
        Some(b'\r') => {
            let mut fixed = [0; 16];
            reader.read_exact(&mut fixed)?;
            if !fixed.starts_with(SIGNATURE) {
                return Ok("nonsense".to_owned());
            }
            let length = u16::from_be_bytes([fixed[14], fixed[15]]);
            let mut rest = vec![0; usize::from(length)];
            reader.read_exact(&mut rest)?;
            let source = rest.get(..4).unwrap_or_default();
            let source: Vec<String> = source.iter().map(ToString::to_string).collect();
            Ok(format!("v2 {}", source.join(".")))
        }
        _ => Ok("nothing".to_owned()),
    }
}

/// Answers a request, as an HTTP server does.
fn answer(mut stream: impl Read + Write, text: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut room = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        let n = stream.read(&mut room)?;
        if n == 0 {
            return Ok(());
        }
        request.extend_from_slice(room.get(..n).unwrap_or_default());
    }
    let length = text.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}");
    stream.write_all(answer.as_bytes())?;
    stream.flush()
}
