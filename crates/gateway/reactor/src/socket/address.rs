//! Addresses for listening and connecting.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};

use crate::Fd;

/// An address to listen on or connect to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Addr {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a unix socket. A leading `@` means an abstract socket, which has no file.
    Unix(PathBuf),
}

impl From<SocketAddr> for Addr {
    fn from(address: SocketAddr) -> Addr {
        Addr::Tcp(address)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addr::Tcp(address) => address.fmt(f),
            Addr::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A text that is not an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddrError {
    text: String,
}

impl fmt::Display for AddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not an address; write 127.0.0.1:8443, [::1]:8443 or unix:/run/app.sock",
            self.text
        )
    }
}

impl std::error::Error for AddrError {}

impl FromStr for Addr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Addr, AddrError> {
        let error = || AddrError {
            text: text.to_owned(),
        };
        match text.strip_prefix("unix:") {
            Some("") => Err(error()),
            Some(path) => Ok(Addr::Unix(path.into())),
            None => text.parse().map(Addr::Tcp).map_err(|_| error()),
        }
    }
}

/// Returns the canonical form of an address, in which it is checked, counted and logged.
///
/// An IPv4 client of a dual-stack listener, and of some proxies, appears as `::ffff:192.0.2.1` (RFC 4291
/// §2.5.5.2). A rule for 192.0.2.0/24 must match it too.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        // Keeps the scope, which a link-local address needs.
        IpAddr::V6(_) => address,
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// A process on this machine.
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix => f.write_str("unix"),
        }
    }
}

impl Peer {
    pub(super) fn from_any(address: Option<SocketAddrAny>) -> Peer {
        let ip = address.filter(|address| address.address_family() != AddressFamily::UNIX);
        match ip.map(SocketAddr::try_from) {
            Some(Ok(address)) => Peer::Tcp(canonical(address)),
            _ => Peer::Unix,
        }
    }

    /// Returns the other end of `fd`.
    ///
    /// # Errors
    /// The operating system's error; after a reset there is no peer.
    pub fn of(fd: Fd) -> io::Result<Peer> {
        Ok(Peer::from_any(rustix::net::getpeername(fd.borrow()?)?))
    }
}

impl Addr {
    /// Returns the local address of `fd`, for example the port that was chosen for port 0.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn local(fd: Fd) -> io::Result<Addr> {
        let any = rustix::net::getsockname(fd.borrow()?)?;
        if any.address_family() == AddressFamily::UNIX {
            let unix = SocketAddrUnix::try_from(any)?;
            if let Some(name) = unix.abstract_name() {
                let name = String::from_utf8_lossy(name);
                return Ok(Addr::Unix(format!("@{name}").into()));
            }
            let path = unix.path_bytes().unwrap_or_default();
            return Ok(Addr::Unix(String::from_utf8_lossy(path).as_ref().into()));
        }
        Ok(Addr::Tcp(canonical(SocketAddr::try_from(any)?)))
    }
}

/// Converts a path to the operating system's form.
pub(super) fn unix_address(path: &Path) -> io::Result<SocketAddrUnix> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(path),
    };
    address.map_err(|errno| {
        let error = io::Error::from(errno);
        let text = format!("{}: not a valid unix socket path ({error})", path.display());
        io::Error::new(error.kind(), text)
    })
}
