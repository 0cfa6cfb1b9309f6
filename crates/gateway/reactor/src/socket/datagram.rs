//! Sockets that send datagrams to one address. All processes that share such a socket share its address: if
//! one process connects it again, the others send there, too.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::address::unix_address;
use crate::Fd;

/// Where datagrams go.
#[derive(Clone, Copy, Debug)]
pub enum DatagramAddress<'a> {
    /// A unix socket.
    Unix(&'a Path),
    /// UDP.
    Udp(SocketAddr),
}

/// Opens a socket for datagrams to this address, not connected yet. It never blocks.
///
/// # Errors
/// The operating system's error.
pub fn datagrams(address: DatagramAddress<'_>) -> io::Result<Fd> {
    let family = match address {
        DatagramAddress::Unix(_) => AddressFamily::UNIX,
        DatagramAddress::Udp(SocketAddr::V4(_)) => AddressFamily::INET,
        DatagramAddress::Udp(SocketAddr::V6(_)) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?.into())
}

/// Connects the socket, or connects it again: a unix socket stays connected to a receiver that has ended.
///
/// # Errors
/// The operating system's error: there is no receiver.
pub fn connect_datagrams(socket: Fd, address: DatagramAddress<'_>) -> io::Result<()> {
    let socket = socket.borrow()?;
    match address {
        DatagramAddress::Unix(path) => rustix::net::connect(socket, &unix_address(path)?)?,
        DatagramAddress::Udp(address) => rustix::net::connect(socket, &address)?,
    }
    Ok(())
}
