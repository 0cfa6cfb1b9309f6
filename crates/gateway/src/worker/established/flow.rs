//! What both flows share: the tools of the thread, and how an event can end.
//!
//! The tools belong to the worker, not to any connection: two scratch buffers, the pending pool,
//! the counters. A flow step borrows them together with the one slot it works on, and leaves
//! nothing behind but what is in the slot and in pending chunks.

use crate::backends::Backends;
use crate::clients::ClientLimits;
use crate::counters::{Count, Counters};
use crate::pace::Pace;
use crate::slot::{Flag, Slot};
use crate::worker::established::connect_times::Connects;
use crate::worker::established::tickets::Tickets;
use crate::worker::io::Io;
use crate::worker::memory::backlog;
use crate::worker::memory::kernel::KernelMemory;
use crate::worker::memory::paced::Paced;
use crate::worker::memory::starved::{LATE_MS, SOON_MS, Starved};
use dormouse_reactor::Fd;
use dormouse_reactor::pending::Pending;
use dormouse_reactor::socket::Attempt;
use dormouse_record::{Alert, AlertDescription, CONTENT_MAX, Refusal, SMALL_RECORD_MAX, SealKey};
use std::fmt;
use std::io;
use std::ops::Range;

/// Records of full size that one receive can fill.
pub(crate) const RECORDS_PER_STEP: usize = 4;

/// What is received at once from either side, at most: 64 KiB.
pub(crate) const RECEIVE_MAX: usize = RECORDS_PER_STEP * CONTENT_MAX;

/// The longest record on the wire: header, content, TLS 1.2's expansion limit (RFC 5246 §6.2.3).
pub(crate) const RECORD_MAX: usize = 5 + CONTENT_MAX + 2048;

/// Bytes moved per event before the next connection has its turn.
const TURN_BYTES_MAX: usize = 4 * RECEIVE_MAX;

/// Pending memory is kept back for steps which should not need any, but at most so much.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// A socket with no more than this in its queue takes another record: the smallest buffer that
/// can be configured is four times as large.
const LEAN_UNSENT_MAX: usize = 4096;

/// When there is hardly any room, this much is received at a time.
const LEAN_MIN: usize = 2048;

/// Where sealed output begins in the scratch buffer: a key update may have to go before it.
const SEALED_AT: usize = SMALL_RECORD_MAX;

/// Two buffers per thread; all connections work in them.
pub(crate) struct Scratch {
    pub(crate) opening: Box<[u8]>,
    pub(crate) sealing: Box<[u8]>,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let room_max = 64;
        Scratch {
            opening: vec![0; RECEIVE_MAX + RECORD_MAX].into_boxed_slice(),
            sealing: vec![0; SEALED_AT + (RECORDS_PER_STEP + 2) * (CONTENT_MAX + room_max)]
                .into_boxed_slice(),
        }
    }
}

/// What a flow step works with besides the slot.
pub(crate) struct Tools<I> {
    pub(crate) io: I,
    pub(crate) scratch: Scratch,
    pub(crate) pending: Pending,
    pub(crate) count: Counters,
    pub(crate) backends: Backends,
    /// When connects that are under way began.
    pub(crate) connects: Connects,
    /// Random, a part of the ids by which backends' logs and ours are joined.
    pub(crate) id_seed: u64,
    /// Connections which still take tickets.
    pub(crate) tickets: Tickets,
    /// What the kernel holds for those who are slow to read.
    pub(crate) kernel: KernelMemory,
    /// Connections which wait for memory.
    pub(crate) starved: Starved,
    /// Connections which have passed as much as they may for now.
    pub(crate) paced: Paced,
    /// What the step at hand has received, from either side.
    pub(crate) received: u64,
    /// When to look first at the one that starves next.
    pub(crate) starved_wait_ms: u64,
    /// A socket's send queue holds this much at most: below it nobody is asked.
    send_buffer: usize,
    /// What is received at once, at most: what one connection may then have pending is bounded.
    receive_max: usize,
    /// What a step may receive in all before the next connection has its turn.
    turn_max: usize,
    /// Pending memory which only steps that should need none may fall back on.
    reserve: usize,
}

/// How much a step may receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allowance {
    /// Whatever there is: pending memory could hold all of it.
    Full,
    /// Memory is short, by others' doing. One record at a time, of about so many bytes, because
    /// the other side's socket is sure to take that: those who read are served, whatever those do
    /// who don't.
    Lean(usize),
    /// Memory is short, and the other side is not reading.
    Nothing,
}

/// How a step on a connection ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It goes on, at rest or with something pending.
    Continues,
    /// The TLS side ended its TCP stream without close_notify: a truncation (RFC 8446 §6.1).
    TlsTruncated,
    /// The TLS side's TCP connection failed.
    TlsFailed(io::Error),
    /// The TLS peer sent a fatal alert.
    TlsAlert(u8),
    /// What the TLS peer sent is against the protocol; the alert is to be sent.
    Refused(Refusal),
    /// The plain side failed: reset, or gone.
    PlainFailed(io::Error),
    /// No key may be used any further, and the protocol version has no key update.
    KeyExhausted,
    /// Pending memory could not take what had been received. (Reads are reserved before, so this
    /// is our own fault.)
    NoPendingMemory,
    /// Epoll refused a change. Without it the connection would spin or never be heard of again.
    NotWatched(io::Error),
}

/// What is received at once, so that what one connection has pending keeps to its limit.
fn receive_max(pending_per_connection: usize) -> usize {
    let records = pending_per_connection.saturating_sub(RECORD_MAX + 64) / CONTENT_MAX;
    records.clamp(1, RECORDS_PER_STEP) * CONTENT_MAX
}

impl<I: Io> Tools<I> {
    pub(crate) fn new(
        pending: Pending,
        kernel: KernelMemory,
        count: Counters,
        backends: Backends,
        pending_per_connection: usize,
        send_buffer: usize,
        io: I,
    ) -> Tools<I> {
        let receive_max = receive_max(pending_per_connection);
        let reserve = (pending.bytes_max() / 8).min(RESERVE_BYTES_MAX);
        Tools {
            id_seed: io.random(),
            io,
            scratch: Scratch::new(),
            pending,
            count,
            backends,
            connects: Connects::new(),
            tickets: Tickets::default(),
            kernel,
            starved: Starved::default(),
            paced: Paced::default(),
            received: 0,
            starved_wait_ms: SOON_MS,
            send_buffer,
            receive_max,
            turn_max: TURN_BYTES_MAX,
            reserve,
        }
    }

    /// Other limits for what is received from now on. Where bytes are paid for, a step is no longer
    /// than a small part of a second's.
    pub(crate) fn limit_steps(&mut self, pending_per_connection: usize, limits: ClientLimits) {
        let paces = [limits.bytes, limits.bytes_of_all].into_iter().flatten();
        let least = paces.map(Pace::step_bytes).min().unwrap_or(u64::MAX);
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        let records = (least / CONTENT_MAX).clamp(1, RECORDS_PER_STEP);
        self.receive_max = receive_max(pending_per_connection).min(records * CONTENT_MAX);
        self.turn_max = TURN_BYTES_MAX.min(least.max(CONTENT_MAX));
    }

    /// Bytes received in one step, after which it ends.
    pub(crate) fn turn_max(&self) -> usize {
        self.turn_max
    }

    /// So much was received.
    pub(crate) fn note_received(&mut self, what: Count, bytes: usize) {
        self.count.add(what, bytes as u64);
        self.received += bytes as u64;
    }

    /// Bytes to receive at once, at most.
    pub(crate) fn receive_max(&self) -> usize {
        self.receive_max
    }

    /// How much may be received, if the other side then is to take it at `towards`?
    pub(crate) fn allowance(&self, towards: Fd) -> Allowance {
        let queue_max = self.kernel.queue_max();
        let has_room = self.has_room();
        // The kernel counts its overhead, too, which is as much again at most.
        if has_room && queue_max >= 2 * self.send_buffer {
            return Allowance::Full;
        }
        let Ok(unsent) = self.io.unsent(towards) else {
            return Allowance::Nothing;
        };
        let room = queue_max.saturating_sub(unsent);
        if has_room && room >= self.receive_max {
            return Allowance::Full;
        }
        // The kernel takes a record for a socket whose queue is as good as empty.
        if unsent <= LEAN_UNSENT_MAX && (unsent == 0 || room >= LEAN_MIN) {
            return Allowance::Lean(room.clamp(LEAN_MIN, CONTENT_MAX));
        }
        if has_room && room >= LEAN_MIN {
            return Allowance::Lean(room.min(CONTENT_MAX));
        }
        Allowance::Nothing
    }

    /// Is there pending memory for a whole step?
    fn has_room(&self) -> bool {
        let most = self.receive_max + RECORD_MAX;
        let in_use = self.pending.bytes_in_use();
        in_use + most + self.reserve <= self.pending.bytes_max() && self.pending.can_hold(most)
    }

    /// A flow ([`Flag::Starved`] or [`Flag::SealingStarved`]) goes on when there is memory, or the
    /// other side has taken what it has.
    pub(crate) fn starve(&mut self, slot: &mut Slot, flow: Flag) {
        slot.set(flow);
        self.starved_wait_ms = SOON_MS;
        let exhausted = if self.has_room() {
            Count::KernelExhausted
        } else {
            Count::PendingExhausted
        };
        self.count.add(exhausted, 1);
    }

    /// As `starve`: the opening flow misses the rest of a record, or room for a long one, which may
    /// take its time.
    pub(crate) fn starve_for_record(&mut self, slot: &mut Slot) {
        self.starve(slot, Flag::Starved);
        self.starved_wait_ms = LATE_MS;
    }

    /// Seals the `filled` bytes which lie in the content ranges and sends them; what the TLS side
    /// does not take becomes pending.
    pub(crate) fn seal_and_send(
        &mut self,
        slot: &mut Slot,
        key: &mut SealKey,
        filled: usize,
    ) -> Result<(), Outcome> {
        let mut start = SEALED_AT;
        if slot.tls.owes_key_update() {
            let mut update = [0; SMALL_RECORD_MAX];
            let n = dormouse_record::seal_key_update(&mut slot.tls, key, &mut update)
                .map_err(|_| Outcome::KeyExhausted)?;
            start -= n;
            self.scratch.sealing[start..SEALED_AT].copy_from_slice(&update[..n]);
        }
        let room = dormouse_record::record_room(&slot.tls);
        let stride = room.header + CONTENT_MAX + room.trailer;
        let mut end = SEALED_AT;
        let mut left = filled;
        while left > 0 {
            let content = left.min(CONTENT_MAX);
            let record = &mut self.scratch.sealing[end..end + stride];
            end += dormouse_record::seal_in_place(&mut slot.tls, key, record, content)
                .map_err(|_| Outcome::KeyExhausted)?;
            left -= content;
        }
        let Tools {
            scratch,
            pending,
            count,
            io,
            ..
        } = self;
        count.add(Count::TlsBytesOut, (end - start) as u64);
        send_sealed(slot, io, pending, &scratch.sealing[start..end])
    }

    /// Seals an alert and sends it behind whatever is pending.
    pub(crate) fn send_alert(&mut self, slot: &mut Slot, alert: Alert) -> Result<(), Outcome> {
        let mut key = SealKey::new(&slot.tls);
        let mut record = [0; SMALL_RECORD_MAX];
        let n = dormouse_record::seal_alert(&mut slot.tls, &mut key, alert, &mut record)
            .map_err(|_| Outcome::KeyExhausted)?;
        if slot.tls.closed() && slot.sealing_pending.is_none() {
            // Whoever closes shuts the TCP side down next: one segment says both.
            return match self.io.send_before_more(slot.tls_fd(), &record[..n]) {
                Ok(Attempt::Done(sent)) if sent == n => Ok(()),
                Ok(Attempt::Done(sent)) => {
                    send_sealed(slot, &self.io, &mut self.pending, &record[sent..n])
                }
                Ok(Attempt::WouldBlock) => {
                    send_sealed(slot, &self.io, &mut self.pending, &record[..n])
                }
                Err(e) => Err(Outcome::TlsFailed(e)),
            };
        }
        send_sealed(slot, &self.io, &mut self.pending, &record[..n])
    }

    /// Sends the key update that is owed, if the way is free; else it goes before the next data.
    pub(crate) fn answer_key_update(&mut self, slot: &mut Slot) -> Result<(), Outcome> {
        if !slot.tls.owes_key_update() || slot.tls.closed() || slot.sealing_pending.is_some() {
            return Ok(());
        }
        let mut key = SealKey::new(&slot.tls);
        let mut record = [0; SMALL_RECORD_MAX];
        let n = dormouse_record::seal_key_update(&mut slot.tls, &mut key, &mut record)
            .map_err(|_| Outcome::KeyExhausted)?;
        self.count.add(Count::KeyUpdates, 1);
        send_sealed(slot, &self.io, &mut self.pending, &record[..n])
    }
}

/// Where the contents of the next records go, for a scattered receive.
pub(crate) fn content_ranges(slot: &Slot) -> [Range<usize>; RECORDS_PER_STEP] {
    let room = dormouse_record::record_room(&slot.tls);
    let stride = room.header + CONTENT_MAX + room.trailer;
    std::array::from_fn(|n| {
        let at = SEALED_AT + n * stride + room.header;
        at..at + CONTENT_MAX
    })
}

/// Sends sealed records in order: behind what is pending, or at once.
pub(crate) fn send_sealed(
    slot: &mut Slot,
    io: &impl Io,
    pending: &mut Pending,
    records: &[u8],
) -> Result<(), Outcome> {
    let mut rest = records;
    if slot.sealing_pending.is_none() {
        match io.send(slot.tls_fd(), records) {
            Ok(Attempt::Done(n)) => rest = &records[n..],
            Ok(Attempt::WouldBlock) => {}
            Err(e) => return Err(Outcome::TlsFailed(e)),
        }
    }
    if rest.is_empty() || backlog::store_sealed(slot, pending, rest) {
        Ok(())
    } else {
        Err(Outcome::NoPendingMemory)
    }
}

/// Sends what is pending for the TLS side. `true`: all of it went out.
pub(crate) fn flush_sealed(
    slot: &mut Slot,
    io: &impl Io,
    pending: &mut Pending,
) -> Result<bool, Outcome> {
    while slot.sealing_pending.is_some() {
        match io.send(slot.tls_fd(), pending.data(slot.sealing_pending)) {
            Ok(Attempt::Done(n)) => backlog::sealed_sent(slot, pending, n),
            Ok(Attempt::WouldBlock) => return Ok(false),
            Err(e) => return Err(Outcome::TlsFailed(e)),
        }
    }
    Ok(true)
}

/// Sends plaintext that is pending for the plain side. `true`: all of it went out. A partial
/// record behind it stays.
pub(crate) fn flush_opened(
    slot: &mut Slot,
    io: &impl Io,
    pending: &mut Pending,
) -> Result<bool, Outcome> {
    while slot.has(Flag::OpeningBlocked) {
        match io.send(slot.plain_fd(), backlog::opened(slot, pending)) {
            Ok(Attempt::Done(n)) => backlog::opened_sent(slot, pending, n),
            Ok(Attempt::WouldBlock) => return Ok(false),
            Err(e) => return Err(Outcome::PlainFailed(e)),
        }
    }
    Ok(true)
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Continues => f.write_str("nothing is wrong"),
            Outcome::TlsTruncated => {
                f.write_str("the TLS peer ended its connection without close_notify")
            }
            Outcome::TlsFailed(e) => write!(f, "the TLS side's connection failed: {e}"),
            Outcome::TlsAlert(code) => match AlertDescription::from_code(*code) {
                Some(alert) => write!(f, "the TLS peer sent a fatal alert: {alert}"),
                None => write!(f, "the TLS peer sent a fatal alert: {code}"),
            },
            Outcome::Refused(refusal) => {
                write!(f, "refused what the TLS peer sent: {refusal}")
            }
            Outcome::PlainFailed(e) => write!(f, "the backend's connection failed: {e}"),
            Outcome::KeyExhausted => {
                f.write_str("no more records may be protected with this key (RFC 8446 §5.5)")
            }
            Outcome::NoPendingMemory => f.write_str("pending memory could not take what had come"),
            Outcome::NotWatched(e) => write!(f, "epoll refused to watch it otherwise: {e}"),
        }
    }
}
