//! A TLS client inside the test: rustls over a blocking socket, for tests that need many connections, or one
//! in a precise state.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, Stream, SupportedProtocolVersion,
};

use crate::certificates::{Files, Kind, authority};
use crate::content::random;

/// Longer than any operation here takes.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(20);

const SOCKET_BUFFER: usize = 128 * 1024;

/// A TLS connection.
pub struct Peer {
    /// The TLS state.
    pub tls: ClientConnection,
    /// The socket.
    pub tcp: TcpStream,
}

/// The default configuration: TLS 1.3 or 1.2, trusting the tests' CA. All such configurations share their
/// sessions.
pub fn config() -> ClientConfig {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    CONFIG
        .get_or_init(|| with_versions(rustls::DEFAULT_VERSIONS))
        .clone()
}

/// One configuration for TLS 1.3 and one for 1.2, each with its own sessions.
pub fn configs_by_version() -> [ClientConfig; 2] {
    [&rustls::version::TLS13, &rustls::version::TLS12].map(|version| with_versions(&[version]))
}

/// A configuration for TLS 1.2 without tickets, which resumes by session id, with its own sessions.
pub fn config_by_id() -> ClientConfig {
    let mut config = with_versions(&[&rustls::version::TLS12]);
    config.resumption =
        Resumption::in_memory_sessions(8).tls12_resumption(Tls12Resumption::SessionIdOnly);
    config
}

/// A configuration with this client certificate and its own sessions.
///
/// # Panics
/// When the files are not a certificate and its key.
pub fn config_showing(files: &Files) -> ClientConfig {
    let chain = CertificateDer::pem_file_iter(&files.cert).expect("a readable PEM file");
    let chain = chain.map(|cert| cert.expect("valid PEM")).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a readable PEM file");
    ClientConfig::builder()
        .with_root_certificates(roots())
        .with_client_auth_cert(chain, key)
        .expect("a certificate with its key")
}

/// The configuration of a TLS server with the tests' certificate.
///
/// # Panics
/// When the files are not a certificate and its key.
pub fn server() -> ServerConfig {
    let files = authority().certificate(Kind::EcdsaP256);
    let chain = CertificateDer::pem_file_iter(&files.cert).expect("a readable PEM file");
    let chain = chain.map(|cert| cert.expect("valid PEM")).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a readable PEM file");
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate with its key")
}

fn with_versions(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    ClientConfig::builder_with_protocol_versions(versions)
        .with_root_certificates(roots())
        .with_no_client_auth()
}

/// The tests' CA.
///
/// # Panics
/// When its file is not a certificate.
pub fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_file_iter(authority().trust()).expect("a readable PEM file") {
        roots
            .add(cert.expect("valid PEM"))
            .expect("a valid certificate");
    }
    roots
}

/// A connection before its handshake.
///
/// # Panics
/// Never: the name is valid.
pub fn client(config: ClientConfig) -> ClientConnection {
    let name = "localhost".try_into().expect("a valid name");
    ClientConnection::new(Arc::new(config), name).expect("a usable configuration")
}

/// A connection with this server name.
///
/// # Panics
/// When the name is not valid.
pub fn client_for(config: ClientConfig, name: &str) -> ClientConnection {
    let name = name.to_owned().try_into().expect("a valid name");
    ClientConnection::new(Arc::new(config), name).expect("a usable configuration")
}

/// Connects with TCP only.
///
/// # Errors
/// The system's error.
pub fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect_timeout(&address, SOCKET_TIMEOUT)?;
    // Small, so that this end's buffers do not hide what the terminator buffers.
    sockopt::set_socket_send_buffer_size(&tcp, SOCKET_BUFFER)?;
    sockopt::set_socket_recv_buffer_size(&tcp, SOCKET_BUFFER)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    tcp.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    Ok(tcp)
}

/// Connects with TCP only, from its own address.
///
/// # Panics
/// When the connection fails.
pub fn connect_from(ip: IpAddr, to: SocketAddr) -> TcpStream {
    let family = if ip.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    // Programs that a test starts must not inherit it.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::new(ip, 0)).expect("an address of this machine");
    rustix::net::connect(&socket, &to).expect("a listener");
    let tcp = TcpStream::from(socket);
    tcp.set_read_timeout(Some(SOCKET_TIMEOUT))
        .expect("a timeout");
    tcp
}

impl Peer {
    /// Connects and completes the handshake.
    ///
    /// # Errors
    /// When connection or handshake fails.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::over(connect_tcp(address)?, client(config()))
    }

    /// Completes the handshake on this socket.
    ///
    /// # Errors
    /// When it fails.
    pub fn over(mut tcp: TcpStream, mut tls: ClientConnection) -> io::Result<Self> {
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        Ok(Self { tls, tcp })
    }

    /// Connects and sends the first line.
    ///
    /// # Panics
    /// When that fails.
    pub fn saying(address: SocketAddr, line: &str) -> Self {
        let mut peer = Self::connect(address)
            .unwrap_or_else(|error| panic!("expected a TLS connection to {address}: {error}"));
        peer.stream()
            .write_all(format!("{line}\n").as_bytes())
            .expect("a write of the first line");
        peer
    }

    /// Connects, and gets an echo: everything up to the backend is connected.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn echoing(address: SocketAddr) -> Self {
        let mut peer = Self::saying(address, "echo");
        peer.echo().expect("an echo");
        peer
    }

    /// The stream of plaintext.
    pub fn stream(&mut self) -> Stream<'_, ClientConnection, TcpStream> {
        Stream::new(&mut self.tls, &mut self.tcp)
    }

    /// Sends some bytes on a connection with the first line `echo`, and compares the answer.
    ///
    /// # Errors
    /// When the connection fails, or the echo differs.
    pub fn echo(&mut self) -> io::Result<()> {
        let message = random(1500);
        self.stream().write_all(&message)?;
        let mut back = vec![0; message.len()];
        self.stream().read_exact(&mut back)?;
        if back == message {
            Ok(())
        } else {
            Err(io::Error::other("the echo differs from what was sent"))
        }
    }

    /// Sends close_notify.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn end_sending(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }

    /// Reads to the end. An end without close_notify is an error.
    ///
    /// # Errors
    /// When the connection does not end cleanly.
    pub fn receive_all(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        self.stream().read_to_end(&mut all)?;
        Ok(all)
    }
}
