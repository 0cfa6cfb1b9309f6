//! Stream sockets: two ends, the queues between them, and every way in which they end.
//!
//! TCP: what an end sends lies in its send queue until [`Streams::deliver`] moves it into the other's
//! receive queue, as far as there is room. A reset discards the send queues of both ends and lets
//! the other end keep what it has received. Closing an end with unread bytes resets, and so do bytes
//! that reach an end which is closed.
//!
//! Unix sockets have no send queue of their own, and know no reset.

use super::errno::{self, error};
use dormouse_reactor::socket::{Attempt, Peer};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

/// One end of a connection. The other one differs in the lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EndId(pub(crate) usize);

impl EndId {
    /// The end at the other side.
    pub(crate) fn other(self) -> EndId {
        EndId(self.0 ^ 1)
    }
}

/// What kind of connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// TCP.
    Tcp,
    /// A unix socket.
    Unix,
}

/// How far an end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Connecting,
    Open,
    /// The connection is gone: by a reset, from either side.
    Reset,
}

/// What an end is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) read_closed: bool,
    pub(crate) hung_up: bool,
    pub(crate) error: bool,
}

#[derive(Debug)]
struct End {
    phase: Phase,
    address: SocketAddr,
    /// Sent, and not delivered.
    sent: VecDeque<u8>,
    sent_max: usize,
    /// Delivered, and not received.
    received: VecDeque<u8>,
    received_max: usize,
    /// No more is sent by this end.
    shut: bool,
    /// The other end's FIN has come.
    ended: bool,
    /// On a joint: the other end has said that this is all.
    end_said: bool,
    error: Option<i32>,
    /// Nobody has a descriptor of it any more.
    closed: bool,
}

/// All connections of the machine.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    ends: Vec<End>,
    families: Vec<Family>,
    /// Counts everything that happens.
    pub(crate) changes: u64,
}

/// Sizes of the queues of one end.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Of the send queue.
    pub send: usize,
    /// Of the receive queue.
    pub receive: usize,
}

impl Streams {
    /// A new connection; the first end is the one that connects.
    pub(crate) fn create(
        &mut self,
        family: Family,
        phase: Phase,
        ends: [(SocketAddr, Buffers); 2],
    ) -> EndId {
        let first = EndId(self.ends.len());
        for (address, buffers) in ends {
            self.ends.push(End {
                phase,
                address,
                sent: VecDeque::new(),
                sent_max: buffers.send,
                received: VecDeque::new(),
                received_max: buffers.receive,
                shut: false,
                ended: false,
                end_said: false,
                error: None,
                closed: false,
            });
        }
        self.families.push(family);
        self.changes += 1;
        first
    }

    pub(crate) fn family(&self, end: EndId) -> Family {
        self.families[end.0 / 2]
    }

    pub(crate) fn phase(&self, end: EndId) -> Phase {
        self.ends[end.0].phase
    }

    /// The connection is there.
    pub(crate) fn establish(&mut self, end: EndId) {
        for end in [end, end.other()] {
            self.ends[end.0].phase = Phase::Open;
        }
        self.changes += 1;
    }

    /// The attempt to connect has failed.
    pub(crate) fn fail(&mut self, end: EndId, errno: i32) {
        self.ends[end.0].error = Some(errno);
        for end in [end, end.other()] {
            self.ends[end.0].phase = Phase::Reset;
        }
        self.ends[end.other().0].closed = true;
        self.changes += 1;
    }

    /// How much [`Streams::send`] takes now. `WouldBlock` is `None`.
    fn room(&self, id: EndId) -> usize {
        let end = &self.ends[id.0];
        match self.family(id) {
            Family::Tcp => end.sent_max.saturating_sub(end.sent.len()),
            Family::Unix => {
                let other = &self.ends[id.other().0];
                other.received_max.saturating_sub(other.received.len())
            }
        }
    }

    /// Takes a beginning of `bytes`, at most `most`.
    pub(crate) fn send(
        &mut self,
        id: EndId,
        bytes: &[u8],
        most: usize,
    ) -> io::Result<Attempt<usize>> {
        let room = self.room(id);
        let unix = self.family(id) == Family::Unix;
        let other_closed = self.ends[id.other().0].closed;
        let end = &mut self.ends[id.0];
        if let Some(errno) = end.error.take() {
            self.changes += 1;
            return Err(error(errno));
        }
        if end.phase == Phase::Connecting {
            return Ok(Attempt::WouldBlock);
        }
        if end.phase == Phase::Reset || end.shut || (unix && other_closed) {
            return Err(error(errno::BROKEN_PIPE));
        }
        let n = bytes.len().min(room).min(most);
        if n == 0 && !bytes.is_empty() {
            return Ok(Attempt::WouldBlock);
        }
        let queue = match unix {
            true => &mut self.ends[id.other().0].received,
            false => &mut end.sent,
        };
        queue.extend(&bytes[..n]);
        self.changes += u64::from(n > 0);
        Ok(Attempt::Done(n))
    }

    /// Receives at most `most` bytes into `buf`; `keep`: and leaves them where they are.
    pub(crate) fn recv(
        &mut self,
        id: EndId,
        buf: &mut [u8],
        most: usize,
        keep: bool,
    ) -> io::Result<Attempt<usize>> {
        let end = &mut self.ends[id.0];
        if end.phase == Phase::Connecting {
            return Ok(Attempt::WouldBlock);
        }
        if !end.received.is_empty() {
            let n = end.received.len().min(buf.len()).min(most);
            let (front, back) = end.received.as_slices();
            let first = front.len().min(n);
            buf[..first].copy_from_slice(&front[..first]);
            buf[first..n].copy_from_slice(&back[..n - first]);
            if !keep {
                end.received.drain(..n);
                self.changes += 1;
            }
            return Ok(Attempt::Done(n));
        }
        if let Some(errno) = end.error.take() {
            self.changes += 1;
            return Err(error(errno));
        }
        match end.ended || end.phase == Phase::Reset {
            true => Ok(Attempt::Done(0)),
            false => Ok(Attempt::WouldBlock),
        }
    }

    /// Has all been received that comes before the end which was said?
    pub(crate) fn take_said_end(&mut self, id: EndId) -> bool {
        let end = &mut self.ends[id.0];
        let now = end.end_said && end.received.is_empty();
        if now {
            end.end_said = false;
            self.changes += 1;
        }
        now
    }

    /// Says on a joint that nothing more follows.
    pub(crate) fn say_end(&mut self, id: EndId) -> io::Result<()> {
        if self.ends[id.other().0].closed || self.ends[id.0].shut {
            return Err(error(errno::BROKEN_PIPE));
        }
        self.ends[id.other().0].end_said = true;
        self.changes += 1;
        Ok(())
    }

    pub(crate) fn take_error(&mut self, id: EndId) -> io::Result<()> {
        match self.ends[id.0].error.take() {
            Some(errno) => Err(error(errno)),
            None => Ok(()),
        }
    }

    /// Ends the sending direction.
    pub(crate) fn shutdown_write(&mut self, id: EndId) {
        let unix = self.family(id) == Family::Unix;
        let end = &mut self.ends[id.0];
        if end.phase == Phase::Open && !end.shut {
            end.shut = true;
            if unix {
                self.ends[id.other().0].ended = true;
            }
            self.changes += 1;
        }
    }

    /// The last descriptor is gone.
    pub(crate) fn close(&mut self, id: EndId) {
        let unread = !self.ends[id.0].received.is_empty();
        match self.family(id) {
            Family::Unix => {
                self.ends[id.0].closed = true;
                self.ends[id.0].shut = true;
                let other = &mut self.ends[id.other().0];
                other.ended = true;
                if unread {
                    other.error = Some(errno::RESET);
                }
            }
            Family::Tcp if unread || self.ends[id.0].phase == Phase::Connecting => self.reset(id),
            Family::Tcp => {
                self.ends[id.0].closed = true;
                self.ends[id.0].shut = true;
            }
        }
        self.changes += 1;
    }

    /// Aborts: a TCP peer sees a reset.
    pub(crate) fn reset(&mut self, id: EndId) {
        if self.family(id) == Family::Unix {
            return self.close(id);
        }
        let was = self.ends[id.0].phase;
        let end = &mut self.ends[id.0];
        end.closed = true;
        end.phase = Phase::Reset;
        end.sent.clear();
        end.received.clear();
        let other = &mut self.ends[id.other().0];
        if was == Phase::Open && other.phase == Phase::Open {
            other.phase = Phase::Reset;
            other.sent.clear();
            other.error = Some(match other.ended {
                true => errno::BROKEN_PIPE,
                false => errno::RESET,
            });
        }
        self.changes += 1;
    }

    /// Moves at most `most` bytes from an end's send queue to the other's receive queue, and the
    /// FIN behind the last of them.
    pub(crate) fn deliver(&mut self, id: EndId, most: usize) -> usize {
        let (low, high) = self.ends.split_at_mut(id.0 | 1);
        let pair = (&mut low[id.0 & !1], &mut high[0]);
        let (end, other) = if id.0 & 1 == 0 {
            pair
        } else {
            (pair.1, pair.0)
        };
        if end.phase != Phase::Open || other.phase != Phase::Open {
            return 0;
        }
        if !end.sent.is_empty() && other.closed {
            // Nobody receives any more.
            self.reset(id.other());
            return 0;
        }
        let room = other.received_max.saturating_sub(other.received.len());
        let n = end.sent.len().min(room).min(most);
        move_front(&mut end.sent, &mut other.received, n);
        self.changes += u64::from(n > 0);
        if end.sent.is_empty() && end.shut && !other.ended {
            other.ended = true;
            self.changes += 1;
        }
        n
    }

    /// Has this end anything that is still to be delivered?
    pub(crate) fn has_undelivered(&self, id: EndId) -> bool {
        let (end, other) = (&self.ends[id.0], &self.ends[id.other().0]);
        self.family(id) == Family::Tcp
            && end.phase == Phase::Open
            && (!end.sent.is_empty() || (end.shut && !other.ended))
    }

    pub(crate) fn unsent(&self, id: EndId) -> usize {
        match self.family(id) {
            Family::Tcp => self.ends[id.0].sent.len(),
            Family::Unix => self.ends[id.other().0].received.len(),
        }
    }

    pub(crate) fn unread(&self, id: EndId) -> usize {
        self.ends[id.0].received.len()
    }

    /// The address of an end.
    pub(crate) fn address(&self, id: EndId) -> SocketAddr {
        self.ends[id.0].address
    }

    /// The address at the other side; a connection that was reset has none.
    pub(crate) fn peer(&self, id: EndId) -> io::Result<Peer> {
        match (self.family(id), self.ends[id.0].phase) {
            (Family::Unix, _) => Ok(Peer::Unix),
            (Family::Tcp, Phase::Open) => Ok(Peer::Tcp(self.ends[id.other().0].address)),
            (Family::Tcp, _) => Err(error(errno::NOT_CONNECTED)),
        }
    }

    pub(crate) fn readiness(&self, id: EndId) -> Readiness {
        let end = &self.ends[id.0];
        if end.phase == Phase::Connecting {
            return Readiness::default();
        }
        let is_reset = end.phase == Phase::Reset;
        let other = &self.ends[id.other().0];
        let unix = self.family(id) == Family::Unix;
        let room = match unix {
            true => self.room(id) > 0,
            false => end.sent.len() * 3 <= end.sent_max * 2,
        };
        let error = end.error.is_some();
        let gone = is_reset || (unix && other.closed);
        Readiness {
            readable: !end.received.is_empty() || end.end_said || end.ended || is_reset || error,
            writable: room || end.shut || gone,
            read_closed: end.ended || is_reset,
            hung_up: gone || (end.ended && end.shut),
            error,
        }
    }
}

/// Moves `n` bytes: by slices, because most of what is simulated passes here.
fn move_front(from: &mut VecDeque<u8>, to: &mut VecDeque<u8>, n: usize) {
    let (front, back) = from.as_slices();
    let first = front.len().min(n);
    to.extend(&front[..first]);
    to.extend(&back[..n - first]);
    from.drain(..n);
}
