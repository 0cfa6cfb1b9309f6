//! Sockets for packets with headers of our own.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};

use crate::Fd;
use crate::outcome::attempt;

/// Opens a socket that sends packets with their IP headers. Needs CAP_NET_RAW.
///
/// # Errors
/// The operating system's error.
pub fn raw(is_ipv6: bool) -> io::Result<Fd> {
    let family = match is_ipv6 {
        false => AddressFamily::INET,
        true => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let raw = Some(ipproto::RAW);
    Ok(rustix::net::socket_with(family, SocketType::RAW, flags, raw)?.into())
}

/// Sends a packet that begins with its IP header. One that does not fit is dropped, as a network would do.
///
/// # Errors
/// The operating system's error: no route, or a firewall forbids it.
pub fn send_raw(socket: Fd, packet: &[u8], to: IpAddr) -> io::Result<()> {
    let socket = socket.borrow()?;
    let to = SocketAddr::new(to, 0);
    let _ = attempt(|| rustix::net::sendto(socket, packet, SendFlags::empty(), &to))?;
    Ok(())
}
