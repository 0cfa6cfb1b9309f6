//! Stream sockets: two ends, the queues between them, FIN and reset.
//!
//! TCP: sent bytes stay in the sender's send queue until [`Streams::deliver`] moves them into the
//! other end's receive queue, as far as there is space. A reset discards the send queues of both ends;
//! the other end keeps the bytes it has received. Closing an end with unread bytes resets the
//! connection, and so do bytes that arrive at a closed end.
//!
//! Unix sockets have no send queue of their own, and no reset.

use super::errno::{self, error};
use dormouse_reactor::socket::{Attempt, Peer};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

/// One end of a connection. The ids of its two ends differ in the lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EndId(pub(crate) usize);

impl EndId {
    /// The other end of the connection.
    pub(crate) fn other(self) -> EndId {
        EndId(self.0 ^ 1)
    }
}

/// The type of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// TCP.
    Tcp,
    /// A unix socket.
    Unix,
}

/// The state of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Connecting,
    Open,
    /// Either end has reset the connection.
    Reset,
}

/// The readiness of an end, as poll reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) read_closed: bool,
    pub(crate) hung_up: bool,
    pub(crate) error: bool,
    /// Grows with all that arrives: bytes, ends and errors.
    pub(crate) arrivals: u64,
    /// Grows when there is new room, also after a refusal of a send that had room.
    pub(crate) departures: u64,
}

#[derive(Debug)]
struct End {
    phase: Phase,
    address: SocketAddr,
    /// Sent and not delivered.
    sent: VecDeque<u8>,
    sent_max: usize,
    /// Delivered and not received.
    received: VecDeque<u8>,
    received_max: usize,
    /// All bytes delivered so far.
    delivered: u64,
    /// Number of times that there was new room.
    departures: u64,
    /// The end is writable only when its send queue is empty.
    writable_when_drained: bool,
    /// The sending direction of this end is shut down.
    shut: bool,
    /// The other end's FIN has arrived.
    ended: bool,
    /// On a joint: the other end has sent the mark of the end.
    end_marked: bool,
    error: Option<i32>,
    /// The last descriptor of this end is closed.
    closed: bool,
    /// Its close is a reset (SO_LINGER with a time of zero).
    resets_on_close: bool,
}

/// All connections of the machine.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    ends: Vec<End>,
    families: Vec<Family>,
    /// Number of state changes so far.
    pub(crate) changes: u64,
}

/// Sizes of the queues of one end.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Size of the send queue.
    pub send: usize,
    /// Size of the receive queue.
    pub receive: usize,
}

impl Streams {
    /// Creates a connection; the first end is the one that connects.
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
                delivered: 0,
                departures: 0,
                writable_when_drained: false,
                shut: false,
                ended: false,
                end_marked: false,
                error: None,
                closed: false,
                resets_on_close: false,
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

    /// Establishes a connection.
    pub(crate) fn establish(&mut self, end: EndId) {
        for end in [end, end.other()] {
            self.ends[end.0].phase = Phase::Open;
        }
        self.changes += 1;
    }

    /// Fails a connect.
    pub(crate) fn fail(&mut self, end: EndId, errno: i32) {
        self.ends[end.0].error = Some(errno);
        for end in [end, end.other()] {
            self.ends[end.0].phase = Phase::Reset;
        }
        self.ends[end.other().0].closed = true;
        self.changes += 1;
    }

    /// The number of bytes that [`Streams::send`] would accept now.
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

    /// Accepts the first of `bytes`, at most `most`, as far as there is space.
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
        match unix {
            true => {
                let other = &mut self.ends[id.other().0];
                other.received.extend(&bytes[..n]);
                other.delivered += n as u64;
            }
            false => end.sent.extend(&bytes[..n]),
        }
        self.changes += u64::from(n > 0);
        Ok(Attempt::Done(n))
    }

    /// Receives at most `most` bytes into `buf`. With `keep` they stay in the queue.
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
                if self.family(id) == Family::Unix {
                    self.ends[id.other().0].departures += 1;
                }
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

    /// Takes the mark of the end from a joint. Returns whether there was one, with no bytes before it.
    pub(crate) fn take_end_mark(&mut self, id: EndId) -> bool {
        let end = &mut self.ends[id.0];
        let is_next = end.end_marked && end.received.is_empty();
        if is_next {
            end.end_marked = false;
            self.changes += 1;
        }
        is_next
    }

    /// Sends the mark of the end on a joint.
    pub(crate) fn mark_end(&mut self, id: EndId) -> io::Result<()> {
        if self.ends[id.other().0].closed || self.ends[id.0].shut {
            return Err(error(errno::BROKEN_PIPE));
        }
        self.ends[id.other().0].end_marked = true;
        self.changes += 1;
        Ok(())
    }

    pub(crate) fn take_error(&mut self, id: EndId) -> io::Result<()> {
        match self.ends[id.0].error.take() {
            Some(errno) => Err(error(errno)),
            None => Ok(()),
        }
    }

    /// Shuts down the sending direction.
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

    /// Makes the close of an end a reset.
    pub(crate) fn reset_on_close(&mut self, id: EndId) {
        self.ends[id.0].resets_on_close = true;
    }

    /// Closes the last descriptor of an end.
    pub(crate) fn close(&mut self, id: EndId) {
        let end = &self.ends[id.0];
        let unread = !end.received.is_empty();
        let resets = unread || end.resets_on_close || end.phase == Phase::Connecting;
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
            Family::Tcp if resets => self.reset(id),
            Family::Tcp => {
                self.ends[id.0].closed = true;
                self.ends[id.0].shut = true;
            }
        }
        self.changes += 1;
    }

    /// Aborts the connection: a TCP peer receives a reset.
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

    /// Moves at most `most` bytes from an end's send queue to the other end's receive queue, and the
    /// FIN after the last byte.
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
            // Bytes that arrive at a closed end reset the connection.
            self.reset(id.other());
            return 0;
        }
        let room = other.received_max.saturating_sub(other.received.len());
        let n = end.sent.len().min(room).min(most);
        move_front(&mut end.sent, &mut other.received, n);
        other.delivered += n as u64;
        end.departures += u64::from(n > 0);
        self.changes += u64::from(n > 0);
        if end.sent.is_empty() && end.shut && !other.ended {
            other.ended = true;
            self.changes += 1;
        }
        n
    }

    /// Whether this end has bytes or a FIN to deliver.
    pub(crate) fn has_undelivered(&self, id: EndId) -> bool {
        let (end, other) = (&self.ends[id.0], &self.ends[id.other().0]);
        self.family(id) == Family::Tcp
            && end.phase == Phase::Open
            && (!end.sent.is_empty() || (end.shut && !other.ended))
    }

    /// Notes that a send was refused although there was room: there is again.
    pub(crate) fn note_refused(&mut self, id: EndId) {
        self.ends[id.0].departures += 1;
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

    /// Makes a TCP socket writable only when its send queue is empty, or as usual.
    pub(crate) fn set_writable_when_drained(&mut self, id: EndId, on: bool) -> io::Result<()> {
        if self.family(id) == Family::Unix {
            return Err(error(errno::NOT_SUPPORTED));
        }
        self.ends[id.0].writable_when_drained = on;
        Ok(())
    }

    /// Whether an end may rest: nothing is under way, and neither direction has ended.
    pub(crate) fn is_quiet(&self, id: EndId) -> bool {
        let end = &self.ends[id.0];
        end.phase == Phase::Open
            && end.received.is_empty()
            && end.sent.is_empty()
            && !end.shut
            && !end.ended
            && !end.closed
    }

    /// The address of an end.
    pub(crate) fn address(&self, id: EndId) -> SocketAddr {
        self.ends[id.0].address
    }

    /// The other end's address; none after a reset.
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
            false if end.writable_when_drained => end.sent.is_empty(),
            false => end.sent.len() * 3 <= end.sent_max * 2,
        };
        let error = end.error.is_some();
        let ends = [end.ended, end.end_marked, is_reset, error, other.closed];
        let arrivals = ends
            .iter()
            .fold(end.delivered, |bits, &has| bits << 1 | u64::from(has));
        let gone = is_reset || (unix && other.closed);
        Readiness {
            readable: !end.received.is_empty() || end.end_marked || end.ended || is_reset || error,
            writable: room || end.shut || gone,
            read_closed: end.ended || is_reset,
            hung_up: gone || (end.ended && end.shut),
            error,
            arrivals,
            departures: end.departures,
        }
    }
}

/// Moves `n` bytes. Uses slices for speed: most simulated bytes pass here.
fn move_front(from: &mut VecDeque<u8>, to: &mut VecDeque<u8>, n: usize) {
    let (front, back) = from.as_slices();
    let first = front.len().min(n);
    to.extend(&front[..first]);
    to.extend(&back[..n - first]);
    from.drain(..n);
}
