//! Addresses of listeners, servers and backends. `address.rs` reads them.

use crate::values::host_name::{self, without_dot};
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
    /// Its addresses, in the order in which they are tried. None: its name has not resolved yet
    /// (`resolve = "lazy"`).
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
        /// The address as written.
        given: String,
        /// Its address, or those of its name. None: the name has not resolved yet (`resolve = "lazy"`).
        addresses: Vec<SocketAddr>,
    },
    /// To a server on a unix socket.
    Unix(PathBuf),
    /// Back to the client.
    Echo,
}

impl Backend {
    /// Returns its addresses: a name has one or more.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let all: &[SocketAddr] = match self {
            Self::Tcp { addresses, .. } => addresses,
            Self::Unix(_) | Self::Echo => &[],
        };
        all.iter().copied()
    }

    /// Whether it is a name that has not resolved yet.
    pub fn is_unresolved(&self) -> bool {
        matches!(self, Self::Tcp { addresses, .. } if addresses.is_empty())
    }

    /// Returns the host and port to look up, if it was given as a name.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Tcp { given, .. } if given.parse::<SocketAddr>().is_err() => Some(given),
            _ => None,
        }
    }

    /// Returns the host without the port, as TLS names it.
    pub fn host(&self) -> Option<&str> {
        let Self::Tcp { given, .. } = self else {
            return None;
        };
        let (host, _) = given.rsplit_once(':')?;
        Some(without_dot(
            host.trim_start_matches('[').trim_end_matches(']'),
        ))
    }

    /// Returns the host and port as the header `Host` has them. `None`: a unix socket or an echo.
    pub fn authority(&self) -> Option<String> {
        match self {
            Self::Tcp { given, .. } => Some(host_name::authority(given)),
            Self::Unix(_) | Self::Echo => None,
        }
    }

    /// Whether it is the same backend, perhaps in another spelling.
    pub(crate) fn is_same(&self, other: &Backend) -> bool {
        match (self, other) {
            (Self::Tcp { given: own, .. }, Self::Tcp { given: others, .. }) => {
                host_name::is_same_authority(own, others)
            }
            _ => self == other,
        }
    }

    /// Sets the addresses of a name, at least one. Returns whether they have changed.
    pub fn set_addresses(&mut self, found: &[SocketAddr]) -> bool {
        match self {
            Self::Tcp { addresses, .. } if !found.is_empty() && addresses != found => {
                *addresses = found.to_vec();
                true
            }
            _ => false,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { given, addresses } => match addresses.first() {
                Some(address) => f.pad(&address.to_string()),
                None => f.pad(given),
            },
            Self::Unix(path) => f.pad(&format!("unix:{}", path.display())),
            Self::Echo => f.pad("echo:"),
        }
    }
}
