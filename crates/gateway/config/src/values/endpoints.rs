//! Addresses of listeners, servers and backends. `address.rs` reads them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// The address as written.
    pub given: String,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.address.to_string())
    }
}

/// An address that accepts plaintext.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlainListen {
    /// A TCP address.
    Tcp(Listen),
    /// A unix socket.
    Unix(PathBuf),
}

impl PlainListen {
    /// Returns the TCP address, if it is one.
    pub(crate) fn tcp(&self) -> Option<&Listen> {
        match self {
            Self::Tcp(listen) => Some(listen),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for PlainListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listen) => listen.fmt(f),
            Self::Unix(path) => f.pad(&format!("unix:{}", path.display())),
        }
    }
}

/// A TLS server to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its addresses, in the order in which they are tried; at least one.
    pub addresses: Vec<SocketAddr>,
    /// Its name, or address, without the port.
    pub host: String,
    /// The address as written.
    pub given: String,
}

/// Where plaintext goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// To a TCP server.
    Tcp {
        /// Its address; the first one of a name.
        address: SocketAddr,
        /// The address as written.
        given: String,
        /// The other addresses of the name.
        #[serde(default)]
        more: Vec<SocketAddr>,
    },
    /// To a server on a unix socket.
    Unix(PathBuf),
    /// Back to the client.
    Echo,
}

impl Backend {
    /// Returns its addresses: a name has one or more.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let all = match self {
            Self::Tcp { address, more, .. } => Some((address, more)),
            Self::Unix(_) | Self::Echo => None,
        };
        all.into_iter()
            .flat_map(|(first, more)| std::iter::once(first).chain(more))
            .copied()
    }

    /// Returns the host and port to look up, if it was given as a name.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Tcp { given, .. } if given.parse::<SocketAddr>().is_err() => Some(given),
            _ => None,
        }
    }

    /// Returns the host as written, without the port.
    pub fn host(&self) -> Option<&str> {
        let Self::Tcp { given, .. } = self else {
            return None;
        };
        let (host, _) = given.rsplit_once(':')?;
        Some(host.trim_start_matches('[').trim_end_matches(']'))
    }

    /// Sets the addresses of a name, at least one. Returns whether they have changed.
    pub fn set_addresses(&mut self, found: &[SocketAddr]) -> bool {
        let (Some(&first), false) = (found.first(), self.addresses().eq(found.iter().copied()))
        else {
            return false;
        };
        if let Self::Tcp { address, more, .. } = self {
            *address = first;
            *more = found.get(1..).unwrap_or_default().to_vec();
        }
        true
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => f.pad(&address.to_string()),
            Self::Unix(path) => f.pad(&format!("unix:{}", path.display())),
            Self::Echo => f.pad("echo:"),
        }
    }
}
