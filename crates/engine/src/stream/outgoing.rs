//! The core of the sending direction: records sealed in place, side by side in one buffer.
//!
//! ```text
//! | room for a KeyUpdate | header, content, trailer | header, content, trailer | …
//!                        ^ BATCH_START
//! ```
//!
//! The caller writes plaintext into the contents ([`content_range`]), each full before the next
//! begins, and [`seal_batch`] turns them into records that lie without a gap, behind the KeyUpdate
//! that is owed, if one is.

use std::ops::Range;

use dormouse_record::{
    CONTENT_MAX, SMALL_RECORD_MAX, SealError, SealKey, State, record_room, seal_in_place,
    seal_key_update,
};

/// Where the first record of a batch begins.
pub const BATCH_START: usize = SMALL_RECORD_MAX;

/// Returns where the content of the record with this index goes.
pub fn content_range(state: &State, index: usize) -> Range<usize> {
    let before = index.saturating_mul(stride(state));
    let at = before.saturating_add(BATCH_START + record_room(state).header);
    at..at.saturating_add(CONTENT_MAX)
}

/// Returns the length of a buffer for a batch with this much content.
pub fn batch_len(state: &State, content_len: usize) -> usize {
    let room = record_room(state);
    let records = content_len.div_ceil(CONTENT_MAX);
    let around = records.saturating_mul(room.header + room.trailer);
    content_len
        .saturating_add(BATCH_START)
        .saturating_add(around)
}

/// Seals the first `content_len` bytes of the contents. Returns where the records lie.
///
/// After an error nothing of the buffer may be sent.
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
