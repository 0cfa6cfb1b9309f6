//! Everything that the data path asks of the operating system.
//!
//! The worker names sockets by plain numbers ([`Fd`]), and asks its `Io` to do something with them.
//! [`OsIo`] is the real one: each method is one call of `dormouse_reactor`, dispatched statically. A
//! simulation implements the trait with connections of its own, which cut, block, fail and reset
//! as its seed says; its numbers need not be descriptors. A worker that is killed is an unwinding
//! out of any of these methods: nothing here or in the worker repairs anything on drop.
//!
//! Methods take `&self`: an implementation that keeps state keeps it in cells.
//!
//! What is not here works in a test without processes: the slab, pending memory, shared tables, and
//! the handover, which a reload reads from a memory file.

use dormouse_engine::UnixTime;
use dormouse_handover::orders::{self, Order, WorkerReport};
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::{
    self, Accepted, Addr, Attempt, ConnectOptions, Connecting, Peer, Received,
};
use dormouse_reactor::{Fd, OnExec, descriptors, process};
use dormouse_routes::socket_options::SocketOptions;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::ops::Range;
use std::time::SystemTime;

/// The operating system, as the data path sees it.
pub trait Io {
    // ---- bytes ----

    /// Receives into `buf`; 0 bytes are the peer's end.
    fn recv(&self, fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>>;

    /// Receives into these ranges of `buf`, one after the other; 0 bytes are the peer's end.
    fn recv_scattered(
        &self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<usize>>;

    /// Reads into `buf` what the next receive will return, and leaves it there.
    fn peek(&self, fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>>;

    /// Sends a beginning of `buf`.
    fn send(&self, fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>>;

    /// As [`Io::send`]; more follows at once, so the kernel may wait to fill a segment.
    fn send_before_more(&self, fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>>;

    /// Sends a beginning of these ranges of `buf`, one after the other.
    fn send_gathered(
        &self,
        fd: Fd,
        buf: &[u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<usize>>;

    // ---- connections ----

    /// Accepts a connection from a listener.
    fn accept(&self, listener: Fd) -> io::Result<Attempt<Accepted>>;

    /// Starts to connect.
    fn connect(&self, to: &Addr, options: &ConnectOptions) -> io::Result<Connecting>;

    /// Takes the error that a socket has met, if any: after a connect, the connect's.
    fn take_error(&self, fd: Fd) -> io::Result<()>;

    /// Ends the sending direction.
    fn shutdown_write(&self, fd: Fd) -> io::Result<()>;

    /// Closes a socket, and makes its peer see a reset.
    fn reset(&self, fd: Fd);

    /// Closes a socket; what the kernel has queued is still sent.
    fn close(&self, fd: Fd);

    /// A number that no other socket of this machine has had or will have.
    fn cookie(&self, fd: Fd) -> io::Result<u64>;

    /// The address of the other end.
    fn peer(&self, fd: Fd) -> io::Result<Peer>;

    /// The address of this end.
    fn local_address(&self, fd: Fd) -> io::Result<Addr>;

    // ---- joints: the plain sides of two connections of this worker ----

    /// Creates both ends of a joint.
    fn joint(&self) -> io::Result<(Fd, Fd)>;

    /// Tells the other end that nothing more follows; `any` is a descriptor of this process.
    fn end_joint(&self, fd: Fd, any: Fd) -> io::Result<()>;

    /// Receives from a joint, and says whether that was the end.
    fn recv_from_joint(
        &self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<Received>>;

    // ---- what the kernel holds ----

    /// Bytes that were sent and not acknowledged by the peer yet.
    fn unsent(&self, fd: Fd) -> io::Result<usize>;

    /// Bytes that have come and were not received yet.
    fn received_unread(&self, fd: Fd) -> io::Result<usize>;

    /// Kernel memory of the send queue.
    fn send_memory(&self, fd: Fd) -> io::Result<usize>;

    // ---- options ----

    /// Sets a connection that was accepted from a client.
    fn set_client_options(&self, options: &SocketOptions, fd: Fd);

    /// Sets a connection to a backend.
    fn set_backend_options(&self, options: &SocketOptions, fd: Fd, backend: &Addr);

    /// Sets a connection to a TLS server.
    fn set_server_options(&self, options: &SocketOptions, fd: Fd);

    // ---- readiness ----

    /// The descriptor of the poller, which the next worker adopts.
    fn poller(&self) -> Fd;

    /// Starts to watch a socket.
    fn watch(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()>;

    /// Starts to watch a listener that other workers watch, too.
    fn watch_listener(&self, listener: Fd, token: u64) -> io::Result<()>;

    /// Changes what a socket is watched for, and its token.
    fn rewatch(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()>;

    /// Stops to watch a socket.
    fn unwatch(&self, fd: Fd) -> io::Result<()>;

    /// Waits until something is ready, or for `timeout_ms`.
    fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<()>;

    // ---- clocks ----

    /// CLOCK_BOOTTIME: what slots and timers count in.
    fn boottime_ms(&self) -> u64;

    /// CLOCK_MONOTONIC: how long something took.
    fn monotonic_us(&self) -> u64;

    /// The time of day: what certificates and tickets count in.
    fn unix_time(&self) -> UnixTime;

    /// The time of day in milliseconds: what log lines say.
    fn unix_ms(&self) -> u64;

    // ---- the process ----

    /// Descriptors that this process may have now.
    fn descriptors_max(&self) -> u64;

    /// Closes every descriptor but these. Sorts them.
    fn close_all_but(&self, known: &mut [Fd]) -> io::Result<()>;

    /// Gives free heap memory back to the system.
    fn return_heap(&self);

    /// A random number; not for secrets.
    fn random(&self) -> u64;

    // ---- the main process ----

    /// The next order of the main process, if there is one.
    fn receive_order(&self, channel: Fd) -> io::Result<Option<Order>>;

    /// Says something to the main process.
    fn send_report(&self, channel: Fd, report: &WorkerReport);
}

/// Linux.
pub(crate) struct OsIo {
    poller: Poller,
}

impl OsIo {
    /// Goes on with the poller of a former worker, if there was one and it is still good.
    pub(crate) fn adopt(former: Fd) -> io::Result<OsIo> {
        let poller = match former {
            Fd::NONE => Poller::create(OnExec::Keep),
            fd => Poller::adopt(fd).or_else(|_| Poller::create(OnExec::Keep)),
        };
        Ok(OsIo { poller: poller? })
    }
}

impl Io for OsIo {
    #[inline]
    fn recv(&self, fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
        socket::recv(fd, buf)
    }

    #[inline]
    fn recv_scattered(
        &self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<usize>> {
        socket::recv_scattered(fd, buf, ranges)
    }

    #[inline]
    fn peek(&self, fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
        socket::peek(fd, buf)
    }

    #[inline]
    fn send(&self, fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>> {
        socket::send(fd, buf)
    }

    #[inline]
    fn send_before_more(&self, fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>> {
        socket::send_before_more(fd, buf)
    }

    #[inline]
    fn send_gathered(
        &self,
        fd: Fd,
        buf: &[u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<usize>> {
        socket::send_gathered(fd, buf, ranges)
    }

    fn accept(&self, listener: Fd) -> io::Result<Attempt<Accepted>> {
        socket::accept(listener, OnExec::Keep)
    }

    fn connect(&self, to: &Addr, options: &ConnectOptions) -> io::Result<Connecting> {
        socket::connect(to, options)
    }

    fn take_error(&self, fd: Fd) -> io::Result<()> {
        socket::take_error(fd)
    }

    fn shutdown_write(&self, fd: Fd) -> io::Result<()> {
        socket::shutdown_write(fd)
    }

    fn reset(&self, fd: Fd) {
        socket::reset(fd);
    }

    fn close(&self, fd: Fd) {
        fd.close();
    }

    fn cookie(&self, fd: Fd) -> io::Result<u64> {
        socket::cookie(fd)
    }

    fn peer(&self, fd: Fd) -> io::Result<Peer> {
        Peer::of(fd)
    }

    fn local_address(&self, fd: Fd) -> io::Result<Addr> {
        Addr::local(fd)
    }

    fn joint(&self) -> io::Result<(Fd, Fd)> {
        socket::joint(OnExec::Keep)
    }

    fn end_joint(&self, fd: Fd, any: Fd) -> io::Result<()> {
        socket::send_end(fd, any)
    }

    fn recv_from_joint(
        &self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<Received>> {
        socket::recv_from_joint(fd, buf, ranges)
    }

    fn unsent(&self, fd: Fd) -> io::Result<usize> {
        socket::unsent(fd)
    }

    fn received_unread(&self, fd: Fd) -> io::Result<usize> {
        socket::received_unread(fd)
    }

    fn send_memory(&self, fd: Fd) -> io::Result<usize> {
        socket::send_memory(fd)
    }

    fn set_client_options(&self, options: &SocketOptions, fd: Fd) {
        options.apply_to_client(fd);
    }

    fn set_backend_options(&self, options: &SocketOptions, fd: Fd, backend: &Addr) {
        options.apply_to_backend(fd, backend);
    }

    fn set_server_options(&self, options: &SocketOptions, fd: Fd) {
        options.apply(fd);
    }

    fn poller(&self) -> Fd {
        self.poller.fd()
    }

    fn watch(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        self.poller.add(fd, token, interest)
    }

    fn watch_listener(&self, listener: Fd, token: u64) -> io::Result<()> {
        self.poller.add_exclusive(listener, token)
    }

    fn rewatch(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        self.poller.modify(fd, token, interest)
    }

    fn unwatch(&self, fd: Fd) -> io::Result<()> {
        self.poller.remove(fd)
    }

    #[inline]
    fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<()> {
        self.poller.wait(events, timeout_ms)
    }

    #[inline]
    fn boottime_ms(&self) -> u64 {
        process::boottime_ms()
    }

    #[inline]
    fn monotonic_us(&self) -> u64 {
        process::monotonic_us()
    }

    fn unix_time(&self) -> UnixTime {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        UnixTime::since_unix_epoch(since)
    }

    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_millis() as u64
    }

    fn descriptors_max(&self) -> u64 {
        descriptors::limits().soft
    }

    fn close_all_but(&self, known: &mut [Fd]) -> io::Result<()> {
        descriptors::close_all_but(known)
    }

    fn return_heap(&self) {
        process::return_heap();
    }

    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    fn receive_order(&self, channel: Fd) -> io::Result<Option<Order>> {
        orders::receive_order(channel)
    }

    fn send_report(&self, channel: Fd, report: &WorkerReport) {
        orders::send_report(channel, report);
    }
}

/// Reads and forgets, so that closing does not turn into a reset which overtakes our last record.
/// `true`: the peer has ended its side, or sends so much that it is not listening.
pub(crate) fn discard(io: &impl Io, fd: Fd, scratch: &mut [u8]) -> bool {
    for _ in 0..4 {
        match io.recv(fd, scratch) {
            Ok(Attempt::Done(0)) | Err(_) => return true,
            Ok(Attempt::Done(_)) => {}
            Ok(Attempt::WouldBlock) => return false,
        }
    }
    true
}

/// The other end of a socket, as the log names it. It is asked for when the line is written.
pub(crate) struct PeerName<'a, I> {
    io: &'a I,
    fd: Fd,
}

impl<'a, I: Io> PeerName<'a, I> {
    /// The peer of `fd`.
    pub(crate) fn new(io: &'a I, fd: Fd) -> PeerName<'a, I> {
        PeerName { io, fd }
    }
}

impl<I: Io> fmt::Display for PeerName<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.io.peer(self.fd) {
            Ok(peer) => peer.fmt(f),
            Err(_) => f.write_str("gone"),
        }
    }
}
