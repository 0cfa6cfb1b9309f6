//! The opening flow: records from the TLS peer become plaintext for the plain side.
//!
//! Received records are opened in place, and their plaintexts are sent with one call, from where they
//! lie. Two things may be left: plaintext that the plain side did not take (then nothing more is read
//! until it did), and the beginning of a record.
//!
//! # Buffers
//!
//! The bytes of the TLS peer are in three places, in this order: the slot's opening chunk in pending
//! memory, the scratch buffer (only during a step), and the kernel's receive queue.
//!
//! ```text
//! chunk     | plaintext that the plain side did not take | beginning of a record: partial_len bytes | room |
//!
//! scratch   | record, opened in place | record … | beginning of a record | unused
//!           0                          at                                 filled
//! ```
//!
//! 1. **Between two steps the scratch buffer belongs to no connection.** A step leaves nothing in it: what it did not
//!    send is in the chunk, or still in the kernel.
//! 2. **Each byte is opened once.** The beginning of a record leaves the chunk before `open_record` sees it
//!    (`restore_partial`). Only bytes at and behind `at` return, and those the record state has not seen. Plaintext in
//!    the chunk is never opened again.
//! 3. **A chunk has room for the whole of its last record**, so the rest needs no memory (`keep_trickle`), also when
//!    memory is short.
//! 4. **While plaintext waits, nothing is received** (`may_read_tls`). So a chunk never holds more than one receive and a
//!    record: `receive_max + RECORD_MAX`, within `pending_per_connection`.
//! 5. **While memory is short, a step receives one record, and only if the destination's socket takes it** ([`next`]). So
//!    nothing is left to store. The exception is a record that its receive queue can't hold: its beginning is stored, in
//!    the reserve.
//! 6. **A connection that is not read has a reason, and each reason has its event.**
//!
//! | reason | state | what resumes it |
//! |---|---|---|
//! | nothing has arrived | – | readable |
//! | a part of a record has arrived, and memory is short | `AwaitsRecord` | the next arrival (an edge), or a check |
//! | the destination has not taken what it got before | `Starved`, `OpeningHeld` | the destination has drained, or a check |
//! | no memory | `Starved` | a check |
//! | plaintext waits in the chunk | `OpeningBlocked` | the destination is writable |
//!
//! A check applies [`next`], like a step ([`check`]). The chunk of bytes that followed a handshake may contain
//! several records; `open_stored` opens them when the backend is connected.

use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::established::flow;
use crate::established::interest::may_read_tls;
use crate::established::pass_through;
use crate::io::Io;
use crate::memory::allowance::{Allowance, Check, OPENING};
use crate::memory::backlog;
use crate::workspace::Workspace;
use crate::workspace::scratch::content_ranges;
use dormouse_engine::stream::{End, Incoming, open_record};
use dormouse_handover::slot::{Flag, Phase, Slot};
use dormouse_handover::trial;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{Attempt, RANGES_MAX};
use dormouse_record::{CONTENT_MAX, OpenKey, RECORD_MAX, Refusal, SealKey};
use std::ops::Range;

/// Length of a record's header.
const RECORD_HEADER: usize = 5;

/// Plaintexts shorter than this are moved together, so that one call can send all of them.
const PIECE_MIN: usize = 4096;

/// Reads the TLS side, which has bytes or has ended.
pub(crate) fn read_tls(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow {
    if slot.has(Flag::PassThrough) {
        return pass_through::read_tls(slot, cx);
    }
    // Taken out of the table when the first record arrives.
    let mut key = None;
    let opened = open_turn(slot, cx, &mut key);
    if let Some(key) = key {
        cx.work.keys.keep_open(slot, key);
    }
    let answered = flow::answer_key_update(slot, cx.work);
    opened.and(answered)
}

/// Opens stored records (bytes that followed the handshake), without receiving.
pub(crate) fn open_stored(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow {
    let have = restore_partial(slot, cx.work);
    if have == 0 {
        return Ok(());
    }
    let mut key = cx.work.keys.take_open(slot);
    let opened = open_received(slot, cx, &mut key, have);
    cx.work.keys.keep_open(slot, key);
    // A KeyUpdate may have followed Finished, and no data may come for a long time to carry the answer.
    let answered = flow::answer_key_update(slot, cx.work);
    opened.and(answered)
}

fn open_turn(
    slot: &mut Slot,
    cx: &mut Context<'_, impl Io>,
    key: &mut Option<Box<OpenKey>>,
) -> Flow {
    let mut moved = 0;
    slot.clear(Flag::AwaitsRecord);
    while moved < cx.work.turn_max() && may_read_tls(slot) {
        let most = match next(slot, cx.work)? {
            Next::Receive(most) => most,
            Next::AwaitBytes => return Ok(()),
            Next::AwaitRecord => {
                cx.await_record(slot);
                return Ok(());
            }
            Next::Starve { moves } => {
                cx.starve(slot, &OPENING, moves);
                return Ok(());
            }
        };
        let work = &mut *cx.work;
        // The new bytes go after the stored beginning of a record, if there is one.
        let have = usize::from(slot.partial_len);
        let room = have..(have + most).min(work.scratch.opening.len());
        let n = match work.io.recv(slot.tls_fd(), &mut work.scratch.opening[room]) {
            Ok(Attempt::Done(0)) => return Err(Fault::TlsTruncated),
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Ok(()),
            Err(e) => return Err(Fault::TlsFailed(e)),
        };
        cx.outcome.bytes.tls_in += n as u64;
        trial::crash_on(work.scratch.opening.get(have..have + n).unwrap_or_default());
        moved += n;
        if have > 0 && keep_trickle(slot, work, have, n) {
            return Ok(());
        }
        restore_partial(slot, work);
        let key = key.get_or_insert_with(|| work.keys.take_open(slot));
        open_received(slot, cx, key, have + n)?;
        if n < most {
            break;
        }
    }
    Ok(())
}

/// What a step does with the TLS side.
#[derive(Debug)]
enum Next {
    /// It receives at most this many bytes.
    Receive(usize),
    /// Nothing has arrived. An event reports when something has.
    AwaitBytes,
    /// Memory is short, and a part of a record has arrived. An event reports when more has.
    AwaitRecord,
    /// Memory is short. An event reports when the destination has drained, if it doesn't move now.
    Starve { moves: bool },
}

/// What a step would do with a connection that waits for memory, or for the rest of a record.
pub(crate) fn check(slot: &Slot, work: &Workspace<impl Io>) -> Check {
    if slot.has(Flag::PassThrough) {
        let room = pass_through::room(work, slot.route, slot.plain_fd());
        return room.map_or_else(Check::starved, |_| Check::Reads);
    }
    match next(slot, work) {
        Ok(Next::AwaitRecord) => Check::Waits,
        Ok(Next::Starve { moves }) => Check::starved(moves),
        _ => Check::Reads,
    }
}

/// Decides what to do with the TLS side: the one rule of steps and of [`check`].
fn next(slot: &Slot, work: &Workspace<impl Io>) -> Flow<Next> {
    match work.allowance(slot.route, destination(slot)) {
        Allowance::Full => Ok(Next::Receive(work.receive_max())),
        Allowance::Lean { room: 0, moves } => Ok(Next::Starve { moves }),
        Allowance::Lean { room, moves } => next_record(slot, work, room, moves),
    }
}

/// As [`next`], while memory is short: one record, if all of it has arrived and its plaintext has `room`, and nothing of
/// the next one. At the end of the stream one byte, so that the receive reports the end.
fn next_record(slot: &Slot, work: &Workspace<impl Io>, room: usize, moves: bool) -> Flow<Next> {
    let stored = backlog::partial(slot, &work.pending);
    let receive = |len: usize| match len <= room {
        true => Next::Receive(len.saturating_sub(stored.len()).max(1)),
        false => Next::Starve { moves },
    };
    if let Some(len) = record_len(stored) {
        // It has begun, and its chunk has room for the rest.
        return Ok(receive(len));
    }
    let mut ahead = [0; RECORD_HEADER];
    let peeked = match work.io.peek(slot.tls_fd(), &mut ahead) {
        Ok(Attempt::Done(0)) => return Ok(Next::Receive(1)),
        Ok(Attempt::Done(n)) => n,
        Ok(Attempt::WouldBlock) => return Ok(Next::AwaitBytes),
        Err(e) => return Err(Fault::TlsFailed(e)),
    };
    let header = stored.iter().chain(&ahead[..peeked]).copied();
    let Some(len) = record_len(&header.collect::<Vec<u8>>()) else {
        return Ok(Next::AwaitRecord);
    };
    let missing = len.saturating_sub(stored.len());
    Ok(match work.io.received_unread(slot.tls_fd()) {
        Ok(unread) if unread < missing => {
            let fills = work.is_receive_queue_full(slot.tls_fd());
            match work.may_store_part(slot.route, fills) {
                true => Next::Receive(unread),
                false if fills => Next::Starve { moves: true },
                false => Next::AwaitRecord,
            }
        }
        _ => receive(len),
    })
}

/// The socket to which plaintext is sent.
fn destination(slot: &Slot) -> Fd {
    if slot.is_echo() {
        slot.tls_fd()
    } else {
        slot.plain_fd()
    }
}

/// The length of the record that begins so. `None`: its header is incomplete.
fn record_len(begun: &[u8]) -> Option<usize> {
    let [_, _, _, high, low, ..] = *begun else {
        return None;
    };
    // `open` refuses an impossible length; here it must only not make us wait.
    Some((RECORD_HEADER + usize::from(u16::from_be_bytes([high, low]))).min(RECORD_MAX))
}

/// Appends bytes to a record that is still incomplete, so that a record that arrives byte by byte is
/// not copied for every byte. Returns `false` if the record is complete.
fn keep_trickle(slot: &mut Slot, work: &mut Workspace<impl Io>, have: usize, n: usize) -> bool {
    let Some(len) = record_len(backlog::partial(slot, &work.pending)) else {
        return false;
    };
    let Workspace {
        scratch, pending, ..
    } = work;
    have + n < len && backlog::extend_partial(slot, pending, &scratch.opening[have..have + n])
}

/// Moves the stored beginning of a record to the front of the scratch buffer.
fn restore_partial(slot: &mut Slot, work: &mut Workspace<impl Io>) -> usize {
    if slot.opening_pending.is_none() {
        return 0;
    }
    let partial = backlog::partial(slot, &work.pending);
    let n = partial.len().min(work.scratch.opening.len());
    work.scratch.opening[..n].copy_from_slice(&partial[..n]);
    backlog::free_opening(slot, &mut work.pending);
    n
}

/// Opens every whole record in the first `filled` bytes of the scratch buffer, sends the plaintext
/// on and stores the rest.
fn open_received(
    slot: &mut Slot,
    cx: &mut Context<'_, impl Io>,
    key: &mut OpenKey,
    filled: usize,
) -> Flow {
    cx.work.scratch.note_opened(filled);
    let mut pieces = Pieces::default();
    let (at, need, verdict) = open_records(slot, cx, key, filled, &mut pieces);
    if at > 0 {
        slot.set(Flag::RecordCompleted);
    }
    // Plaintext opened before a fault is valid, and is delivered before the fault takes effect.
    deliver(slot, cx, &pieces, at..filled, need)?;
    verdict
}

/// Opens records from the start of the scratch buffer. Returns the position at which it stopped, the
/// length of the partial record there, and the fault if one stopped it.
fn open_records(
    slot: &mut Slot,
    cx: &mut Context<'_, impl Io>,
    key: &mut OpenKey,
    filled: usize,
    pieces: &mut Pieces,
) -> (usize, usize, Flow) {
    let Context { work, outcome, .. } = cx;
    let mut at = 0;
    while at < filled {
        let record = &mut work.scratch.opening[at..filled];
        match open_record(&mut slot.tls, key, record) {
            Incoming::Partial { need } => return (at, need, Ok(())),
            Incoming::Data {
                consumed,
                plaintext,
            } => {
                let plaintext = at + plaintext.start..at + plaintext.end;
                outcome.bytes.plain_out += plaintext.len() as u64;
                pieces.push(&mut work.scratch.opening, plaintext);
                at += consumed;
            }
            Incoming::Ticket { consumed, fragment } => {
                let fragment = at + fragment.start..at + fragment.end;
                if let Err(refusal) = take_ticket(slot, work, fragment) {
                    return (filled, 0, Err(Fault::Refused(refusal)));
                }
                at += consumed;
            }
            Incoming::Handled { consumed, answer } => {
                at += consumed;
                // A peer that does not read its answers gets no more of them.
                let has_room = work.pending.len(slot.sealing_pending) <= work.answers_max();
                if let Some(alert) = answer.filter(|_| has_room)
                    && let Err(fault) = flow::send_alert(slot, work, alert)
                {
                    return (filled, 0, Err(fault));
                }
            }
            // Data after the end is ignored (RFC 8446 §6.1).
            Incoming::Ended(end) => return (filled, 0, flow_after(end)),
        }
    }
    (filled, 0, Ok(()))
}

/// Converts the end of the TLS peer's direction to a flow.
fn flow_after(end: End) -> Flow {
    match end {
        End::Closed => Ok(()),
        End::Alert(code) => Err(Fault::TlsAlert(code)),
        End::Refused(refusal) => Err(Fault::Refused(refusal)),
        // These never result from a record.
        End::Truncated | End::Handshake(_) => Err(Fault::TlsTruncated),
    }
}

/// Passes bytes of a ticket message to the session that waits for it.
fn take_ticket(
    slot: &Slot,
    work: &mut Workspace<impl Io>,
    fragment: Range<usize>,
) -> Result<(), Refusal> {
    let bytes = work.scratch.opening.get(fragment).unwrap_or_default();
    let now = work.io.unix_time();
    work.tickets.take(slot.generation, bytes, now, &work.count)
}

/// Sends the plaintext. Stores the plaintext that the socket did not take, and the partial record
/// `rest`.
fn deliver(
    slot: &mut Slot,
    cx: &mut Context<'_, impl Io>,
    pieces: &Pieces,
    rest: Range<usize>,
    need: usize,
) -> Flow {
    if slot.is_echo() {
        echo(slot, cx, pieces)?;
        return keep(slot, cx.work, &[], rest, need);
    }
    let work = &mut *cx.work;
    if pieces.ranges.is_empty() {
        return keep(slot, work, &[], rest, need);
    }
    slot.clear(Flag::Untouched);
    // The server of a warm connection has sent data first: it waits for a local client.
    let sent = match slot.phase() {
        Phase::Warm => 0,
        _ => send_pieces(slot, &work.io, &work.scratch.opening, &pieces.ranges)?,
    };
    let unsent = pieces.after(sent);
    if !unsent.is_empty() {
        slot.set(Flag::OpeningBlocked);
    }
    keep(slot, work, &unsent, rest, need)
}

/// Sends what the plain side takes. Returns the number of bytes.
fn send_pieces(slot: &Slot, io: &impl Io, from: &[u8], pieces: &[Range<usize>]) -> Flow<usize> {
    let mut sent = 0;
    for group in pieces.chunks(RANGES_MAX) {
        let group_len: usize = group.iter().map(ExactSizeIterator::len).sum();
        match io.send_gathered(slot.plain_fd(), from, group) {
            Ok(Attempt::Done(n)) => {
                sent += n;
                if n < group_len {
                    break;
                }
            }
            Ok(Attempt::WouldBlock) => break,
            Err(e) => return Err(Fault::PlainFailed(e)),
        }
    }
    Ok(sent)
}

fn keep(
    slot: &mut Slot,
    work: &mut Workspace<impl Io>,
    unsent: &[Range<usize>],
    rest: Range<usize>,
    need: usize,
) -> Flow {
    let Workspace {
        scratch, pending, ..
    } = work;
    let record_len = if rest.is_empty() {
        0
    } else {
        need.min(RECORD_MAX)
    };
    backlog::store_opening(slot, pending, &scratch.opening, unsent, rest, record_len)?;
    Ok(())
}

/// Echoes the plaintext: copies it to the sealing buffer and seals it.
fn echo(slot: &mut Slot, cx: &mut Context<'_, impl Io>, pieces: &Pieces) -> Flow {
    if slot.tls.closed() || pieces.ranges.is_empty() {
        return Ok(());
    }
    let mut key = cx.work.keys.take_seal(slot);
    let echoed = echo_with(slot, cx, &mut key, pieces);
    cx.work.keys.keep_seal(slot, key);
    echoed
}

fn echo_with(
    slot: &mut Slot,
    cx: &mut Context<'_, impl Io>,
    key: &mut SealKey,
    pieces: &Pieces,
) -> Flow {
    let ranges = content_ranges(slot);
    let mut filled = 0;
    for piece in &pieces.ranges {
        let mut from = piece.clone();
        while !from.is_empty() {
            let Some(content) = ranges.get(filled / CONTENT_MAX) else {
                flow::seal_and_send(slot, cx, key, filled)?;
                filled = 0;
                continue;
            };
            let at = content.start + filled % CONTENT_MAX;
            let n = from.len().min(content.end - at);
            let scratch = &mut cx.work.scratch;
            scratch.sealing[at..at + n]
                .copy_from_slice(&scratch.opening[from.start..from.start + n]);
            filled += n;
            from.start += n;
        }
    }
    if filled > 0 {
        flow::seal_and_send(slot, cx, key, filled)?;
    }
    Ok(())
}

/// The places of the plaintexts in the scratch buffer, in order.
#[derive(Default)]
struct Pieces {
    ranges: Vec<Range<usize>>,
}

impl Pieces {
    fn push(&mut self, scratch: &mut [u8], piece: Range<usize>) {
        if piece.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if piece.len() < PIECE_MIN => {
                let n = piece.len();
                scratch.copy_within(piece, last.end);
                last.end += n;
            }
            _ => self.ranges.push(piece),
        }
    }

    /// The ranges after the first `n` bytes.
    fn after(&self, n: usize) -> Vec<Range<usize>> {
        let mut skipped = n;
        let mut left = Vec::new();
        for range in &self.ranges {
            let skip = skipped.min(range.len());
            skipped -= skip;
            if skip < range.len() {
                left.push(range.start + skip..range.end);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_moved_together_and_long_ones_stay() {
        let mut scratch: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
        let want: Vec<u8> = [5..105, 200..210, 300..9_000]
            .iter()
            .flat_map(|r| scratch[r.clone()].to_vec())
            .collect();
        let mut pieces = Pieces::default();
        for range in [5..105, 200..210, 250..250, 300..9_000] {
            pieces.push(&mut scratch, range);
        }
        assert_eq!(pieces.ranges, vec![5..115, 300..9_000]);
        let got: Vec<u8> = pieces
            .ranges
            .iter()
            .flat_map(|r| scratch[r.clone()].to_vec())
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn ranges_after_a_partial_send() {
        let pieces = Pieces {
            ranges: vec![5..10, 20..30],
        };
        assert_eq!(pieces.after(0), vec![5..10, 20..30]);
        assert_eq!(pieces.after(3), vec![8..10, 20..30]);
        assert_eq!(pieces.after(5), vec![20..30]);
        assert_eq!(pieces.after(7), vec![22..30]);
        assert_eq!(pieces.after(15), vec![]);
    }
}
