//! The one part of a gateway that takes connections out of the kernel and brings them back.
//!
//! It runs in a process of its own, which may use TCP_REPAIR, and obeys workers, which may not. A worker passes it
//! descriptors of quiet connections; it gets a descriptor back when a packet comes. Order is everything here:
//!
//! - *Rest:* the socket becomes mute; the record is written; the digest enters the table; the socket leaves the kernel.
//! - *Wake:* the socket is built, mute; **its descriptor is sent to the worker**; it is released; the digest leaves the
//!   table; the packets that came meanwhile are sent to it again.
//!
//! So this process may die at any point, and its successor finds in the records what to do ([`Repair::recall`]): a
//! record that rests is whole; one that wakes is asked for; one whose peer has ended it is told again. A record is free
//! only when its worker was told, and one whose peer has ended it when the worker has read it. A request is repeated by the worker if it had no answer, and every request may be.

mod ends;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;

use dormouse_reactor::process::boottime_ms;
use dormouse_reactor::socket::{self, Attempt, Keepalive, Shortage};
use dormouse_reactor::steering::{Access, Captured, Digest, Ring, Table};
use dormouse_reactor::tcp_state::{self, Filter, Muted, Refusal};
use dormouse_reactor::{Fd, OnExec};

use crate::answer::{Answer, answer};
use crate::bounds::{Allowance, Crowding, Rounds};
use crate::message::{Detail, MESSAGE_LEN, Message, Subject};
use crate::record::{Phase, Record, Records};
use crate::segment::{Checked, Flags, Segment, acknowledge, check, copy};
use crate::waiting::Waiting;

/// Packets handled before messages are looked at again.
const PACKETS_PER_TURN: usize = 256;

/// Messages of a worker handled before the next worker's turn.
const MESSAGES_PER_TURN: usize = 256;

/// Messages that wait for a worker that does not read. While there are more, none of its requests is handled, and
/// none of its connections wakes.
const UNSENT_MAX: usize = 1024;

/// What a repair process works with.
#[derive(Debug)]
pub struct Parts {
    /// The programs' table and ring.
    pub access: Access,
    /// The records.
    pub records: Records,
    /// Raw sockets for IPv4 and IPv6.
    pub raw: [Fd; 2],
    /// The channel to each worker.
    pub workers: Vec<Fd>,
    /// The number of records of each worker, which follow those of the worker before it.
    pub records_per_worker: u32,
    /// When a silent peer is asked whether it lives.
    pub keepalive: Keepalive,
}

/// What is between this process and a worker.
#[derive(Debug)]
struct Worker {
    channel: Fd,
    unsent: VecDeque<Message>,
    /// Whether the worker and everybody who could start another one in its place is gone.
    is_closed: bool,
    /// The number of connections that have woken since the last [`Subject::Sync`].
    woken: u32,
    /// Packets wake connections up to this number.
    room: u32,
}

impl Worker {
    fn new(channel: Fd) -> Worker {
        Worker {
            channel,
            unsent: VecDeque::from([Message::new(Subject::Begun, 0)]),
            is_closed: false,
            woken: 0,
            room: 0,
        }
    }

    /// Whether a packet may wake one more of its connections.
    fn has_room(&self) -> bool {
        // Both wrap.
        self.room.wrapping_sub(self.woken) as i32 > 0
    }
}

/// A channel to a worker, as the loop around the repair process polls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channel {
    /// The channel.
    pub fd: Fd,
    /// Whether messages wait until it is writable.
    pub waits: bool,
    /// Whether nothing comes any more.
    pub is_closed: bool,
}

/// What happened to resting connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections that left the kernel.
    pub rested: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Connections that came back.
    pub woken: u64,
    /// Wakes that failed.
    pub failed: u64,
    /// Packets that found no room for another awake connection, or more wakes in their second than may be.
    pub waited: u64,
    /// Acknowledgements sent for records.
    pub acknowledged: u64,
    /// Probes of silent peers.
    pub probed: u64,
    /// Connections that their peers reset, or whose peers have vanished.
    pub gone: u64,
    /// Packets that were damaged, or whose connection is not in the table.
    pub stray: u64,
}

/// The connections that rest, and the way back.
#[derive(Debug)]
pub struct Repair {
    table: Table,
    ring: Ring,
    filter: Filter,
    records: Records,
    raw: [Fd; 2],
    workers: Vec<Worker>,
    records_per_worker: u32,
    keepalive: Keepalive,
    rounds: Rounds,
    crowding: Crowding,
    /// The packet in hand, to be sent again.
    packet: Vec<u8>,
    wakes: Allowance,
    waiting: Waiting,
    /// Records that a predecessor was waking, of which their worker has not said yet what it has.
    recalled: BTreeSet<u32>,
    counts: Counts,
}

impl Repair {
    /// Takes everything up. Connections that a predecessor was waking are asked for.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn begin(parts: Parts) -> io::Result<Repair> {
        let workers = parts.workers.len();
        let mut repair = Repair {
            table: parts.access.table()?,
            ring: parts.access.ring()?,
            filter: parts.access.mute(),
            records: parts.records,
            raw: parts.raw,
            workers: parts.workers.into_iter().map(Worker::new).collect(),
            records_per_worker: parts.records_per_worker.max(1),
            keepalive: parts.keepalive,
            rounds: Rounds::default(),
            crowding: Crowding::default(),
            packet: Vec::new(),
            waiting: Waiting::for_workers(workers),
            wakes: Allowance::default(),
            recalled: BTreeSet::new(),
            counts: Counts::default(),
        };
        repair.recall()?;
        Ok(repair)
    }

    /// Returns the descriptor that is readable when there is a packet.
    pub fn packets(&self) -> Fd {
        self.ring.fd()
    }

    /// Returns the channels of all workers.
    pub fn channels(&self) -> impl Iterator<Item = Channel> {
        self.workers.iter().map(|worker| Channel {
            fd: worker.channel,
            waits: !worker.unsent.is_empty(),
            is_closed: worker.is_closed,
        })
    }

    /// Returns what has happened.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// When packets were last dropped because more came than this process can read, or soon would have been.
    pub fn crowded_ms(&self) -> Option<u64> {
        self.crowding.last_ms
    }

    /// Does the work that is there, a bounded amount. Returns `false` when all channels are closed.
    ///
    /// # Errors
    /// A channel is broken.
    pub fn turn(&mut self) -> io::Result<bool> {
        for worker in 0..self.workers.len() {
            self.send_unsent(worker)?;
            self.handle_messages(worker)?;
        }
        let now_ms = boottime_ms();
        if self.ring.is_crowded() {
            self.crowding.note(now_ms);
        }
        let mut packets = 0;
        while packets < PACKETS_PER_TURN && self.handle_packet(now_ms)? {
            packets += 1;
        }
        // Answers are read before more is asked.
        if packets < PACKETS_PER_TURN {
            self.probe(now_ms)?;
        }
        Ok(self.workers.iter().any(|worker| !worker.is_closed))
    }

    fn handle_messages(&mut self, worker: usize) -> io::Result<()> {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(channel) = self.channel_with_room(worker) else {
                break;
            };
            let mut bytes = [0; MESSAGE_LEN];
            match socket::receive_message(channel, &mut bytes, OnExec::Close) {
                Ok(Attempt::WouldBlock) => break,
                Ok(Attempt::Done(message)) if message.len == 0 => {
                    self.close(worker);
                    break;
                }
                Ok(Attempt::Done(message)) => {
                    let read = bytes.get(..message.len).and_then(Message::from_bytes);
                    self.handle(worker, read, &message.descriptors)?;
                    message.descriptors.iter().for_each(|fd| fd.close());
                }
                // Its end was closed while it had messages.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.close(worker);
                    break;
                }
                // Too long for a message: not one.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn close(&mut self, worker: usize) {
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.is_closed = true;
            worker.unsent.clear();
        }
    }

    /// The worker that has this record; a number from the length of the list on if none has.
    fn worker_of(&self, record: u32) -> usize {
        (record / self.records_per_worker) as usize
    }

    /// The channel of a worker that reads what it is told.
    fn channel_with_room(&self, worker: usize) -> Option<Fd> {
        let worker = self.workers.get(worker)?;
        let has_room = !worker.is_closed && worker.unsent.len() <= UNSENT_MAX;
        has_room.then_some(worker.channel)
    }

    /// Handles what a worker asks. It may be a compromised one.
    fn handle(
        &mut self,
        worker: usize,
        message: Option<Message>,
        descriptors: &[Fd],
    ) -> io::Result<()> {
        match message {
            Some(sync) if sync.subject == Subject::Sync => {
                if let Some(worker) = self.workers.get_mut(worker) {
                    (worker.woken, worker.room) = (0, 0);
                }
                self.recall_again(worker)?;
                self.send_to(worker, Message::new(Subject::Synced, sync.record))
            }
            Some(room) if room.subject == Subject::Room => {
                if let Some(worker) = self.workers.get_mut(worker) {
                    worker.room = room.record;
                }
                self.wake_waiting(worker)
            }
            other => {
                let own = other.filter(|other| self.worker_of(other.record) == worker);
                self.handle_message(own, descriptors)
            }
        }
    }

    /// Handles what a worker asks about one of its own records.
    fn handle_message(&mut self, message: Option<Message>, descriptors: &[Fd]) -> io::Result<()> {
        let record = message.map_or(u32::MAX, |message| message.record);
        match (message.map(|message| message.subject), descriptors) {
            (Some(Subject::Rest), [fd]) => {
                let detail = match self.rest(record, *fd) {
                    Ok(()) => Detail::Done,
                    Err(detail) => detail,
                };
                match detail {
                    Detail::Done => self.counts.rested += 1,
                    _ => self.counts.refused += 1,
                }
                self.send(Message {
                    detail,
                    ..Message::new(Subject::Rested, record)
                })?;
            }
            // The worker could not send its descriptor, or this process had no place for it.
            (Some(Subject::Rest), []) => {
                self.counts.refused += 1;
                self.send(Message {
                    detail: self.rest_without_descriptor(record),
                    ..Message::new(Subject::Rested, record)
                })?;
            }
            (Some(Subject::Wake), []) => {
                self.wake(record)?;
            }
            (Some(Subject::Recalled), found) => {
                let has_ended = message.is_some_and(|message| message.detail == Detail::Done);
                self.settle(record, found.first().copied(), has_ended)?;
            }
            (Some(Subject::Forget), []) => self.forget(record),
            // Nothing that a worker of this build sends.
            _ => {}
        }
        Ok(())
    }

    // ---- rest ----

    /// Takes a connection out of the kernel. If it fails, the connection is as before.
    fn rest(&mut self, number: u32, fd: Fd) -> Result<(), Detail> {
        if self.is_stale(number, fd) {
            self.forget(number);
        }
        let record = *self.records.get(number).ok_or(Detail::Unable)?;
        let muted = match record.phase() {
            Phase::Waking | Phase::Gone => return Err(Detail::NoRoom),
            // A predecessor has written the record, and died before it answered: the socket is mute or out already.
            Phase::Resting => Muted::of(fd),
            Phase::Free => {
                let taken = tcp_state::checkpoint(fd, self.filter);
                let (state, muted) = taken.map_err(|refusal| match refusal {
                    Refusal::Unread | Refusal::Unacknowledged | Refusal::NotEstablished => {
                        Detail::Busy
                    }
                    _ => Detail::Unable,
                })?;
                if let Some(record) = self.records.get_mut(number) {
                    *record = Record::resting(state, boottime_ms());
                }
                muted
            }
        };
        if !self.is_in_table(number) {
            self.free(number);
            // The worker closes it, if it is broken.
            let _ = muted.release();
            return Err(Detail::NoRoom);
        }
        // A compromised worker could have passed another socket for its own record, even a listener.
        if tcp_state::is_muted(muted.fd()).is_ok_and(|is_muted| is_muted) {
            let _ = muted.unhash();
        }
        Ok(())
    }

    /// The answer to a request to rest whose descriptor is missing.
    fn rest_without_descriptor(&self, number: u32) -> Detail {
        match self.records.get(number).map(Record::phase) {
            // A predecessor has taken the connection out of the kernel, and died before it answered. The socket is mute
            // or out already, and gone when the worker closes it.
            Some(Phase::Resting) => Detail::Done,
            _ => Detail::Busy,
        }
    }

    /// Whether a record is that of an earlier connection, which its worker has forgotten: the socket of a connection that
    /// rests is mute or closed, and this one is neither.
    fn is_stale(&self, number: u32, fd: Fd) -> bool {
        let phase = self.records.get(number).map(Record::phase);
        phase == Some(Phase::Resting)
            && tcp_state::is_muted(fd).is_ok_and(|is_muted| !is_muted)
            && tcp_state::is_established(fd)
    }

    /// Frees the record of a connection that rests or is over. From then on the kernel answers its packets with a reset.
    fn forget(&mut self, number: u32) {
        let phase = self.records.get(number).map(Record::phase);
        if let Some(Phase::Resting | Phase::Gone) = phase {
            self.leave_table(number);
            self.free(number);
        }
    }

    /// Enters a record into the table, if it is not there. Returns `false` if there is no room, or another record
    /// has its digest.
    fn is_in_table(&self, number: u32) -> bool {
        self.records.get(number).is_some_and(|record| {
            let state = &record.state;
            let digest = self.table.digest(state.local(), state.peer());
            match self.table.find(digest) {
                Some(found) => found == number,
                None => self.table.insert(digest, state.receive_next(), number),
            }
        })
    }

    // ---- packets ----

    /// Handles the next packet of the ring. Returns `false` if there is none.
    fn handle_packet(&mut self, now_ms: u64) -> io::Result<bool> {
        let Some(captured) = self.ring.take() else {
            return Ok(false);
        };
        let checked = check(&captured);
        let Some(segment) = Segment::parse(captured.bytes, captured.len) else {
            return Ok(true);
        };
        if checked == Checked::Damaged {
            self.counts.stray += 1;
            return Ok(true);
        }
        let is_whole = matches!(checked, Checked::Whole | Checked::Beginning);
        if is_whole {
            copy(&captured, &mut self.packet);
        } else {
            self.packet.clear();
        }
        let Captured {
            digest,
            source,
            destination,
            ..
        } = captured;
        match self.resting(digest, source, destination) {
            // The socket exists by now, or never left the kernel.
            None => self.send_again(destination),
            Some(number) => self.handle_segment(number, &segment, now_ms)?,
        }
        Ok(true)
    }

    /// Returns the record that has these addresses, if it rests.
    fn resting(&self, digest: Digest, source: SocketAddr, destination: SocketAddr) -> Option<u32> {
        let number = self.table.find(digest)?;
        let record = self.records.get(number)?;
        let has_them = record.state.peer() == source && record.state.local() == destination;
        (has_them && record.phase() == Phase::Resting).then_some(number)
    }

    fn handle_segment(&mut self, number: u32, segment: &Segment, now_ms: u64) -> io::Result<()> {
        let Some(record) = self.records.get_mut(number) else {
            return Ok(());
        };
        let answer = answer(&record.state, segment);
        // A SYN, or a RST with another number, is not of this connection: anybody could keep a vanished peer alive.
        let is_of_peer = !segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::RST);
        if answer != Answer::Drop && is_of_peer {
            record.hear(now_ms);
        }
        match answer {
            Answer::Drop => {}
            Answer::Note { window } => record.state.set_send_window(window),
            Answer::Acknowledge => {
                if record.may_acknowledge(now_ms) {
                    let mut packet = Vec::new();
                    let echo = segment.timestamp.unwrap_or(0);
                    acknowledge(&record.state, false, echo, &mut packet);
                    self.send_raw(&packet, record_peer(&self.records, number));
                    self.counts.acknowledged += 1;
                }
            }
            Answer::Gone => self.end(number)?,
            Answer::Wake => {
                let destination = record.state.local();
                let worker = self.worker_of(number);
                let has_room = self.workers.get(worker).is_some_and(Worker::has_room);
                if !self.wakes.take(now_ms) {
                    self.counts.waited += 1;
                } else if !has_room {
                    self.counts.waited += 1;
                    self.waiting.push(worker, number, &self.packet);
                    if self.channel_with_room(worker).is_some() {
                        self.send(Message::new(Subject::Waits, number))?;
                    }
                } else if self.wake(number)? {
                    self.send_again(destination);
                }
            }
        }
        Ok(())
    }

    /// Sends the packet in hand to a socket of this machine.
    fn send_again(&self, destination: SocketAddr) {
        if !self.packet.is_empty() {
            self.send_raw(&self.packet, Some(destination));
        }
    }

    fn send_raw(&self, packet: &[u8], to: Option<SocketAddr>) {
        if let Some(to) = to {
            let raw = self.raw[usize::from(to.is_ipv6())];
            // A packet that cannot be sent is a packet that is lost: TCP repeats it.
            let _ = socket::send_raw(raw, packet, to.ip());
        }
    }

    // ---- wake ----

    /// Wakes connections whose packets have waited, while their worker has room.
    fn wake_waiting(&mut self, worker: usize) -> io::Result<()> {
        for _ in 0..PACKETS_PER_TURN {
            let has_room = self.workers.get(worker).is_some_and(Worker::has_room);
            let Some(record) = has_room.then(|| self.waiting.next(worker)).flatten() else {
                break;
            };
            if !self.wake(record)? {
                // Its sender repeats it.
                self.waiting.take(record);
            }
        }
        Ok(())
    }

    /// Makes a record into a socket and gives it to the worker. Returns `false` if it still rests.
    fn wake(&mut self, number: u32) -> io::Result<bool> {
        let Some(record) = self.records.get(number) else {
            return Ok(false);
        };
        // A worker may ask for one that is on its way.
        if record.phase() != Phase::Resting {
            return Ok(false);
        }
        let worker = self.worker_of(number);
        // The descriptor must not arrive before what was said of this record.
        self.send_unsent(worker)?;
        let ready = self.workers.get(worker);
        let ready = ready.filter(|worker| !worker.is_closed && worker.unsent.is_empty());
        let Some(channel) = ready.map(|worker| worker.channel) else {
            return Ok(false);
        };
        let Some(record) = self.records.get_mut(number) else {
            return Ok(false);
        };
        record.set_phase(Phase::Waking);
        let muted = match tcp_state::build(&record.state, self.filter, OnExec::Close) {
            Ok(muted) => muted,
            Err(error) => {
                self.counts.failed += 1;
                // Another socket has its addresses, or this machine has its address no more.
                if error.kind() == io::ErrorKind::AddrNotAvailable {
                    tracing::error!(%error, peer = %record.state.peer(), "resting connection lost");
                    record.fail();
                    self.end(number)?;
                    return Ok(false);
                }
                return self.rest_again(number);
            }
        };
        let fd = muted.fd();
        let message = Message::new(Subject::Awake, number).to_bytes();
        // From here on the worker has it, whatever happens to this process.
        match socket::send_message(channel, &message, &[fd]) {
            Ok(Attempt::Done(())) => {}
            Ok(Attempt::WouldBlock) => {
                fd.close();
                return self.rest_again(number);
            }
            // Also because another process of this user has many descriptors on their way.
            Err(error) if Shortage::of(&error).is_some() => {
                fd.close();
                return self.rest_again(number);
            }
            Err(error) => {
                fd.close();
                return Err(error);
            }
        }
        let released = muted.release();
        fd.close();
        released?;
        self.leave_table(number);
        self.counts.woken += 1;
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.woken = worker.woken.wrapping_add(1);
        }
        // The record is free when its worker has been told.
        let destination = self.records.get(number).map(|record| record.state.local());
        let packet = self.waiting.take(number);
        self.send(Message::new(Subject::Go, number))?;
        if let Some(packet) = packet {
            self.send_raw(&packet, destination);
        }
        Ok(true)
    }

    fn rest_again(&mut self, number: u32) -> io::Result<bool> {
        if let Some(record) = self.records.get_mut(number) {
            record.set_phase(Phase::Resting);
        }
        Ok(false)
    }

    fn leave_table(&self, number: u32) {
        if let Some(record) = self.records.get(number) {
            let digest = self.table.digest(record.state.local(), record.state.peer());
            self.table.remove(digest);
        }
    }

    fn free(&mut self, number: u32) {
        self.waiting.take(number);
        if let Some(record) = self.records.get_mut(number) {
            *record = Record::default();
        }
    }

    // ---- messages ----

    fn send(&mut self, message: Message) -> io::Result<()> {
        self.send_to(self.worker_of(message.record), message)
    }

    fn send_to(&mut self, number: usize, message: Message) -> io::Result<()> {
        if let Some(worker) = self.workers.get_mut(number) {
            worker.unsent.push_back(message);
        }
        self.send_unsent(number)
    }

    fn send_unsent(&mut self, number: usize) -> io::Result<()> {
        while let Some(worker) = self.workers.get_mut(number)
            && let Some(message) = worker.unsent.front().copied()
        {
            match socket::send_message(worker.channel, &message.to_bytes(), &[]) {
                Ok(Attempt::WouldBlock) => break,
                Ok(Attempt::Done(())) => worker.unsent.pop_front(),
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.close(number);
                    break;
                }
                Err(error) if Shortage::of(&error).is_some() => break,
                Err(error) => return Err(error),
            };
            if message.subject == Subject::Go {
                self.free(message.record);
            }
        }
        Ok(())
    }
}

/// What a worker is told of a connection that is over.
fn gone(number: u32, record: &Record) -> Message {
    Message {
        detail: match record.unanswered {
            0 => Detail::Done,
            Record::FAILED => Detail::Unable,
            _ => Detail::Silent,
        },
        ..Message::new(Subject::Gone, number)
    }
}

fn record_peer(records: &Records, number: u32) -> Option<SocketAddr> {
    records.get(number).map(|record| record.state.peer())
}
