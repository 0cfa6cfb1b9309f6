//! The sealing flow: plaintext from the plain side becomes records for the TLS peer.
//!
//! Plaintext is received directly into the content places of the next four records in the scratch
//! buffer (`[header][content][trailer]` each), sealed in place, and sent with one call. Nothing is
//! copied.

use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::established::flow;
use crate::established::interest::may_read_plain;
use crate::established::pass_through;
use crate::io::Io;
use crate::memory::allowance::{Allowance, Check, SEALING};
use crate::workspace::Workspace;
use crate::workspace::scratch::content_ranges;
use dormouse_handover::slot::{Flag, Slot};
use dormouse_reactor::socket::{Attempt, Received};
use dormouse_record::{CONTENT_MAX, SealKey};
use std::io;
use std::ops::Range;

/// Reads the plain side, which has bytes or has ended.
pub(crate) fn read_plain(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow {
    if slot.has(Flag::PassThrough) {
        return pass_through::read_plain(slot, cx);
    }
    // Taken out of the table when the first bytes arrive.
    let mut key = None;
    let read = read_turn(slot, cx, &mut key);
    if let Some(key) = key {
        cx.work.keys.keep_seal(slot, key);
    }
    read
}

fn read_turn(
    slot: &mut Slot,
    cx: &mut Context<'_, impl Io>,
    key: &mut Option<Box<SealKey>>,
) -> Flow {
    let mut moved = 0;
    while moved < cx.work.turn_max() && may_read_plain(slot) {
        let work = &mut *cx.work;
        // Bytes that can't be sealed are not read: they stay in the backend's socket.
        let left = usize::try_from(slot.tls.records_left()).unwrap_or(usize::MAX);
        if left == 0 {
            return Err(Fault::KeyExhausted);
        }
        let (records, most) = match work.allowance(slot.route, slot.tls_fd()) {
            Allowance::Full => {
                let records = left.min(work.step.plain_records());
                (records, records * CONTENT_MAX)
            }
            Allowance::Lean { room: 0, moves } => {
                cx.starve(slot, &SEALING, moves);
                return Ok(());
            }
            Allowance::Lean { room, .. } => {
                let records = (room / CONTENT_MAX).clamp(1, left);
                let records = records.min(work.receive_max() / CONTENT_MAX);
                (records, room.min(records * CONTENT_MAX))
            }
        };
        let mut ranges = content_ranges(slot);
        if records == 1 {
            ranges[0].end = ranges[0].start + most;
        }
        let ranges = &ranges[..records];
        let (n, is_end) = match receive(slot, &work.io, &mut work.scratch.sealing, ranges) {
            Ok(Attempt::Done(Received { bytes, is_end })) => (bytes, is_end),
            Ok(Attempt::WouldBlock) => return Ok(()),
            Err(e) => return Err(Fault::PlainFailed(e)),
        };
        work.step.note_plain(n, most);
        slot.clear(Flag::Untouched);
        if is_end {
            slot.set(Flag::PlainEnded);
        }
        if n == 0 {
            return Ok(());
        }
        let key = key.get_or_insert_with(|| work.keys.take_seal(slot));
        cx.outcome.bytes.plain_in += n as u64;
        flow::seal_and_send(slot, cx, key, n)?;
        moved += n;
        // A short receive has emptied the queue. Epoll is level-triggered, so another try is not needed.
        if n < most || is_end {
            break;
        }
    }
    Ok(())
}

/// What a step would do with a connection that waits for memory.
pub(crate) fn check(slot: &Slot, work: &Workspace<impl Io>) -> Check {
    match work.allowance(slot.route, slot.tls_fd()) {
        Allowance::Lean { room: 0, moves } => Check::starved(moves),
        _ => Check::Reads,
    }
}

/// Receives from the plain side, and reports whether its data has ended.
fn receive(
    slot: &Slot,
    io: &impl Io,
    buf: &mut [u8],
    ranges: &[Range<usize>],
) -> io::Result<Attempt<Received>> {
    if slot.is_joined() {
        return io.recv_from_joint(slot.plain_fd(), buf, ranges);
    }
    Ok(match io.recv_scattered(slot.plain_fd(), buf, ranges)? {
        Attempt::Done(bytes) => Attempt::Done(Received {
            bytes,
            is_end: bytes == 0,
        }),
        Attempt::WouldBlock => Attempt::WouldBlock,
    })
}
