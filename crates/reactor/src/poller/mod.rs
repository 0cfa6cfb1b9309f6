//! Readiness of many descriptors: epoll, level-triggered.
//!
//! The epoll instance is a descriptor like any other. When a worker dies, the instance lives on
//! in the table that its keeper shares, registrations and all, and the next worker adopts it.

use std::fmt;
use std::io;
use std::ops::BitOr;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::{Fd, OnExec};

/// What to be told about a descriptor. Errors and a complete hang-up are told always.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest(u8);

impl Interest {
    /// Only errors and hang-up. These are level-triggered too: who gets one has to act on it.
    pub const NONE: Interest = Interest(0);
    /// Bytes to receive, a connection to accept, or the peer's end of its sending.
    pub const READ: Interest = Interest(1);
    /// Room to send, or the end of an attempt to connect.
    pub const WRITE: Interest = Interest(2);

    /// Told once; then never again, not even of errors, until [`Poller::modify`].
    pub const ONCE: Interest = Interest(4);

    /// Whether all of `other` is in it.
    pub fn contains(self, other: Interest) -> bool {
        self.0 & other.0 == other.0
    }

    /// This with `other` added or taken away.
    #[must_use]
    pub fn with(self, other: Interest, wanted: bool) -> Interest {
        if wanted {
            Interest(self.0 | other.0)
        } else {
            Interest(self.0 & !other.0)
        }
    }

    /// What epoll reports of a socket that is ready for this.
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
            // The end of the peer's sending is part of reading. With reading stopped it must not
            // be told, or a level-triggered loop would spin on it.
            flags |= EventFlags::IN | EventFlags::RDHUP;
        }
        if self.contains(Interest::WRITE) {
            flags |= EventFlags::OUT;
        }
        if self.contains(Interest::ONCE) {
            flags |= EventFlags::ONESHOT;
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

/// One descriptor is ready.
#[derive(Clone, Copy)]
pub struct Event {
    flags: EventFlags,
    token: u64,
}

impl Event {
    /// What the descriptor was registered with.
    pub fn token(self) -> u64 {
        self.token
    }

    /// Receiving (or accepting) will not block: there are bytes, an end, or an error.
    pub fn is_readable(self) -> bool {
        self.any(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }

    /// Sending will not block: there is room or an error.
    pub fn is_writable(self) -> bool {
        self.any(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// The peer sends nothing more; bytes may be left to receive.
    pub fn is_read_closed(self) -> bool {
        self.any(EventFlags::RDHUP | EventFlags::HUP)
    }

    /// Both directions are closed, or the connection was reset.
    pub fn is_hung_up(self) -> bool {
        self.any(EventFlags::HUP)
    }

    /// There is an error to be taken (see [`crate::socket::take_error`]).
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

/// What a socket reports besides being readable or writable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition(EventFlags);

impl Condition {
    /// Nothing.
    pub const NONE: Condition = Condition(EventFlags::empty());
    /// The peer sends nothing more.
    pub const READ_CLOSED: Condition = Condition(EventFlags::RDHUP);
    /// Both directions are closed.
    pub const HUNG_UP: Condition = Condition(EventFlags::HUP.union(EventFlags::RDHUP));
    /// There is an error to be taken, and both directions are closed.
    pub const ERROR: Condition = Condition(
        EventFlags::ERR
            .union(EventFlags::HUP)
            .union(EventFlags::RDHUP),
    );
}

/// Room for the events of one turn, used again every turn.
pub struct Events {
    ready: Vec<epoll::Event>,
}

impl Events {
    /// Room for `capacity` events per turn (at least one).
    pub fn with_capacity(capacity: usize) -> Events {
        Events {
            ready: Vec::with_capacity(capacity.max(1)),
        }
    }

    /// How many descriptors are ready.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether none is ready.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The event at `index`: to go through them without keeping the buffer borrowed.
    pub fn get(&self, index: usize) -> Option<Event> {
        self.ready.get(index).map(event)
    }

    /// Adds an event: what a simulated poller reports. `interest` is what the socket is ready for.
    pub fn push(&mut self, token: u64, interest: Interest, condition: Condition) {
        let flags = condition.0 | interest.ready();
        let data = EventData::new_u64(token);
        self.ready.push(epoll::Event { flags, data });
    }

    /// Forgets the events of the last turn.
    pub fn clear(&mut self) {
        self.ready.clear();
    }

    /// All events of the turn.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.ready.iter().map(event)
    }
}

fn event(raw: &epoll::Event) -> Event {
    // The kernel's structure is packed: copy the fields out.
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
/// Dropping it does not close the descriptor, which is what the next worker adopts.
#[derive(Debug)]
pub struct Poller {
    fd: Fd,
}

impl Poller {
    /// Creates an instance. `Keep` when it is to survive an exec of the keeper.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create(on_exec: OnExec) -> io::Result<Poller> {
        let fd = Fd::from_owned(epoll::create(CreateFlags::CLOEXEC)?);
        if on_exec == OnExec::Keep {
            fd.set_on_exec(on_exec).inspect_err(|_| fd.close())?;
        }
        Ok(Poller { fd })
    }

    /// Goes on with an instance that a former worker created.
    ///
    /// # Errors
    /// The descriptor is not open or is no epoll instance.
    pub fn adopt(fd: Fd) -> io::Result<Poller> {
        let poller = Poller { fd };
        // Looking takes nothing away: what is ready is told again (level-triggered).
        poller.wait(&mut Events::with_capacity(1), Some(0))?;
        Ok(poller)
    }

    /// The descriptor of the instance.
    pub fn fd(&self) -> Fd {
        self.fd
    }

    /// Starts to watch a descriptor.
    ///
    /// # Errors
    /// What the operating system says: it is watched already, or the limit of watches is reached.
    pub fn add(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        self.add_with(fd, token, interest.flags())
    }

    /// Starts to watch a listener which other processes watch too: one of them is woken per
    /// connection, not all. To stop, [`Poller::remove`] it; it cannot be modified.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn add_exclusive(&self, listener: Fd, token: u64) -> io::Result<()> {
        self.add_with(listener, token, EventFlags::IN | EventFlags::EXCLUSIVE)
    }

    /// Changes what is told about a descriptor, and its token.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn modify(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        let (epoll, source) = (self.fd.borrow()?, fd.borrow()?);
        let data = EventData::new_u64(token);
        Ok(epoll::modify(epoll, source, data, interest.flags())?)
    }

    /// Stops to watch a descriptor. Needed before closing it whenever another process or another
    /// number refers to the same socket: epoll watches sockets, not numbers.
    ///
    /// # Errors
    /// What the operating system says: it was not watched, say.
    pub fn remove(&self, fd: Fd) -> io::Result<()> {
        Ok(epoll::delete(self.fd.borrow()?, fd.borrow()?)?)
    }

    /// Waits until a descriptor is ready, or for `timeout_ms`; without one, for ever. Returns
    /// with no events also when a signal came.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<()> {
        events.ready.clear();
        let timeout = timeout_ms.map(|ms| {
            // The old system call takes an int of milliseconds.
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
