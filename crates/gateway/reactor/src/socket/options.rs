//! Socket options and queries.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::{AddressFamily, sockopt};

use crate::Fd;
use crate::outcome::os_result;
use crate::process::Pid;

/// When to detect that a silent peer has vanished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Seconds of silence before the first probe.
    pub idle_s: u32,
    /// Seconds between probes.
    pub interval_s: u32,
    /// Number of unanswered probes after which the connection is closed.
    pub count: u32,
}

/// Fetches and clears the socket's error, which is the result of a connection attempt.
///
/// # Errors
/// That error.
pub fn take_error(fd: Fd) -> io::Result<()> {
    Ok(sockopt::socket_error(fd.borrow()?)??)
}

/// Returns the user at the other end of a unix socket, as of its connect.
///
/// # Errors
/// The operating system's error: it is not a unix socket.
pub fn peer_user_id(fd: Fd) -> io::Result<u32> {
    Ok(peer_credentials(fd)?.uid)
}

/// Returns the process that opened the listening socket to which this one is connected.
///
/// # Errors
/// The operating system's error: it is not a unix socket. `NotFound`: it is not connected, or this process cannot see
/// that one, which is outside its container.
pub fn peer_process(fd: Fd) -> io::Result<Pid> {
    match peer_credentials(fd)?.pid {
        0 => Err(io::ErrorKind::NotFound.into()),
        pid => Ok(Pid(pid)),
    }
}

/// Returns the kernel's `struct ucred`. That of rustix cannot hold a process id of 0, which stands for a process outside
/// this one's PID namespace: it would become an error.
fn peer_credentials(fd: Fd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the structure, and any bytes are a valid one.
    let result = unsafe {
        libc::getsockopt(
            fd.0,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    os_result(result)?;
    Ok(peer)
}

/// Whether a listener accepts both IPv4 and IPv6 clients (no IPV6_V6ONLY).
///
/// # Errors
/// The operating system's error: it is not a socket.
pub fn takes_both_families(fd: Fd) -> io::Result<bool> {
    let socket = fd.borrow()?;
    Ok(sockopt::socket_domain(socket)? == AddressFamily::INET6 && !sockopt::ipv6_v6only(socket)?)
}

/// Returns a number that is unique among all sockets since boot.
///
/// # Errors
/// The operating system's error: it is not a socket.
pub fn cookie(fd: Fd) -> io::Result<u64> {
    Ok(sockopt::socket_cookie(fd.borrow()?)?)
}

/// Returns the bytes written but not acknowledged by the peer (TCP) or not received (unix) (SIOCOUTQ).
///
/// # Errors
/// The operating system's error.
pub fn unsent(fd: Fd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ) writes one int, for which there is room.
    let result = unsafe { libc::ioctl(fd.0, libc::TIOCOUTQ, &raw mut count) };
    os_result(result)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// <linux/sockios.h>: bytes that are not sent.
pub(crate) const SIOCOUTQNSD: libc::Ioctl = 0x894b;

/// Returns the bytes that TCP has not sent, because the peer's window or the network is full; for unix sockets, the
/// bytes not received (SIOCOUTQNSD).
///
/// # Errors
/// The operating system's error.
pub fn held_back(fd: Fd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: SIOCOUTQNSD writes one int, for which there is room.
    let result = unsafe { libc::ioctl(fd.0, SIOCOUTQNSD, &raw mut count) };
    match os_result(result) {
        Ok(_) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => unsent(fd),
        Err(error) => Err(error),
    }
}

/// The kernel memory of a socket's queues in bytes, including the kernel's overhead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queues {
    /// Memory of the receive queue.
    pub received: usize,
    /// Memory above which the peer's window is closed.
    pub received_max: usize,
    /// Memory of the send queue.
    pub sent: usize,
    /// Memory above which the socket takes no more.
    pub sent_max: usize,
}

/// Returns the kernel memory of a socket's queues (SO_MEMINFO).
///
/// # Errors
/// The operating system's error.
pub fn queues(fd: Fd) -> io::Result<Queues> {
    // <linux/sock_diag.h>. Unix sockets have no memory queued, only memory in flight.
    const SO_MEMINFO: libc::c_int = 55;
    const RECEIVED: usize = 0;
    const RECEIVED_MAX: usize = 1;
    const IN_FLIGHT: usize = 2;
    const SENT_MAX: usize = 3;
    const QUEUED: usize = 5;
    let mut info = [0u32; 9];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the array, and any bytes are a valid one.
    let result = unsafe {
        libc::getsockopt(
            fd.0,
            libc::SOL_SOCKET,
            SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    os_result(result)?;
    Ok(Queues {
        received: info[RECEIVED] as usize,
        received_max: info[RECEIVED_MAX] as usize,
        sent: info[IN_FLIGHT].max(info[QUEUED]) as usize,
        sent_max: info[SENT_MAX] as usize,
    })
}

/// Returns the bytes that have arrived but were not received yet.
///
/// # Errors
/// The operating system's error.
pub fn received_unread(fd: Fd) -> io::Result<usize> {
    let count = rustix::io::ioctl_fionread(fd.borrow()?)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Sets whether small segments are sent at once (TCP_NODELAY).
///
/// # Errors
/// The operating system's error, for example if it is not a TCP socket.
pub fn set_nodelay(fd: Fd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd.borrow()?, on)?)
}

/// Enables keepalive probes; `None` disables them.
///
/// # Errors
/// The operating system's error.
pub fn set_keepalive(fd: Fd, keepalive: Option<Keepalive>) -> io::Result<()> {
    let fd = fd.borrow()?;
    if let Some(keepalive) = keepalive {
        let seconds = |s: u32| Duration::from_secs(s.into());
        sockopt::set_tcp_keepidle(fd, seconds(keepalive.idle_s))?;
        sockopt::set_tcp_keepintvl(fd, seconds(keepalive.interval_s))?;
        sockopt::set_tcp_keepcnt(fd, keepalive.count)?;
    }
    Ok(sockopt::set_socket_keepalive(fd, keepalive.is_some())?)
}

/// Sets the keepalive times of a socket with keepalive already enabled (inherited from its listener): two
/// system calls instead of four.
///
/// # Errors
/// The operating system's error, for example if it is not a TCP socket.
pub fn set_keepalive_times(fd: Fd, keepalive: Keepalive) -> io::Result<()> {
    let fd = fd.borrow()?;
    sockopt::set_tcp_keepidle(fd, Duration::from_secs(keepalive.idle_s.into()))?;
    Ok(sockopt::set_tcp_keepintvl(
        fd,
        Duration::from_secs(keepalive.interval_s.into()),
    )?)
}

/// Sets how long sent bytes may stay unacknowledged before the connection is closed (TCP_USER_TIMEOUT; 0 is the
/// system's default).
///
/// # Errors
/// The operating system's error.
pub fn set_user_timeout(fd: Fd, timeout_ms: u32) -> io::Result<()> {
    Ok(sockopt::set_tcp_user_timeout(fd.borrow()?, timeout_ms)?)
}

/// Limits the send buffer. The kernel doubles the number for its own overhead, and stops auto-tuning.
///
/// # Errors
/// The operating system's error.
pub fn set_send_buffer(fd: Fd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(fd.borrow()?, bytes)?)
}

/// Limits the receive buffer; see [`set_send_buffer`].
///
/// # Errors
/// The operating system's error.
pub fn set_receive_buffer(fd: Fd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(fd.borrow()?, bytes)?)
}

/// Sets whether the poller reports a socket as writable only when nothing is held back (TCP_NOTSENT_LOWAT), or as usual.
///
/// # Errors
/// The operating system's error: a unix socket holds nothing back.
pub fn set_writable_when_drained(fd: Fd, on: bool) -> io::Result<()> {
    // 0 is the system's default: no limit.
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, on.into())
}

/// Makes a socket readable from the first byte on, which is the kernel's default.
pub(super) fn reset_receive_lowat(fd: Fd) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)
}

/// Delays the choice of the port until connect: see [`super::ConnectOptions::source`].
pub(super) fn set_bind_address_no_port(socket: impl AsFd) -> io::Result<()> {
    let fd = Fd(socket.as_fd().as_raw_fd());
    set_int(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

fn set_int(fd: Fd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one int from the address of one.
    let result = unsafe {
        libc::setsockopt(
            fd.0,
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    os_result(result)
}
