//! What a helper needs for TLS with a server, in a memory file: it can open no files, and authorities may be too long for a
//! message.

use crate::transport::Connector;
use dormouse_engine::Roots;
use dormouse_handover::{Pem, parts};
use dormouse_reactor::Fd;
use std::io;

/// The file, closed on drop.
pub struct TlsFile(Fd);

impl TlsFile {
    /// Writes the file. `authorities` is PEM of those that may sign the server's certificate; `None`: the system's. The
    /// helper shows `identity` to a server that requests a certificate.
    pub fn write(authorities: Option<&str>, identity: Option<&Pem>) -> io::Result<TlsFile> {
        let public = serde_json::to_vec(&(authorities, identity))?;
        let key = identity.map_or("", |identity| identity.key.as_str());
        parts::write(&[], &public, key.as_bytes()).map(TlsFile)
    }

    /// Its descriptor.
    pub fn fd(&self) -> Fd {
        self.0
    }
}

impl Drop for TlsFile {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Reads the file and closes it.
pub(crate) fn connector(file: Fd) -> io::Result<Connector> {
    let file = TlsFile(file);
    let [_, public, key, ..] = parts::locate(file.0)?;
    let public = parts::read(file.0, public)?;
    let (authorities, mut identity): (Option<String>, Option<Pem>) =
        serde_json::from_slice(&public)?;
    let key = parts::read(file.0, key)?;
    if let Some(identity) = &mut identity {
        let key = std::str::from_utf8(&key).map_err(io::Error::other)?;
        identity.change(|identity| identity.key = key.to_owned());
    }
    connect_with(authorities.as_deref(), identity.as_ref()).map_err(io::Error::other)
}

/// The same without a file, which proves that it will work.
pub(crate) fn connect_with(
    authorities: Option<&str>,
    identity: Option<&Pem>,
) -> Result<Connector, String> {
    let identity = identity.map(|pem| pem.identity().cloned()).transpose();
    let roots = authorities.map_or(Roots::System, |pem| Roots::Pem(pem.as_bytes().to_vec()));
    Connector::tls(roots, identity.map_err(|error| error.to_string())?)
}
