//! The state of a TCP connection as a value: taken out of the kernel, and made into a socket again.
//!
//! The kernel's interface is `TCP_REPAIR`, which needs CAP_NET_ADMIN and which CRIU uses to move processes.
//! Both directions pass through a [`Muted`] socket, which sends nothing and whose incoming packets a filter
//! drops ([`Filter`]), so that the peer repeats them:
//!
//! ```text
//! live socket ──checkpoint──> TcpState + Muted ──unhash──> TcpState alone
//! TcpState    ──build──────>  Muted            ──release─> live socket
//! ```
//!
//! Invariants:
//!
//! - **One speaker.** A state is written while its socket is mute. Only [`Muted::unhash`] takes the socket out
//!   of the kernel's table, so between the two a packet meets the mute socket and is never answered with a reset.
//! - **Nothing is lost.** A connection with bytes in a queue, or with bytes that the peer has not acknowledged,
//!   is refused ([`Refusal`]), and is as it was before.
//! - **The receive window never shrinks**: a state holds the right edge that the peer was promised.
//! - **Time stamps never decrease**: they continue on CLOCK_BOOTTIME, in [`TcpState::timestamp`] too.
//!
//! A state lacks what the kernel does not give or does not take: round-trip time and congestion window, which are
//! measured again: until then a lost segment
//! is repeated after one second with selective acknowledgements, after three without; `ts_recent`; ECN, so marks
//! of congestion are ignored afterwards; urgent data. Sockets
//! with MPTCP, TCP-MD5, TCP-AO or kernel TLS must not be passed here, and this program makes none.

mod options;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::options::Filter;
use self::options::{Info, Queue, Window};
use crate::process::boottime_ms;
use crate::socket::{self, Addr, Peer};
use crate::{Fd, OnExec};

/// A TCP connection with empty queues. Plain data without padding, which can lie in shared memory.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TcpState {
    /// IPv4 as `::ffff:192.0.2.1`, also if the socket was one of IPv6.
    local_ip: [u8; 16],
    peer_ip: [u8; 16],
    local_port: u16,
    peer_port: u16,
    /// Next sequence number to send. The peer has acknowledged everything before it.
    send_next: u32,
    /// Next sequence number to receive.
    receive_next: u32,
    /// The sent time stamp minus CLOCK_BOOTTIME in milliseconds.
    timestamp_offset: u32,
    /// The peer's receive window, in units of its scale.
    send_window: u16,
    /// The receive window from `receive_next` on, in units of our scale.
    receive_window: u16,
    /// Maximum segment that the peer accepts.
    mss: u16,
    /// [`OPTIONS`].
    options: u8,
    /// Shift counts of both windows: the peer's in the low half, ours in the high half.
    scales: u8,
}

const _: () = assert!(size_of::<TcpState>() == 56, "beside 8 bytes of the holder");

/// Options of the handshake that a socket must get again (TCPI_OPT_*): time stamps and selective acknowledgements.
const OPTIONS: u8 = options::TIMESTAMPS | options::SACK;

/// Maximum of TCP_MAXSEG. Only loopback has larger segments.
const MAXSEG_MAX: u16 = 32_767;

/// Why a connection cannot leave the kernel now.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// It is not established in both directions.
    NotEstablished,
    /// Received bytes were not read.
    Unread,
    /// Bytes were not sent, or the peer has not acknowledged them, which it may delay by 40 ms and more.
    Unacknowledged,
    /// A link-local address, whose interface is not part of the state.
    LinkLocal,
    /// Time stamps in microseconds.
    MicrosecondTimestamps,
    /// A system call failed: EPERM without CAP_NET_ADMIN.
    System(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotEstablished => f.write_str("the connection is not established"),
            Refusal::Unread => f.write_str("received bytes were not read"),
            Refusal::Unacknowledged => f.write_str("sent bytes are not acknowledged"),
            Refusal::LinkLocal => f.write_str("a link-local address"),
            Refusal::MicrosecondTimestamps => f.write_str("time stamps in microseconds"),
            Refusal::System(error) => write!(f, "operating system: {error}"),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::System(error)
    }
}

/// A socket in repair mode: in the kernel's table, but it neither sends nor receives. Dropping this closes nothing.
#[derive(Debug)]
#[must_use]
pub struct Muted {
    fd: Fd,
}

/// Takes the state of a connection. On success the socket is mute; after a refusal it is as before.
///
/// # Errors
/// The connection is not quiet, cannot be restored, or a call failed.
pub fn checkpoint(fd: Fd, filter: Filter) -> Result<(TcpState, Muted), Refusal> {
    // Before the filter: on a listener it would stop all other processes that share it.
    if !Info::of(fd)?.is_established() {
        return Err(Refusal::NotEstablished);
    }
    let muted = Muted { fd };
    filter.attach(fd)?;
    if let Err(error) = options::start_repair(fd) {
        options::detach(fd)?;
        return Err(error.into());
    }
    match read_state(fd) {
        Ok(state) => Ok((state, muted)),
        Err(refusal) => {
            muted.release()?;
            Err(refusal)
        }
    }
}

/// Makes a state into a socket. It is complete and in the kernel's table, but mute.
///
/// # Errors
/// EADDRNOTAVAIL: another socket has both addresses, or the local address is no longer this machine's.
/// EPERM without CAP_NET_ADMIN; EACCES for a port below 1024 without CAP_NET_BIND_SERVICE.
pub fn build(state: &TcpState, filter: Filter, on_exec: OnExec) -> io::Result<Muted> {
    let family = match state.local() {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = Fd::from(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?);
    let muted = Muted { fd };
    write_state(fd, state, filter)
        .and_then(|()| fd.set_on_exec(on_exec))
        .inspect_err(|_| fd.close())?;
    Ok(muted)
}

impl Muted {
    /// Returns the socket.
    pub fn fd(&self) -> Fd {
        self.fd
    }

    /// Takes up a socket that a process muted which is gone, and perhaps released already.
    pub fn of(fd: Fd) -> Muted {
        Muted { fd }
    }

    /// Lets the socket speak. Nothing is sent by this: a connection that was quiet has nothing to say.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn release(self) -> io::Result<Fd> {
        options::end_repair(self.fd)?;
        options::detach(self.fd)?;
        // Repair mode ends with SO_REUSEADDR off, and then the port of this connection could not be listened on.
        sockopt::set_socket_reuseaddr(self.fd.borrow()?, true)?;
        Ok(self.fd)
    }

    /// Takes the socket out of the kernel's table without a packet, even if other processes have a descriptor of
    /// it. `close` alone would do so only with the last descriptor. The kernel counts it as one of `EstabResets`.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn unhash(self) -> io::Result<Fd> {
        crate::step::step();
        rustix::net::connect_unspec(self.fd.borrow()?)?;
        crate::step::step();
        Ok(self.fd)
    }
}

/// Whether a socket is in repair mode, for example because the process that built it died.
///
/// # Errors
/// The operating system's error: it is not a TCP socket, or EPERM.
pub fn is_muted(fd: Fd) -> io::Result<bool> {
    options::is_in_repair(fd)
}

/// Whether a socket is an established TCP connection.
pub fn is_established(fd: Fd) -> bool {
    Info::of(fd).is_ok_and(|info| info.is_established())
}

impl TcpState {
    /// A connection of these addresses and numbers that was never in a kernel, for those who test what packets mean.
    #[doc(hidden)]
    pub fn invented(
        local: SocketAddr,
        peer: SocketAddr,
        send_next: u32,
        receive_next: u32,
    ) -> TcpState {
        TcpState {
            local_ip: mapped(local.ip()),
            peer_ip: mapped(peer.ip()),
            local_port: local.port(),
            peer_port: peer.port(),
            send_next,
            receive_next,
            options: OPTIONS,
            ..TcpState::default()
        }
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        address(self.local_ip, self.local_port)
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> SocketAddr {
        address(self.peer_ip, self.peer_port)
    }

    /// Returns the sequence number of the next byte to send.
    pub fn send_next(&self) -> u32 {
        self.send_next
    }

    /// Returns the sequence number of the next byte to receive.
    pub fn receive_next(&self) -> u32 {
        self.receive_next
    }

    /// Returns the window for the header of a packet from this connection.
    pub fn window_field(&self) -> u16 {
        self.receive_window
    }

    /// Takes over the window of a packet from the peer.
    pub fn set_send_window(&mut self, field: u16) {
        self.send_window = field;
    }

    /// Returns the time stamp of a packet that is sent now; `None` if the connection has none. A later call returns no
    /// smaller one, and neither does the restored socket.
    pub fn timestamp(&self) -> Option<u32> {
        let is_used = self.options & options::TIMESTAMPS != 0;
        // Two milliseconds ahead, and even: an odd one would mean microseconds to TCP_TIMESTAMP.
        let now = (boottime_ms() as u32).wrapping_add(2);
        is_used.then(|| self.timestamp_offset.wrapping_add(now) & !1)
    }

    fn send_scale(&self) -> u8 {
        self.scales & 15
    }

    fn receive_scale(&self) -> u8 {
        self.scales >> 4
    }
}

fn address(ip: [u8; 16], port: u16) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
}

/// Reads the state of a mute socket.
fn read_state(fd: Fd) -> Result<TcpState, Refusal> {
    // Including what came out of order: the peer was told of it, and would not soon send it again.
    if socket::queues(fd)?.received != 0 {
        return Err(Refusal::Unread);
    }
    let info = Info::of(fd)?;
    if !info.is_established() {
        return Err(Refusal::NotEstablished);
    }
    if info.unacknowledged != 0 || socket::unsent(fd)? != 0 {
        return Err(Refusal::Unacknowledged);
    }
    if info.options & options::MICROSECONDS != 0 {
        return Err(Refusal::MicrosecondTimestamps);
    }
    let (Addr::Tcp(local), Peer::Tcp(peer)) = (Addr::local(fd)?, Peer::of(fd)?) else {
        return Err(Refusal::NotEstablished);
    };
    let is_link_local =
        |address: SocketAddr| matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0);
    if is_link_local(local) || is_link_local(peer) {
        return Err(Refusal::LinkLocal);
    }
    let receive_next = options::sequence_number(fd, Queue::Receive)?;
    let window = Window::of(fd)?;
    let (send_scale, receive_scale) = info.scales();
    let promised = window.right_edge().wrapping_sub(receive_next);
    // Reading the clock after the socket: never ahead of it, by as long as this process was interrupted.
    let timestamp = options::timestamp(fd)?.wrapping_sub(boottime_ms() as u32);
    Ok(TcpState {
        local_ip: mapped(local.ip()),
        peer_ip: mapped(peer.ip()),
        local_port: local.port(),
        peer_port: peer.port(),
        send_next: options::sequence_number(fd, Queue::Send)?,
        receive_next,
        timestamp_offset: timestamp,
        // The window of a SYN is not scaled: rounded down, because a smaller window harms nobody.
        send_window: saturated(window.send_window >> send_scale),
        receive_window: saturated(promised.div_ceil(1 << receive_scale)),
        mss: saturated(options::maximum_segment(fd)?),
        options: info.options & OPTIONS,
        scales: send_scale | receive_scale << 4,
    })
}

fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn saturated(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// Makes a new socket into this connection.
fn write_state(fd: Fd, state: &TcpState, filter: Filter) -> io::Result<()> {
    options::start_repair(fd)?;
    let socket = fd.borrow()?;
    rustix::net::bind(socket, &state.local())?;
    options::set_sequence_number(fd, Queue::Receive, state.receive_next)?;
    options::set_sequence_number(fd, Queue::Send, state.send_next)?;
    // Before connect, or the segments stay at 524 bytes.
    options::set_maximum_segment(fd, state.mss.min(MAXSEG_MAX))?;
    filter.attach(fd)?;
    rustix::net::connect(socket, &state.peer())?;
    // The scales always, 0 if there were none: connect has chosen its own for the receive window.
    options::set_options(
        fd,
        (state.send_scale(), state.receive_scale()),
        state.options,
        state.mss,
    )?;
    if let Some(timestamp) = state.timestamp() {
        options::set_timestamp(fd, timestamp)?;
    }
    Window {
        send_update: state.receive_next,
        send_window: u32::from(state.send_window) << state.send_scale(),
        send_window_max: u32::from(state.send_window) << state.send_scale(),
        receive_window: u32::from(state.receive_window) << state.receive_scale(),
        receive_update: state.receive_next,
    }
    .set(fd)?;
    socket::set_nodelay(fd, true)
}

#[cfg(test)]
mod tests;
