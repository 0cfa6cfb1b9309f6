//! Clients that request `/` repeatedly, each time on a new connection.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::version::TLS12;
use rustls::{
    ClientConfig, ClientConnection, NamedGroup, RootCertStore, Stream, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

const TIMES: usize = 12;

pub(crate) fn run(fault: &str, address: &str, more: &[&str]) -> Result<(), Box<dyn Error>> {
    let times = more.first().map_or(Ok(TIMES), |times| times.parse())?;
    let config = match fault {
        "never" => None,
        "renewing" => Some(config(
            Resumption::in_memory_sessions(32),
            rustls::ALL_VERSIONS,
        )?),
        // rustls uses a TLS 1.3 ticket once, and a TLS 1.2 session any number of times.
        "for-ever" => Some(config(
            Resumption::store(Arc::new(ForEver::new())),
            &[&TLS12],
        )?),
        other => return Err(format!("no client has the fault {other:?}").into()),
    };
    for _ in 0..times {
        let config = match &config {
            Some(config) => Arc::clone(config),
            None => self::config(Resumption::in_memory_sessions(32), rustls::ALL_VERSIONS)?,
        };
        get(address, config)?;
    }
    Ok(())
}

fn config(
    resumption: Resumption,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ClientConfig>, Box<dyn Error>> {
    let path = std::env::var("SSL_CERT_FILE")?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path)? {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder_with_protocol_versions(versions)
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = resumption;
    Ok(Arc::new(config))
}

fn get(address: &str, config: Arc<ClientConfig>) -> Result<(), Box<dyn Error>> {
    let mut connection = ClientConnection::new(config, ServerName::try_from("localhost")?)?;
    let mut socket = TcpStream::connect(address)?;
    let mut stream = Stream::new(&mut connection, &mut socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = [0; 512];
    let count = stream.read(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err(format!("an unexpected answer of {count} bytes").into());
    }
    connection.send_close_notify();
    connection.complete_io(&mut socket)?;
    Ok(())
}

/// Returns the session of the first connection for all later ones.
struct ForEver {
    inner: ClientSessionMemoryCache,
    first: Mutex<Option<Tls12ClientSessionValue>>,
}

impl ForEver {
    fn new() -> Self {
        Self {
            inner: ClientSessionMemoryCache::new(4),
            first: Mutex::new(None),
        }
    }
}

impl std::fmt::Debug for ForEver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForEver")
    }
}

impl ClientSessionStore for ForEver {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.inner.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.inner.kx_hint(server_name)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        if let Ok(mut first) = self.first.lock() {
            first.get_or_insert(value);
        }
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.first.lock().ok()?.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.inner.insert_tls13_ticket(name, value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.inner.take_tls13_ticket(name)
    }
}
