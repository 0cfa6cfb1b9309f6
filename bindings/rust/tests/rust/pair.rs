//! Contexts of both libraries, with certificates of one authority, and connections over loopback.

use std::io;
use std::sync::Arc;

use dormouse_testkit::Authority;
use dormouse_tokio::TlsStream;
use dormouse_tokio::embed::{
    ClientContext, ClientSettings, Identity, Protocols, ServerContext, ServerSettings,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

pub(crate) const NAME: &str = "one.test";

/// Application protocols, preferred first.
pub(crate) type Alpn<'a> = &'a [&'a str];

fn owned(alpn: Alpn<'_>) -> Vec<Vec<u8>> {
    alpn.iter().map(|name| name.as_bytes().to_vec()).collect()
}

pub(crate) fn acceptor(alpn: Alpn<'_>, protocols: Protocols) -> dormouse_tokio::TlsAcceptor {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let (certificate, key) = (leaf.certificate_pem.as_bytes(), leaf.key_pem.as_bytes());
    let identity = Identity::from_pem(certificate, key, "certificate", "key").expect("an identity");
    let settings = ServerSettings {
        alpn: owned(alpn),
        protocols,
        ..ServerSettings::new(vec![identity])
    };
    ServerContext::new(settings).expect("a context").into()
}

pub(crate) fn connector(alpn: Alpn<'_>, protocols: Protocols) -> dormouse_tokio::TlsConnector {
    let settings = ClientSettings {
        alpn: owned(alpn),
        protocols,
        ..ClientSettings::new(Authority::shared().roots())
    };
    ClientContext::new(settings).expect("a context").into()
}

pub(crate) fn rustls_acceptor(alpn: Alpn<'_>) -> tokio_rustls::TlsAcceptor {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let certificate = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes());
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.expect("PEM")], key.expect("PEM"))
        .expect("a certificate");
    config.alpn_protocols = owned(alpn);
    Arc::new(config).into()
}

pub(crate) fn rustls_connector(alpn: Alpn<'_>) -> tokio_rustls::TlsConnector {
    let authority = Authority::shared().certificate_pem();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.expect("PEM")).expect("a root");
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = owned(alpn);
    Arc::new(config).into()
}

pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("a name")
}

pub(crate) async fn tcp() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}

pub(crate) type Stream = TlsStream<TcpStream>;

/// A client and a server of this library, over loopback.
pub(crate) async fn pair(alpn: Alpn<'_>) -> io::Result<(Stream, Stream)> {
    let (client, server) = tcp().await?;
    let (connector, acceptor) = (
        connector(alpn, Protocols::ALL),
        acceptor(alpn, Protocols::ALL),
    );
    tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server))
}
