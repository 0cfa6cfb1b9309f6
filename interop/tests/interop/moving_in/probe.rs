//! A client that notes everything it sees.

use std::fmt;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use dormouse_interop::certificates::Files;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, DigitallySignedStruct, Error,
    SignatureScheme, Stream,
};

/// The names in certificates of servers.
pub(super) const CERTIFIED: [&str; 4] = [
    "a.example",
    "b.example",
    "default.example",
    "backend.example",
];

/// What a client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) at: SocketAddr,
    /// `None`: it does not speak TLS.
    pub(super) tls: Option<Tls>,
    /// Whether it begins with a PROXY header.
    pub(super) with_header: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    /// The server name. `None`: it sends none.
    pub(super) name: Option<&'static str>,
    pub(super) protocols: &'static [&'static str],
    pub(super) is_tls12: bool,
    pub(super) certificate: Shown,
}

/// The client certificate that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    None,
    /// One that the authority has signed.
    Good,
    /// One of another authority.
    Stranger,
}

/// What a client sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Version, protocol and certificate, or why there was no handshake.
    pub(super) handshake: String,
    /// What the backend said.
    pub(super) answer: String,
}

impl Seen {
    /// Returns whether the client was refused: it reached no backend.
    pub(super) fn is_refused(&self) -> bool {
        !self.answer.contains(" told ")
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {:?}", self.handshake, self.answer)
    }
}

/// Certificates of clients.
#[derive(Clone)]
pub(super) struct Wallet {
    pub(super) good: Files,
    pub(super) stranger: Files,
}

/// Makes the probe. This runs inside of the room.
pub(super) fn run(probe: &Probe, wallet: &Wallet, patience: Duration) -> Seen {
    let refused = |why: String| Seen {
        handshake: why,
        answer: String::new(),
    };
    let Ok(mut tcp) = TcpStream::connect_timeout(&probe.at, Duration::from_secs(5)) else {
        return refused("no listener".to_owned());
    };
    let ready = tcp
        .set_read_timeout(Some(patience))
        .and(tcp.set_nodelay(true));
    ready.expect("a socket of this test");
    if probe.with_header {
        let header = format!(
            "PROXY TCP4 192.0.2.77 127.0.0.1 40000 {}\r\n",
            probe.at.port()
        );
        if tcp.write_all(header.as_bytes()).is_err() {
            return refused("closed".to_owned());
        }
    }
    let Some(tls) = &probe.tls else {
        let answer = ask(&mut tcp, "plain");
        return Seen {
            handshake: "plain".to_owned(),
            answer: answer.unwrap_or_default(),
        };
    };
    let name = tls.name.unwrap_or("localhost");
    let server = ServerName::try_from(name).expect("a valid name");
    let mut connection = ClientConnection::new(Arc::new(config(tls, wallet)), server)
        .expect("a usable configuration");
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut tcp) {
            return refused(words(&error));
        }
    }
    let chain = connection.peer_certificates().unwrap_or_default();
    let leaf: Vec<String> = chain
        .first()
        .map(|cert| name_in(cert))
        .into_iter()
        .collect();
    let protocol = connection
        .alpn_protocol()
        .map(|one| String::from_utf8_lossy(one).into_owned());
    let handshake = format!(
        "{:?}, ALPN {}, certificate of {} with {} in the chain",
        connection.protocol_version().expect("a version"),
        protocol.as_deref().unwrap_or("none"),
        leaf.concat(),
        chain.len(),
    );
    let mut stream = Stream::new(&mut connection, &mut tcp);
    match ask(&mut stream, name) {
        Ok(answer) => Seen { handshake, answer },
        // With TLS 1.3, a server refuses a client's certificate after the client's handshake.
        Err(error) => refused(words(&error)),
    }
}

/// Sends a request, and returns the body of the answer.
fn ask(stream: &mut (impl std::io::Read + std::io::Write), host: &str) -> std::io::Result<String> {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    let mut room = [0; 2048];
    loop {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(room.get(..n).unwrap_or_default()),
            // nginx and stunnel sometimes close without close_notify.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) if answer.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    let body = text.split_once("\r\n\r\n").map(|(head, body)| {
        (
            head.lines().next().unwrap_or_default().to_owned(),
            body.to_owned(),
        )
    });
    let (status, body) = body.unwrap_or_default();
    match (status.contains(" 200 "), body.is_empty()) {
        (true, false) => Ok(body),
        (false, _) if !status.is_empty() => Ok(status),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns the first of the test's names in a certificate.
fn name_in(cert: &CertificateDer<'_>) -> String {
    let text = String::from_utf8_lossy(cert);
    let found = CERTIFIED.iter().find(|name| text.contains(**name));
    (*found.unwrap_or(&"?")).to_owned()
}

fn words(error: &std::io::Error) -> String {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::AlertReceived(alert)) => format!("alert {}", alert_name(*alert)),
        Some(other) => format!("{other}"),
        None => "closed".to_owned(),
    }
}

fn alert_name(alert: AlertDescription) -> String {
    format!("{alert:?}")
}

fn config(tls: &Tls, wallet: &Wallet) -> ClientConfig {
    let versions: &[&rustls::SupportedProtocolVersion] = match tls.is_tls12 {
        true => &[&rustls::version::TLS12],
        false => &[&rustls::version::TLS13],
    };
    let config = ClientConfig::builder_with_protocol_versions(versions);
    let provider = config.crypto_provider().clone();
    let config = config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)));
    let files = match tls.certificate {
        Shown::None => None,
        Shown::Good => Some(&wallet.good),
        Shown::Stranger => Some(&wallet.stranger),
    };
    let mut config = match files {
        None => config.with_no_client_auth(),
        Some(files) => {
            let chain = CertificateDer::pem_file_iter(&files.cert).expect("a readable PEM file");
            let chain = chain.map(|cert| cert.expect("valid PEM")).collect();
            let key = PrivateKeyDer::from_pem_file(&files.key).expect("a readable PEM file");
            config
                .with_client_auth_cert(chain, key)
                .expect("a certificate with its key")
        }
    };
    config.enable_sni = tls.name.is_some();
    config.alpn_protocols = tls
        .protocols
        .iter()
        .map(|one| one.as_bytes().to_vec())
        .collect();
    config.resumption = rustls::client::Resumption::disabled();
    config
}

/// Accepts every certificate: which one came is part of what is compared.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
