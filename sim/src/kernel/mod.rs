//! The simulated kernel: sockets, descriptors, readiness and time, determined by a seed.
//!
//! ```text
//!   stream       two ends and the queues between them     descriptors  the shared table
//!   poller       which descriptors are watched            faults       faults and defects
//!   polling      readiness, and waits for it              peers        what clients and backends do
//!   repair       the state of tcp-repair                  repair_steps what it does, step by step
//! ```

mod descriptors;
pub(crate) mod errno;
mod faults;
mod peers;
mod poller;
mod polling;
mod repair;
mod repair_steps;
mod stream;

pub use faults::{Faults, Sabotage};
pub(crate) use repair::Repair;
pub use repair::RepairCounts;
pub use stream::Buffers;
pub(crate) use stream::{EndId, Family};

use crate::Random;
use descriptors::{Descriptors, File};
use dormouse_handover::orders::{Order, WorkerReport};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{Accepted, Addr, Attempt, Connecting, Peer, Queues, Received};
use errno::error;
use poller::Poller;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use stream::{Phase, Streams};

/// First socket cookie; different from all descriptors and ids of ends.
const FIRST_COOKIE: u64 = 7_000_000;

/// Longest duration of a slow connect.
const CONNECT_US: usize = 300_000;

/// A connect in progress: when it completes, and with which result.
#[derive(Clone, Copy, Debug)]
struct PendingConnect {
    end: EndId,
    at_us: u64,
    errno: Option<i32>,
    backend: usize,
}

/// A listener, to which clients connect.
#[derive(Debug)]
struct Listener {
    queue: VecDeque<EndId>,
    address: SocketAddr,
}

/// A backend, to which the worker connects.
#[derive(Debug)]
struct Backend {
    address: Addr,
    family: Family,
    /// Connections that the backend has not accepted yet.
    queue: VecDeque<EndId>,
}

/// The simulated kernel.
pub(crate) struct Kernel {
    random: Random,
    /// The faults.
    pub(crate) faults: Faults,
    /// The deliberate defect.
    pub(crate) sabotage: Option<Sabotage>,
    /// Whether faults are off: the world checks whether anything still moves.
    pub(crate) calm: bool,
    /// Whether each call is written to standard error.
    pub(crate) traced: bool,
    /// Sizes of all queues.
    pub(crate) buffers: Buffers,
    streams: Streams,
    descriptors: Descriptors,
    poller: Poller,
    poller_fd: Fd,
    listeners: Vec<Listener>,
    backends: Vec<Backend>,
    connecting: Vec<PendingConnect>,
    /// Ends with bytes or a FIN to deliver.
    undelivered: BTreeSet<EndId>,
    clock_us: u64,
    /// The end of the worker's wait, if no event ends it earlier.
    pub(crate) wake_us: Option<u64>,
    /// Whether the worker's last wait has reported an event.
    pub(crate) has_reported: bool,
    /// Number of the worker's waits, and of events reported to it.
    pub(crate) waits: u64,
    pub(crate) reported: u64,
    /// Orders for the worker, and its reports.
    pub(crate) orders: VecDeque<Order>,
    pub(crate) reports: Vec<WorkerReport>,
    next_port: u16,
    /// Whether key agreements are computed together.
    pub(crate) has_batches: bool,
    /// The process tcp-repair, if connections may rest.
    pub(crate) repair: Option<Repair>,
}

impl Kernel {
    /// A kernel without sockets.
    pub(crate) fn new(seed: u64, faults: Faults, buffers: Buffers) -> Kernel {
        let mut descriptors = Descriptors::new();
        let poller_fd = descriptors.open(File::Poller).unwrap_or(Fd::NONE);
        Kernel {
            random: Random::new(seed),
            faults,
            sabotage: None,
            calm: false,
            traced: false,
            buffers,
            streams: Streams::default(),
            descriptors,
            poller: Poller::default(),
            poller_fd,
            listeners: Vec::new(),
            backends: Vec::new(),
            connecting: Vec::new(),
            undelivered: BTreeSet::new(),
            clock_us: 1_000_000_000,
            wake_us: None,
            has_reported: false,
            waits: 0,
            reported: 0,
            orders: VecDeque::new(),
            reports: Vec::new(),
            next_port: 1_024,
            has_batches: seed.is_multiple_of(2),
            repair: None,
        }
    }

    // ---- for the world ----

    /// Opens a listening socket of the worker.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> io::Result<Fd> {
        self.listeners.push(Listener {
            queue: VecDeque::new(),
            address,
        });
        self.descriptors
            .open(File::Listener(self.listeners.len() - 1))
    }

    /// Opens another descriptor of a listening socket.
    pub(crate) fn pass_listener(&mut self, listener: usize) -> io::Result<Fd> {
        self.descriptors.open(File::Listener(listener))
    }

    /// Closes the listeners, main's too: connections that are not accepted are reset.
    pub(crate) fn close_listeners(&mut self) {
        for listener in &mut self.listeners {
            for end in std::mem::take(&mut listener.queue) {
                self.streams.reset(end);
            }
        }
    }

    /// Opens a connection of the worker that is established already. Returns the worker's end.
    pub(crate) fn open_established(&mut self, family: Family) -> io::Result<(Fd, EndId)> {
        let ends = [self.new_address(), self.new_address()].map(|address| (address, self.buffers));
        let end = self.streams.create(family, Phase::Open, ends);
        Ok((self.descriptors.open(File::Stream(end))?, end))
    }

    /// Opens the worker's channel to main.
    pub(crate) fn open_orders(&mut self) -> io::Result<Fd> {
        self.descriptors.open(File::Orders)
    }

    /// Adds a backend.
    pub(crate) fn add_backend(&mut self, address: Addr) -> usize {
        let family = match address {
            Addr::Tcp(_) => Family::Tcp,
            Addr::Unix(_) => Family::Unix,
        };
        self.backends.push(Backend {
            address,
            family,
            queue: VecDeque::new(),
        });
        self.backends.len() - 1
    }

    /// The type of a socket.
    pub(crate) fn family(&self, end: EndId) -> Family {
        self.streams.family(end)
    }

    /// Delivers some of the sent bytes, or all of them if faults are off. Completes due connects.
    pub(crate) fn deliver(&mut self) {
        let ends: Vec<EndId> = self.undelivered.iter().copied().collect();
        for end in ends {
            // Its packets find no socket, or a mute one.
            if self.is_silent(end.other()) || (!self.calm && self.random.once_in(3)) {
                continue;
            }
            let most = match self.calm || self.random.once_in(2) {
                true => usize::MAX,
                false => 1 + self.random.below(2_000),
            };
            self.streams.deliver(end, most);
            if !self.streams.has_undelivered(end) {
                self.undelivered.remove(&end);
            }
        }
        self.complete_connects();
    }

    fn complete_connects(&mut self) {
        let now_us = self.clock_us;
        let is_due = |connect: &PendingConnect| connect.at_us <= now_us;
        let due: Vec<PendingConnect> = self.connecting.iter().copied().filter(is_due).collect();
        self.connecting.retain(|connect| !is_due(connect));
        for connect in due {
            if self.streams.phase(connect.end) != Phase::Connecting {
                continue;
            }
            match connect.errno {
                Some(errno) => self.streams.fail(connect.end, errno),
                None => {
                    self.streams.establish(connect.end);
                    let queue = &mut self.backends[connect.backend].queue;
                    queue.push_back(connect.end.other());
                }
            }
        }
    }

    /// Number of state changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.streams.changes
    }

    /// The clock in microseconds.
    pub(crate) fn clock_us(&self) -> u64 {
        self.clock_us
    }

    /// Advances the clock.
    pub(crate) fn advance_to(&mut self, us: u64) {
        self.clock_us = self.clock_us.max(us);
        self.streams.changes += 1;
    }

    /// The time at which the next connect completes.
    pub(crate) fn next_connect_us(&self) -> Option<u64> {
        self.connecting.iter().map(|connect| connect.at_us).min()
    }

    /// The worker's ends, by descriptor.
    pub(crate) fn worker_ends(&self) -> Vec<(Fd, EndId)> {
        let all = self.descriptors.all();
        all.filter_map(|(fd, file)| match file {
            File::Stream(end) => Some((fd, end)),
            _ => None,
        })
        .collect()
    }

    /// Whether connections wait to be accepted, including those whose client has closed.
    pub(crate) fn has_unaccepted(&self) -> bool {
        self.listeners
            .iter()
            .any(|listener| !listener.queue.is_empty())
    }

    /// Limits the number of open descriptors.
    pub(crate) fn limit_descriptors(&mut self, max: u64) {
        self.descriptors.max = max;
    }

    fn new_address(&mut self) -> SocketAddr {
        self.next_port = self.next_port.wrapping_add(1).max(1_024);
        let host = 1 + self.random.below(3) as u8;
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, host), self.next_port))
    }

    fn note_undelivered(&mut self, end: EndId) {
        if self.streams.has_undelivered(end) {
            self.undelivered.insert(end);
        }
    }

    fn happens(&mut self, once_in: usize) -> bool {
        !self.calm && once_in > 0 && self.random.once_in(once_in)
    }

    /// The limit for a call that moves `len` bytes. `None`: it would block.
    fn portion(&mut self, len: usize) -> Option<usize> {
        if self.happens(self.faults.would_block) {
            return None;
        }
        match self.happens(self.faults.partial) {
            true => Some(1 + self.random.below(len.max(1))),
            false => Some(usize::MAX),
        }
    }

    fn end_of(&self, fd: Fd) -> io::Result<EndId> {
        match self.descriptors.get(fd)? {
            File::Stream(end) => Ok(end),
            _ => Err(error(errno::BAD_DESCRIPTOR)),
        }
    }
}

/// System calls of the worker.
impl Kernel {
    pub(crate) fn recv(
        &mut self,
        fd: Fd,
        buf: &mut [u8],
        keep: bool,
    ) -> io::Result<Attempt<usize>> {
        let end = self.end_of(fd)?;
        let Some(most) = self.portion(buf.len()) else {
            return Ok(Attempt::WouldBlock);
        };
        let received = self.streams.recv(end, buf, most, keep);
        self.note_undelivered(end.other());
        received
    }

    pub(crate) fn recv_scattered(
        &mut self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<usize>> {
        let room: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        let unread = self.streams.unread(self.end_of(fd)?);
        let mut whole = vec![0; unread.clamp(1, room.max(1))];
        let received = self.recv(fd, &mut whole, false)?;
        if let Attempt::Done(n) = received {
            let mut rest = &whole[..n];
            for range in ranges {
                let (piece, after) = rest.split_at(range.len().min(rest.len()));
                buf[range.start..range.start + piece.len()].copy_from_slice(piece);
                rest = after;
            }
        }
        Ok(received)
    }

    pub(crate) fn recv_from_joint(
        &mut self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<Received>> {
        let end = self.end_of(fd)?;
        if self.streams.unread(end) == 0 && self.streams.take_end_mark(end) {
            return Ok(Attempt::Done(Received {
                bytes: 0,
                is_end: true,
            }));
        }
        match self.recv_scattered(fd, buf, ranges)? {
            Attempt::Done(0) => Err(error(errno::RESET)),
            Attempt::Done(bytes) => Ok(Attempt::Done(Received {
                bytes,
                is_end: self.streams.take_end_mark(end),
            })),
            Attempt::WouldBlock => Ok(Attempt::WouldBlock),
        }
    }

    pub(crate) fn send(&mut self, fd: Fd, bytes: &[u8]) -> io::Result<Attempt<usize>> {
        let end = self.end_of(fd)?;
        assert!(!self.is_silent(end), "the worker sends to a mute socket");
        // An empty unix socket accepts a byte, unless the kernel is out of memory.
        let is_empty = self.streams.family(end) == Family::Unix && self.streams.unsent(end) == 0;
        let portion = match is_empty && self.happens(self.faults.joint_would_block) {
            true => None,
            false => self.portion(bytes.len()).or(is_empty.then_some(1)),
        };
        let Some(most) = portion else {
            self.streams.note_refused(end);
            return Ok(Attempt::WouldBlock);
        };
        let sent = match self.sabotage {
            Some(sabotage) => self.send_sabotaged(sabotage, end, bytes, most),
            None => self.streams.send(end, bytes, most),
        };
        self.note_undelivered(end);
        sent
    }

    fn send_sabotaged(
        &mut self,
        sabotage: Sabotage,
        end: EndId,
        bytes: &[u8],
        most: usize,
    ) -> io::Result<Attempt<usize>> {
        let happens = self.random.once_in(40) && bytes.len() > 1;
        let mut other = bytes.to_vec();
        match sabotage {
            Sabotage::LoseByte if happens => {
                other.pop();
                let sent = self.streams.send(end, &other, usize::MAX)?;
                return Ok(match sent {
                    Attempt::Done(n) if n == other.len() => Attempt::Done(n + 1),
                    sent => sent,
                });
            }
            Sabotage::ChangeByte if happens => other[bytes.len() / 2] ^= 1,
            Sabotage::RepeatBytes if happens => {
                let _ = self.streams.send(end, &other[..1], 1)?;
            }
            _ => {}
        }
        self.streams.send(end, &other, most)
    }

    pub(crate) fn accept(&mut self, fd: Fd) -> io::Result<Attempt<Accepted>> {
        let File::Listener(listener) = self.descriptors.get(fd)? else {
            return Err(error(errno::BAD_DESCRIPTOR));
        };
        if self.happens(self.faults.would_block) {
            return Ok(Attempt::WouldBlock);
        }
        if self.happens(self.faults.no_descriptor) {
            return Err(error(errno::TOO_MANY_FILES));
        }
        let Some(end) = self.listeners[listener].queue.pop_front() else {
            return Ok(Attempt::WouldBlock);
        };
        match self.descriptors.open(File::Stream(end)) {
            Ok(fd) => {
                self.streams.changes += 1;
                let peer = Peer::Tcp(self.streams.address(end.other()));
                Ok(Attempt::Done(Accepted { fd, peer }))
            }
            Err(error) => {
                self.listeners[listener].queue.push_front(end);
                Err(error)
            }
        }
    }

    pub(crate) fn connect(
        &mut self,
        to: &Addr,
        from: Option<SocketAddr>,
    ) -> io::Result<Connecting> {
        let Some(backend) = self.backends.iter().position(|known| known.address == *to) else {
            return Err(error(errno::REFUSED));
        };
        if self.happens(self.faults.no_descriptor) {
            return Err(error(errno::TOO_MANY_FILES));
        }
        let family = self.backends[backend].family;
        if family == Family::Tcp && self.happens(self.faults.no_port) {
            return Err(error(errno::NO_PORT));
        }
        let mut own = self.new_address();
        if let Some(from) = from.filter(|from| from.port() > 0) {
            own.set_port(from.port());
        }
        let theirs = match to {
            Addr::Tcp(address) => *address,
            Addr::Unix(_) => own,
        };
        let refused = self.happens(self.faults.refused);
        if family == Family::Unix && refused {
            return Err(error(errno::REFUSED));
        }
        let ends = [own, theirs].map(|address| (address, self.buffers));
        let end = self.streams.create(family, Phase::Connecting, ends);
        let fd = self.descriptors.open(File::Stream(end))?;
        let unanswered = self.happens(self.faults.unanswered);
        let slow = self.happens(self.faults.slow_connect) || refused || unanswered;
        if family == Family::Unix || !slow {
            self.streams.establish(end);
            self.backends[backend].queue.push_back(end.other());
            return Ok(Connecting::Established(fd));
        }
        let delay_us = match unanswered {
            true => 130_000_000,
            false => self.random.below(CONNECT_US) as u64,
        };
        let errno = match (unanswered, refused) {
            (true, _) => Some(errno::TIMED_OUT),
            (_, true) => Some(errno::REFUSED),
            _ => None,
        };
        self.connecting.push(PendingConnect {
            end,
            at_us: self.clock_us + delay_us,
            errno,
            backend,
        });
        Ok(Connecting::InProgress(fd))
    }

    pub(crate) fn take_error(&mut self, fd: Fd) -> io::Result<()> {
        let end = self.end_of(fd)?;
        self.streams.take_error(end)
    }

    pub(crate) fn shutdown_write(&mut self, fd: Fd) -> io::Result<()> {
        let end = self.end_of(fd)?;
        if self.sabotage != Some(Sabotage::ForgetEnd) {
            self.streams.shutdown_write(end);
            self.note_undelivered(end);
        }
        Ok(())
    }

    pub(crate) fn reset(&mut self, fd: Fd) {
        if self.sabotage == Some(Sabotage::EndForReset) {
            return self.close(fd);
        }
        if let Some(File::Stream(end)) = self.close_descriptor(fd) {
            assert!(!self.is_silent(end), "the worker resets a mute socket");
            self.streams.reset(end);
        }
    }

    pub(crate) fn reset_on_close(&mut self, fd: Fd) {
        if self.sabotage != Some(Sabotage::EndForReset)
            && let Ok(end) = self.end_of(fd)
        {
            self.streams.reset_on_close(end);
        }
    }

    pub(crate) fn close(&mut self, fd: Fd) {
        if self.sabotage == Some(Sabotage::KeepDescriptor) && self.random.once_in(8) {
            return;
        }
        // A listener stays open: main has another descriptor of it.
        let Some(File::Stream(end)) = self.close_descriptor(fd) else {
            return;
        };
        if self.repair.is_some() {
            return self.note_closed(end);
        }
        self.streams.close(end);
        self.note_undelivered(end);
        self.note_undelivered(end.other());
    }

    fn close_descriptor(&mut self, fd: Fd) -> Option<File> {
        // Closing the last descriptor of a socket removes it from the poller.
        let _ = self.poller.remove(fd);
        self.descriptors.close(fd)
    }

    pub(crate) fn cookie(&self, fd: Fd) -> io::Result<u64> {
        Ok(FIRST_COOKIE + self.end_of(fd)?.0 as u64)
    }

    pub(crate) fn peer(&self, fd: Fd) -> io::Result<Peer> {
        self.streams.peer(self.end_of(fd)?)
    }

    pub(crate) fn local_address(&self, fd: Fd) -> io::Result<Addr> {
        Ok(Addr::Tcp(self.streams.address(self.end_of(fd)?)))
    }

    pub(crate) fn joint(&mut self) -> io::Result<(Fd, Fd)> {
        if self.happens(self.faults.no_descriptor) {
            return Err(error(errno::TOO_MANY_FILES));
        }
        let nowhere = (SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), self.buffers);
        let end = self.streams.create(Family::Unix, Phase::Open, [nowhere; 2]);
        let first = self.descriptors.open(File::Stream(end))?;
        match self.descriptors.open(File::Stream(end.other())) {
            Ok(second) => Ok((first, second)),
            Err(error) => {
                self.descriptors.close(first);
                Err(error)
            }
        }
    }

    pub(crate) fn end_joint(&mut self, fd: Fd) -> io::Result<()> {
        let end = self.end_of(fd)?;
        self.streams.mark_end(end)
    }

    pub(crate) fn unsent(&self, fd: Fd) -> io::Result<usize> {
        Ok(self.streams.unsent(self.end_of(fd)?))
    }

    /// Sets whether a TCP socket is writable only when its send queue is empty.
    pub(crate) fn set_writable_when_drained(&mut self, fd: Fd, on: bool) -> io::Result<()> {
        let end = self.end_of(fd)?;
        self.streams.set_writable_when_drained(end, on)
    }

    /// Memory of the queues. Queued bytes have no overhead here.
    pub(crate) fn queues(&self, fd: Fd) -> io::Result<Queues> {
        let end = self.end_of(fd)?;
        Ok(Queues {
            received: self.streams.unread(end),
            received_max: self.buffers.receive,
            sent: self.streams.unsent(end),
            sent_max: self.buffers.send,
        })
    }

    pub(crate) fn unread(&self, fd: Fd) -> io::Result<usize> {
        Ok(self.streams.unread(self.end_of(fd)?))
    }

    pub(crate) fn descriptors_max(&self) -> u64 {
        self.descriptors.max
    }

    pub(crate) fn close_all_but(&mut self, known: &[Fd]) {
        // Descriptors in unread orders are still in the socket and not yet in the table.
        let unread = |fd: &Fd| {
            let mut orders = self.orders.iter();
            orders
                .any(|order| matches!(order, Order::Listeners(listeners) if listeners.contains(fd)))
        };
        let all = self.descriptors.all().map(|(fd, _)| fd);
        let unknown: Vec<Fd> = all
            .filter(|fd| !known.contains(fd) && !unread(fd))
            .collect();
        for fd in unknown {
            self.close(fd);
        }
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random.number()
    }

    /// Number of open descriptors.
    pub(crate) fn open_descriptors(&self) -> usize {
        self.descriptors.len()
    }

    /// Number of watched descriptors.
    pub(crate) fn watches(&self) -> usize {
        self.poller.len()
    }
}
