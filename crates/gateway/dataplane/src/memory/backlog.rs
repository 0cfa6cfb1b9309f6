//! Backlogs: the unfinished bytes of a connection, in pending memory.
//!
//! The sealing flow's chunk holds sealed records that the TLS side did not take. Their sequence
//! numbers are used, so exactly these bytes must go out. The opening flow's chunk holds plaintext that
//! the plain side did not take, followed by the beginning of a record, whose length is in the slot
//! (`partial_len`).
//!
//! A chunk stores its connection's generation, so that after a crash it is not attributed to another
//! connection.

use dormouse_handover::slot::{Flag, Slot};
use dormouse_reactor::pending::{Handle, Pending};
use std::ops::Range;

/// Pending memory has no room.
pub(crate) struct NoPendingMemory;

/// Memory of the backlogs, which is more than the bytes in them.
pub(crate) fn memory(slot: &Slot, pending: &Pending) -> usize {
    pending.capacity(slot.opening_pending) + pending.capacity(slot.sealing_pending)
}

/// Plaintext pending for the plain side.
pub(crate) fn opened<'a>(slot: &Slot, pending: &'a Pending) -> &'a [u8] {
    split(slot, pending).0
}

/// The beginning of a record from the TLS side.
pub(crate) fn partial<'a>(slot: &Slot, pending: &'a Pending) -> &'a [u8] {
    split(slot, pending).1
}

fn split<'a>(slot: &Slot, pending: &'a Pending) -> (&'a [u8], &'a [u8]) {
    let data = pending.data(slot.opening_pending);
    // A slot outlives its worker: values left by a crash must not index out of bounds.
    data.split_at(data.len().saturating_sub(usize::from(slot.partial_len)))
}

/// Stores plaintext (`pieces` of `from`) and the beginning of a record (`partial` of `from`), with room
/// for the whole record (`record_len` bytes). The slot must have no opening chunk.
pub(crate) fn store_opening(
    slot: &mut Slot,
    pending: &mut Pending,
    from: &[u8],
    pieces: &[Range<usize>],
    partial: Range<usize>,
    record_len: usize,
) -> Result<(), NoPendingMemory> {
    let plaintext: usize = pieces.iter().map(ExactSizeIterator::len).sum();
    if plaintext + partial.len() == 0 {
        return Ok(());
    }
    let partial_len = u16::try_from(partial.len()).map_err(|_| NoPendingMemory)?;
    let room = plaintext + partial.len().max(record_len);
    let handle = pending
        .alloc(room, slot.generation)
        .ok_or(NoPendingMemory)?;
    for piece in pieces.iter().cloned().chain([partial]) {
        if !pending.append(handle, &from[piece]) {
            pending.free(handle);
            return Err(NoPendingMemory);
        }
    }
    slot.partial_len = partial_len;
    slot.opening_pending = handle;
    Ok(())
}

/// Appends `more` to the beginning of a record, if its chunk has the room.
pub(crate) fn extend_partial(slot: &mut Slot, pending: &mut Pending, more: &[u8]) -> bool {
    let Some(len) = usize::from(slot.partial_len).checked_add(more.len()) else {
        return false;
    };
    let Ok(len) = u16::try_from(len) else {
        return false;
    };
    let extended = pending.append(slot.opening_pending, more);
    if extended {
        slot.partial_len = len;
    }
    extended
}

/// Removes `n` sent bytes of plaintext. After the last one, the opening flow is unblocked.
pub(crate) fn opened_sent(slot: &mut Slot, pending: &mut Pending, n: usize) {
    pending.consume(slot.opening_pending, n);
    if opened(slot, pending).is_empty() {
        slot.clear(Flag::OpeningBlocked);
        if slot.partial_len == 0 {
            free_opening(slot, pending);
        }
    }
}

/// Frees the opening chunk.
pub(crate) fn free_opening(slot: &mut Slot, pending: &mut Pending) {
    pending.free(slot.opening_pending);
    slot.opening_pending = Handle::NONE;
    slot.partial_len = 0;
}

/// Appends sealed records to the pending ones.
pub(crate) fn store_sealed(
    slot: &mut Slot,
    pending: &mut Pending,
    records: &[u8],
) -> Result<(), NoPendingMemory> {
    if !records.is_empty() {
        let stored = pending.store(slot.sealing_pending, slot.generation, records);
        slot.sealing_pending = stored.ok_or(NoPendingMemory)?;
    }
    Ok(())
}

/// Removes `n` sent bytes of sealed records.
pub(crate) fn sealed_sent(slot: &mut Slot, pending: &mut Pending, n: usize) {
    pending.consume(slot.sealing_pending, n);
    if pending.is_empty(slot.sealing_pending) {
        free_sealed(slot, pending);
    }
}

/// Frees the sealing chunk.
pub(crate) fn free_sealed(slot: &mut Slot, pending: &mut Pending) {
    pending.free(slot.sealing_pending);
    slot.sealing_pending = Handle::NONE;
}
