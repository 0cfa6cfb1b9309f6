//! Stock rustls, buffered, as the peer; its record layer verifies ours.

use std::io::{Read, Write};
use std::sync::Arc;

use dormouse_engine::Protocols;
use dormouse_testkit::{Authority, Leaf};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig,
    SupportedProtocolVersion, version,
};

pub(crate) const NAME: &str = "dormouse.test";

/// The suites of both versions, three AEADs each.
pub(crate) const SUITES: [(Protocols, CipherSuite); 6] = [
    (Protocols::TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256),
    (Protocols::TLS13, CipherSuite::TLS13_AES_256_GCM_SHA384),
    (
        Protocols::TLS13,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        Protocols::TLS12,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        Protocols::TLS12,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        Protocols::TLS12,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

pub(crate) fn provider(suite: Option<CipherSuite>) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    if let Some(only) = suite {
        provider.cipher_suites.retain(|suite| suite.suite() == only);
    }
    Arc::new(provider)
}

fn versions(protocols: Protocols) -> Vec<&'static SupportedProtocolVersion> {
    if protocols == Protocols::TLS12 {
        vec![&version::TLS12]
    } else if protocols == Protocols::TLS13 {
        vec![&version::TLS13]
    } else {
        vec![&version::TLS13, &version::TLS12]
    }
}

pub(crate) fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let pem = Authority::shared().certificate_pem();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    roots
}

pub(crate) fn client_config(protocols: Protocols, provider: Arc<CryptoProvider>) -> ClientConfig {
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(protocols))
        .unwrap()
        .with_root_certificates(roots())
        .with_no_client_auth()
}

pub(crate) fn client(config: &Arc<ClientConfig>) -> Connection {
    let name = NAME.try_into().unwrap();
    ClientConnection::new(Arc::clone(config), name)
        .unwrap()
        .into()
}

pub(crate) fn server_config(
    leaf: &Leaf,
    protocols: Protocols,
    provider: Arc<CryptoProvider>,
) -> ServerConfig {
    server_config_asking(
        WebPkiClientVerifier::no_client_auth(),
        leaf,
        protocols,
        provider,
    )
}

/// Returns a server configuration that requests client certificates.
pub(crate) fn server_config_asking(
    verifier: Arc<dyn ClientCertVerifier>,
    leaf: &Leaf,
    protocols: Protocols,
    provider: Arc<CryptoProvider>,
) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(leaf.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(protocols))
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    config.ticketer = aws_lc_rs::Ticketer::new().unwrap();
    config
}

/// Returns everything the connection has to send.
pub(crate) fn outgoing(connection: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Feeds bytes to the connection and returns their plaintext.
pub(crate) fn incoming(connection: &mut Connection, mut bytes: &[u8]) -> Vec<u8> {
    let mut plaintext = Vec::new();
    while !bytes.is_empty() {
        connection.read_tls(&mut bytes).unwrap();
        let state = connection.process_new_packets().unwrap();
        let from = plaintext.len();
        plaintext.resize(from + state.plaintext_bytes_to_read(), 0);
        connection
            .reader()
            .read_exact(&mut plaintext[from..])
            .unwrap();
    }
    plaintext
}

/// Protects `content`; the next [`outgoing`] returns the bytes.
pub(crate) fn write(connection: &mut Connection, content: &[u8]) {
    connection.writer().write_all(content).unwrap();
}

/// Returns `len` bytes of content that encode their own position.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}
