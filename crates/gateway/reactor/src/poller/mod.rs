//! Readiness of many descriptors: epoll, level-triggered unless [`Interest::EDGE`] is asked for.
//!
//! The epoll instance is a descriptor like any other. When a worker dies, the instance and its registrations
//! survive in the table that its keeper shares, and the next worker adopts it.

use std::fmt;
use std::io;
use std::ops::BitOr;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::{Fd, OnExec};

/// The events to report for a descriptor. Errors and hang-ups are always reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest(u8);

impl Interest {
    /// Only errors and hang-ups. These are level-triggered too: the receiver must act on them.
    pub const NONE: Interest = Interest(0);
    /// Bytes to receive, a connection to accept, or the end of the peer's direction.
    pub const READ: Interest = Interest(1);
    /// Room to send, or the end of a connection attempt.
    pub const WRITE: Interest = Interest(2);

    /// One report only; then none, not even of errors, until [`Poller::modify`].
    pub const ONCE: Interest = Interest(4);

    /// A report only when something has arrived since the last one, or since the interest was set.
    pub const EDGE: Interest = Interest(8);

    /// Whether it includes all of `other`.
    pub fn contains(self, other: Interest) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this with `other` added or removed.
    #[must_use]
    pub fn with(self, other: Interest, wanted: bool) -> Interest {
        if wanted {
            Interest(self.0 | other.0)
        } else {
            Interest(self.0 & !other.0)
        }
    }

    /// Returns epoll's flags for a socket that is ready for this.
    fn ready(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        if self.contains(Interest::READ) {
            flags |= EventFlags::IN;
        }
        if self.contains(Interest::WRITE) {
            flags |= EventFlags::OUT;
        }
        flags
    }

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        if self.contains(Interest::READ) {
            // The end of the peer's direction is part of reading. While reading is stopped it must not be
            // reported, or a level-triggered loop would spin on it.
            flags |= EventFlags::IN | EventFlags::RDHUP;
        }
        if self.contains(Interest::WRITE) {
            flags |= EventFlags::OUT;
        }
        if self.contains(Interest::ONCE) {
            flags |= EventFlags::ONESHOT;
        }
        if self.contains(Interest::EDGE) {
            flags |= EventFlags::ET;
        }
        flags
    }
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }
}

/// A ready descriptor.
#[derive(Clone, Copy)]
pub struct Event {
    flags: EventFlags,
    token: u64,
}

impl Event {
    /// Returns the token that the descriptor was registered with.
    pub fn token(self) -> u64 {
        self.token
    }

    /// Whether receiving (or accepting) will not block: there are bytes, an end, or an error.
    pub fn is_readable(self) -> bool {
        self.any(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }

    /// Whether sending will not block: there is room or an error.
    pub fn is_writable(self) -> bool {
        self.any(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// Whether the peer's direction has ended, or the connection was reset. All its bytes have arrived.
    pub fn is_read_closed(self) -> bool {
        self.any(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }

    /// Whether both directions are closed, or the connection was reset.
    pub fn is_hung_up(self) -> bool {
        self.any(EventFlags::HUP)
    }

    /// Whether there is an error to fetch (see [`crate::socket::take_error`]).
    pub fn is_error(self) -> bool {
        self.any(EventFlags::ERR)
    }

    fn any(self, flags: EventFlags) -> bool {
        self.flags.intersects(flags)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x}: {:?})", self.token, self.flags)
    }
}

/// Conditions of a socket besides readable and writable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition(EventFlags);

impl Condition {
    /// Nothing.
    pub const NONE: Condition = Condition(EventFlags::empty());
    /// The peer's direction has ended.
    pub const READ_CLOSED: Condition = Condition(EventFlags::RDHUP);
    /// Both directions are closed.
    pub const HUNG_UP: Condition = Condition(EventFlags::HUP.union(EventFlags::RDHUP));
    /// There is an error to fetch, and both directions are closed.
    pub const ERROR: Condition = Condition(
        EventFlags::ERR
            .union(EventFlags::HUP)
            .union(EventFlags::RDHUP),
    );
}

/// Buffer for the events of one turn, reused every turn.
pub struct Events {
    ready: Vec<epoll::Event>,
}

impl Events {
    /// Creates a buffer for `capacity` events per turn (at least one).
    pub fn with_capacity(capacity: usize) -> Events {
        Events {
            ready: Vec::with_capacity(capacity.max(1)),
        }
    }

    /// Returns the number of ready descriptors.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether no descriptor is ready.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the event at `index`, for iteration without borrowing the buffer.
    pub fn get(&self, index: usize) -> Option<Event> {
        self.ready.get(index).map(event)
    }

    /// Adds an event, for a simulated poller. `interest` is what the socket is ready for.
    pub fn push(&mut self, token: u64, interest: Interest, condition: Condition) {
        let flags = condition.0 | interest.ready();
        let data = EventData::new_u64(token);
        self.ready.push(epoll::Event { flags, data });
    }

    /// Discards the events of the last turn.
    pub fn clear(&mut self) {
        self.ready.clear();
    }

    /// Iterates over all events of the turn.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.ready.iter().map(event)
    }
}

fn event(raw: &epoll::Event) -> Event {
    // The kernel's structure is packed, so the fields are copied.
    let (flags, data) = (raw.flags, raw.data);
    Event {
        flags,
        token: data.u64(),
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An epoll instance.
///
/// Dropping it does not close the descriptor, which the next worker adopts.
#[derive(Debug)]
pub struct Poller {
    fd: Fd,
}

impl Poller {
    /// Creates an instance. Use `Keep` if it must survive an exec of the keeper.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(on_exec: OnExec) -> io::Result<Poller> {
        let fd = Fd::from_owned(epoll::create(CreateFlags::CLOEXEC)?);
        if on_exec == OnExec::Keep {
            fd.set_on_exec(on_exec).inspect_err(|_| fd.close())?;
        }
        Ok(Poller { fd })
    }

    /// Adopts the instance of a former worker.
    ///
    /// # Errors
    /// The descriptor is not open, or not an epoll instance.
    pub fn adopt(fd: Fd) -> io::Result<Poller> {
        let poller = Poller { fd };
        // Waiting consumes nothing: ready descriptors are reported again (level-triggered), and the interest of
        // those with `EDGE` is set again.
        poller.wait(&mut Events::with_capacity(1), Some(0))?;
        Ok(poller)
    }

    /// Returns the descriptor of the instance.
    pub fn fd(&self) -> Fd {
        self.fd
    }

    /// Starts watching a descriptor.
    ///
    /// # Errors
    /// The operating system's error: the descriptor is already watched, or the limit is reached.
    pub fn add(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        self.add_with(fd, token, interest.flags())
    }

    /// Starts watching a listener that other processes also watch: each connection wakes one of them, not all.
    /// It cannot be modified; use [`Poller::remove`] to stop.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn add_exclusive(&self, listener: Fd, token: u64) -> io::Result<()> {
        self.add_with(listener, token, EventFlags::IN | EventFlags::EXCLUSIVE)
    }

    /// Changes the interest in a descriptor, and its token.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn modify(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        let (epoll, source) = (self.fd.borrow()?, fd.borrow()?);
        let data = EventData::new_u64(token);
        Ok(epoll::modify(epoll, source, data, interest.flags())?)
    }

    /// Stops watching a descriptor. Required before closing it if another process or descriptor refers to the
    /// same socket, because epoll watches sockets, not descriptors.
    ///
    /// # Errors
    /// The operating system's error, for example if it was not watched.
    pub fn remove(&self, fd: Fd) -> io::Result<()> {
        Ok(epoll::delete(self.fd.borrow()?, fd.borrow()?)?)
    }

    /// Waits until a descriptor is ready, or for `timeout_ms`; without a timeout, indefinitely. Also returns,
    /// without events, after a signal.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<()> {
        events.ready.clear();
        let timeout = timeout_ms.map(|ms| {
            // The older system call takes an int of milliseconds.
            let ms = ms.min(i32::MAX as u64);
            Timespec {
                tv_sec: (ms / 1000) as i64,
                tv_nsec: (ms % 1000 * 1_000_000) as i64,
            }
        });
        let room = rustix::buffer::spare_capacity(&mut events.ready);
        match epoll::wait(self.fd.borrow()?, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn add_with(&self, fd: Fd, token: u64, flags: EventFlags) -> io::Result<()> {
        let (epoll, source) = (self.fd.borrow()?, fd.borrow()?);
        Ok(epoll::add(epoll, source, EventData::new_u64(token), flags)?)
    }
}

#[cfg(test)]
mod tests;
