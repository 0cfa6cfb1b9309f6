//! The two buffers that all connections of a worker share, and where records lie in them.

use dormouse_engine::stream::{BATCH_START, content_range};
use dormouse_handover::slot::Slot;
use dormouse_record::CONTENT_MAX;
use std::ops::Range;

/// Records of full size that one receive can fill.
pub(crate) const RECORDS_PER_STEP: usize = 4;

/// What is received at once from either side, at most: 64 KiB.
pub(crate) const RECEIVE_MAX: usize = RECORDS_PER_STEP * CONTENT_MAX;

/// The longest record on the wire: header, content, TLS 1.2's expansion limit (RFC 5246 §6.2.3).
pub(crate) const RECORD_MAX: usize = 5 + CONTENT_MAX + 2048;

/// One buffer per flow.
pub(crate) struct Scratch {
    pub(crate) opening: Box<[u8]>,
    pub(crate) sealing: Box<[u8]>,
}

impl Scratch {
    /// Both buffers, zeroed.
    pub(crate) fn new() -> Scratch {
        let room_max = 64;
        Scratch {
            opening: vec![0; RECEIVE_MAX + RECORD_MAX].into_boxed_slice(),
            sealing: vec![0; BATCH_START + (RECORDS_PER_STEP + 2) * (CONTENT_MAX + room_max)]
                .into_boxed_slice(),
        }
    }
}

/// Where the contents of the next records go in the sealing buffer, for a scattered receive.
pub(crate) fn content_ranges(slot: &Slot) -> [Range<usize>; RECORDS_PER_STEP] {
    std::array::from_fn(|n| content_range(&slot.tls, n))
}
