//! The core of the sending direction: seals records in place, side by side in one buffer.
//!
//! ```text
//! | room for a KeyUpdate | header, content, trailer | header, content, trailer | …
//!                        ^ BATCH_START
//! ```
//!
//! The caller writes plaintext into the content ranges ([`content_range`]), filling each before the next, and
//! [`seal_batch`] turns them into contiguous records, after a KeyUpdate if one is owed.

use std::ops::Range;

use dormouse_record::{
    CONTENT_MAX, SMALL_RECORD_MAX, SealError, SealKey, State, record_room, seal_in_place,
    seal_key_update,
};

/// Start of the first record of a batch.
pub const BATCH_START: usize = SMALL_RECORD_MAX;

/// Returns the content range of the record with this index.
pub fn content_range(state: &State, index: usize) -> Range<usize> {
    let before = index.saturating_mul(stride(state));
    let at = before.saturating_add(BATCH_START + record_room(state).header);
    at..at.saturating_add(CONTENT_MAX)
}

/// Returns the buffer length for a batch with `content_len` bytes of content.
pub fn batch_len(state: &State, content_len: usize) -> usize {
    let room = record_room(state);
    let records = content_len.div_ceil(CONTENT_MAX);
    let around = records.saturating_mul(room.header + room.trailer);
    content_len
        .saturating_add(BATCH_START)
        .saturating_add(around)
}

/// Seals the first `content_len` bytes of content. Returns the range of the records.
///
/// After an error no byte of the buffer may be sent.
pub fn seal_batch(
    state: &mut State,
    key: &mut SealKey,
    buf: &mut [u8],
    content_len: usize,
) -> Result<Range<usize>, SealError> {
    let need = batch_len(state, content_len);
    if buf.len() < need {
        return Err(SealError::BufferTooSmall { need });
    }
    let mut start = BATCH_START;
    if state.owes_key_update() {
        let mut update = [0; SMALL_RECORD_MAX];
        let len = seal_key_update(state, key, &mut update)?;
        start -= len;
        if let Some((room, update)) = buf.get_mut(start..BATCH_START).zip(update.get(..len)) {
            room.copy_from_slice(update);
        }
    }
    // All or nothing: a sealed record that is not sent would be a gap in the peer's sequence.
    if state.records_left() < content_len.div_ceil(CONTENT_MAX) as u64 {
        return Err(SealError::KeyExhausted);
    }
    let mut end = BATCH_START;
    let mut left = content_len;
    while left > 0 {
        let content = left.min(CONTENT_MAX);
        let record = buf.get_mut(end..).unwrap_or_default();
        end += seal_in_place(state, key, record, content)?;
        left -= content;
    }
    Ok(start..end)
}

fn stride(state: &State) -> usize {
    let room = record_room(state);
    room.header + CONTENT_MAX + room.trailer
}
