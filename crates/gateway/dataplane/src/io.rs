//! The interface between the data path and the operating system.
//!
//! The worker names sockets by plain numbers ([`Fd`]) and passes them to its `Io`. [`OsIo`] is the
//! real implementation: each method is one call of `dormouse_reactor`, dispatched statically. A
//! simulation implements the trait with connections of its own, which cut, block, fail and reset
//! according to its seed; its numbers need not be descriptors. It kills a worker by unwinding out of
//! one of these methods, so nothing here or in the worker may repair anything on drop.
//!
//! Methods take `&self`; an implementation with state keeps it in cells.
//!
//! The trait leaves out what works in a test without processes: the slab, pending memory, shared
//! tables, and the handover, which a reload reads from a memory file.

use dormouse_engine::{AgreementBatches, Handshake, NoBatches, UnixTime};
use dormouse_handover::orders::{self, Order, WorkerReport};
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::{
    self, Accepted, Addr, Attempt, ConnectOptions, Connecting, Peer, Queues, Received,
};
use dormouse_reactor::{Fd, OnExec, descriptors, process};
use dormouse_rest as rest;
use dormouse_routes::socket_options::SocketOptions;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::SystemTime;

/// The operating system, as the data path sees it.
pub trait Io {
    // ---- bytes ----

    /// Receives into `buf`; 0 bytes mean that the peer has closed its direction.
    fn recv(&self, fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>>;

    /// Receives into these ranges of `buf`, in order; 0 bytes mean that the peer has closed its
    /// direction.
    fn recv_scattered(
        &self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<usize>>;

    /// Copies into `buf` the bytes that the next receive will return, and leaves them in the queue.
    fn peek(&self, fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>>;

    /// Sends `buf`, or its beginning.
    fn send(&self, fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>>;

    /// Sends like [`Io::send`]; more bytes follow at once, so the kernel may wait to fill a segment.
    fn send_before_more(&self, fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>>;

    /// Sends these ranges of `buf` in order, or their beginning.
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

    /// Takes the pending error of a socket, if any: after a connect, the connect's result.
    fn take_error(&self, fd: Fd) -> io::Result<()>;

    /// Closes the sending direction.
    fn shutdown_write(&self, fd: Fd) -> io::Result<()>;

    /// Closes a socket with a reset.
    fn reset(&self, fd: Fd);

    /// Makes a later close of a socket, also by a successor, a reset.
    fn reset_on_close(&self, fd: Fd);

    /// Closes a socket; the kernel still sends its queued bytes.
    fn close(&self, fd: Fd);

    /// Returns the socket's cookie: a number that no other socket of this machine ever has.
    fn cookie(&self, fd: Fd) -> io::Result<u64>;

    /// Returns the address of the other end.
    fn peer(&self, fd: Fd) -> io::Result<Peer>;

    /// Returns the address of this end.
    fn local_address(&self, fd: Fd) -> io::Result<Addr>;

    // ---- joints: the plain sides of two connections of this worker ----

    /// Creates both ends of a joint.
    fn joint(&self) -> io::Result<(Fd, Fd)>;

    /// Marks the end of the data for the other end; `any` is any descriptor of this process.
    fn end_joint(&self, fd: Fd, any: Fd) -> io::Result<()>;

    /// Receives from a joint, and reports whether the data has ended.
    fn recv_from_joint(
        &self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<Received>>;

    // ---- kernel queues ----

    /// Bytes that were sent and are not acknowledged by the peer yet.
    fn unsent(&self, fd: Fd) -> io::Result<usize>;

    /// Bytes in the receive queue.
    fn received_unread(&self, fd: Fd) -> io::Result<usize>;

    /// Bytes that the kernel has not sent, because the peer's window or the network is full.
    fn held_back(&self, fd: Fd) -> io::Result<usize>;

    /// Sets whether the poller reports a socket as writable only when nothing is held back. Unix sockets refuse.
    fn set_writable_when_drained(&self, fd: Fd, on: bool) -> io::Result<()>;

    /// Kernel memory of both queues.
    fn queues(&self, fd: Fd) -> io::Result<Queues>;

    // ---- options ----

    /// Applies the options to a connection accepted from a client.
    fn set_client_options(&self, options: &SocketOptions, fd: Fd);

    /// Applies the options to a connection to a backend.
    fn set_backend_options(&self, options: &SocketOptions, fd: Fd, backend: &Addr);

    /// Applies the options to a connection to a TLS server.
    fn set_server_options(&self, options: &SocketOptions, fd: Fd);

    /// Limits the buffers of a socket that has inherited nothing.
    fn set_buffers(&self, options: &SocketOptions, fd: Fd);

    // ---- readiness ----

    /// The descriptor of the poller, which the next worker adopts.
    fn poller(&self) -> Fd;

    /// Starts to watch a socket.
    fn watch(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()>;

    /// Starts to watch a listener that other workers also watch.
    fn watch_listener(&self, listener: Fd, token: u64) -> io::Result<()>;

    /// Changes a socket's interest and token.
    fn rewatch(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()>;

    /// Stops watching a socket.
    fn unwatch(&self, fd: Fd) -> io::Result<()>;

    /// Waits until a descriptor is ready, or for `timeout_ms`.
    fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<()>;

    // ---- clocks ----

    /// CLOCK_BOOTTIME, the clock of slots and timers.
    fn boottime_ms(&self) -> u64;

    /// CLOCK_MONOTONIC, for durations.
    fn monotonic_us(&self) -> u64;

    /// The time of day, for certificates and tickets.
    fn unix_time(&self) -> UnixTime;

    /// The time of day in milliseconds, for log lines.
    fn unix_ms(&self) -> u64;

    // ---- the process ----

    /// The current limit of open descriptors.
    fn descriptors_max(&self) -> u64;

    /// Closes every descriptor that is not in `known`. Sorts `known`.
    fn close_all_but(&self, known: &mut [Fd]) -> io::Result<()>;

    /// Returns free heap memory to the system.
    fn return_heap(&self);

    /// Returns a random number; not for secrets.
    fn random(&self) -> u64;

    /// Returns what computes the key agreements of several handshakes together, if this machine can do so.
    fn agreement_batches(&self) -> Option<AgreementBatches>;

    // ---- the main process ----

    /// Receives the next order from main, if there is one.
    fn receive_order(&self, channel: Fd) -> io::Result<Option<Order>>;

    /// Sends a report to main. `false`: the channel is full.
    fn send_report(&self, channel: Fd, report: &WorkerReport) -> bool;

    // ---- the repair process ----

    /// Sends a message, with a copy of this descriptor.
    fn send_to_repair(
        &self,
        channel: Fd,
        message: rest::Message,
        fd: Option<Fd>,
    ) -> io::Result<Attempt<()>>;

    /// Returns the next message and its descriptor, if there is one. The message stays in the channel.
    fn peek_from_repair(&self, channel: Fd) -> io::Result<Option<(rest::Message, Option<Fd>)>>;

    /// Removes the next message from the channel.
    fn take_from_repair(&self, channel: Fd) -> io::Result<()>;
}

/// The real operating system: Linux.
pub(crate) struct OsIo {
    poller: Poller,
}

impl OsIo {
    /// Uses the predecessor's poller if there was one and it is valid, else a new one.
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

    fn reset_on_close(&self, fd: Fd) {
        socket::reset_on_close(fd);
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

    fn held_back(&self, fd: Fd) -> io::Result<usize> {
        socket::held_back(fd)
    }

    fn set_writable_when_drained(&self, fd: Fd, on: bool) -> io::Result<()> {
        socket::set_writable_when_drained(fd, on)
    }

    fn queues(&self, fd: Fd) -> io::Result<Queues> {
        socket::queues(fd)
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

    fn set_buffers(&self, options: &SocketOptions, fd: Fd) {
        options.apply_buffers(fd);
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
        dormouse_handover::unix_time()
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

    fn agreement_batches(&self) -> Option<AgreementBatches> {
        match AgreementBatches::detect() {
            Ok(batches) => return Some(batches),
            Err(why @ NoBatches::CpuLacksIfma) => {
                tracing::debug!(%why, "key agreements are not batched");
            }
            Err(why @ NoBatches::Disagrees) => {
                tracing::error!(%why, "key agreements are not batched");
            }
        }
        None
    }

    fn receive_order(&self, channel: Fd) -> io::Result<Option<Order>> {
        orders::receive_order(channel)
    }

    fn send_report(&self, channel: Fd, report: &WorkerReport) -> bool {
        orders::send_report(channel, report)
    }

    fn send_to_repair(
        &self,
        channel: Fd,
        message: rest::Message,
        fd: Option<Fd>,
    ) -> io::Result<Attempt<()>> {
        let fds: &[Fd] = fd.as_slice();
        socket::send_message(channel, &message.to_bytes(), fds)
    }

    fn peek_from_repair(&self, channel: Fd) -> io::Result<Option<(rest::Message, Option<Fd>)>> {
        let mut bytes = [0; rest::MESSAGE_LEN];
        let Attempt::Done(received) = socket::peek_message(channel, &mut bytes, OnExec::Keep)?
        else {
            return Ok(None);
        };
        let message = bytes
            .get(..received.len)
            .and_then(rest::Message::from_bytes);
        let message = message.ok_or_else(|| io::Error::other("an invalid message"))?;
        Ok(Some((message, received.descriptors.first().copied())))
    }

    fn take_from_repair(&self, channel: Fd) -> io::Result<()> {
        let mut bytes = [0; rest::MESSAGE_LEN];
        if let Attempt::Done(received) =
            socket::receive_message(channel, &mut bytes, OnExec::Close)?
        {
            received.descriptors.into_iter().for_each(Fd::close);
        }
        Ok(())
    }
}

/// Receives and discards bytes: closing a socket with unread bytes would send a reset, which could
/// overtake our last record. Returns `true` if the peer has closed its direction, or sends so much
/// that it does not read.
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

/// Sends the handshake's output. Returns `true` if the socket took all of it.
pub(crate) fn flush_handshake(io: &impl Io, fd: Fd, handshake: &mut Handshake) -> io::Result<bool> {
    while !handshake.output().is_empty() {
        let sent = if handshake.output_can_wait() {
            io.send_before_more(fd, handshake.output())
        } else {
            io.send(fd, handshake.output())
        };
        match sent {
            Ok(Attempt::Done(n)) => handshake.output_sent(n),
            Ok(Attempt::WouldBlock) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// The address of a socket's peer. `None`: a unix socket, or a closed connection.
pub(crate) fn peer_address(io: &impl Io, fd: Fd) -> Option<SocketAddr> {
    match io.peer(fd) {
        Ok(Peer::Tcp(address)) => Some(address),
        Ok(Peer::Unix) | Err(_) => None,
    }
}

/// The address of a socket's peer for the log, looked up when the line is written.
pub(crate) struct PeerName<'a, I> {
    io: &'a I,
    fd: Fd,
}

impl<'a, I: Io> PeerName<'a, I> {
    /// The peer of the socket `fd`.
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
