//! Backlogs: what a connection could not finish yet, in pending memory.
//!
//! A chunk holds up to two runs of bytes behind a small header:
//!
//! ```text
//! | start mid end | already sent | to send: start..mid | a record's beginning: mid..end | free |
//! ```
//!
//! The opening flow uses both (plaintext which the plain side did not take, then a partial
//! record), the sealing flow only the first (sealed records which the TLS side did not take:
//! their sequence numbers are spent, so these very bytes must go out).

use dormouse_reactor::pending::{Handle, Pending};
use std::ops::Range;

const HEADER: usize = 12;

/// The most that one chunk holds; what a connection may have pending in one direction.
pub(super) const BACKLOG_MAX: usize = 256 * 1024 - 1024;

struct Marks {
    start: usize,
    mid: usize,
    end: usize,
}

fn marks(chunk: &[u8]) -> Marks {
    let word = |at: usize| match chunk.get(at..at + 4) {
        Some(bytes) => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize,
        None => HEADER,
    };
    // A chunk survives its worker: what a crash left half written must not index out of bounds.
    let end = word(8).clamp(HEADER, chunk.len().max(HEADER));
    let mid = word(4).clamp(HEADER, end);
    Marks { start: word(0).clamp(HEADER, mid), mid, end }
}

fn set_marks(chunk: &mut [u8], marks: &Marks) {
    for (at, value) in [(0, marks.start), (4, marks.mid), (8, marks.end)] {
        chunk[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }
}

/// Stores `pieces` of `from` as bytes to send and `partial` as a record's beginning, with room for
/// `reserve` bytes of that record in all. `None`: pending memory has no room.
pub(super) fn store(
    pending: &mut Pending,
    from: &[u8],
    pieces: &[Range<usize>],
    partial: Range<usize>,
    reserve: usize,
) -> Option<Handle> {
    let to_send: usize = pieces.iter().map(ExactSizeIterator::len).sum();
    let room = HEADER + to_send + partial.len().max(reserve);
    let handle = pending.alloc(room)?;
    let chunk = pending.bytes_mut(handle)?;
    let mut at = HEADER;
    for piece in pieces {
        chunk[at..at + piece.len()].copy_from_slice(&from[piece.clone()]);
        at += piece.len();
    }
    let mid = at;
    chunk[at..at + partial.len()].copy_from_slice(&from[partial.clone()]);
    set_marks(chunk, &Marks { start: HEADER, mid, end: mid + partial.len() });
    Some(handle)
}

/// The bytes to send.
pub(super) fn to_send(pending: &Pending, handle: Handle) -> &[u8] {
    match pending.bytes(handle) {
        Some(chunk) => {
            let marks = marks(chunk);
            chunk.get(marks.start..marks.mid).unwrap_or_default()
        }
        None => &[],
    }
}

/// The beginning of a record.
pub(super) fn partial(pending: &Pending, handle: Handle) -> &[u8] {
    match pending.bytes(handle) {
        Some(chunk) => {
            let marks = marks(chunk);
            chunk.get(marks.mid..marks.end).unwrap_or_default()
        }
        None => &[],
    }
}

/// `n` bytes have been sent.
pub(super) fn sent(pending: &mut Pending, handle: Handle, n: usize) {
    if let Some(chunk) = pending.bytes_mut(handle) {
        let mut marks = marks(chunk);
        marks.start = (marks.start + n).min(marks.mid);
        set_marks(chunk, &marks);
    }
}

/// Adds `more` to the record's beginning, if the chunk has the room.
pub(super) fn extend_partial(pending: &mut Pending, handle: Handle, more: &[u8]) -> bool {
    let Some(chunk) = pending.bytes_mut(handle) else { return false };
    let mut marks = marks(chunk);
    let Some(room) = chunk.get_mut(marks.end..marks.end + more.len()) else { return false };
    room.copy_from_slice(more);
    marks.end += more.len();
    set_marks(chunk, &marks);
    true
}

/// Adds `more` behind the bytes to send of a chunk which holds no partial record. Moves to a
/// larger chunk if need be; `None`: no room, and `handle` is as it was.
pub(super) fn append(pending: &mut Pending, handle: Handle, more: &[u8]) -> Option<Handle> {
    if extend_to_send(pending, handle, more) {
        return Some(handle);
    }
    let mut all = to_send(pending, handle).to_vec();
    all.extend_from_slice(more);
    let larger = store(pending, &all, &[0..all.len()], 0..0, 0)?;
    pending.free(handle);
    Some(larger)
}

fn extend_to_send(pending: &mut Pending, handle: Handle, more: &[u8]) -> bool {
    if !partial(pending, handle).is_empty() || !extend_partial(pending, handle, more) {
        return false;
    }
    if let Some(chunk) = pending.bytes_mut(handle) {
        let mut marks = marks(chunk);
        marks.mid = marks.end;
        set_marks(chunk, &marks);
    }
    true
}
