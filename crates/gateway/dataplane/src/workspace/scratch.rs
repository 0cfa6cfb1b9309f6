//! The two buffers that all connections of a worker share, and the places of records in them.

use crate::memory::allowance::{RECEIVE_MAX, RECORDS_PER_STEP};
use dormouse_engine::stream::{BATCH_START, content_range};
use dormouse_handover::slot::Slot;
use dormouse_record::{CONTENT_MAX, RECORD_MAX};
use std::ops::Range;

/// The buffers of the opening and the sealing flow.
pub(crate) struct Scratch {
    pub(crate) opening: Box<[u8]>,
    pub(crate) sealing: Box<[u8]>,
}

impl Scratch {
    /// Allocates both buffers, zeroed.
    pub(crate) fn new() -> Scratch {
        let room_max = 64;
        Scratch {
            opening: vec![0; RECEIVE_MAX + RECORD_MAX].into_boxed_slice(),
            sealing: vec![0; BATCH_START + (RECORDS_PER_STEP + 2) * (CONTENT_MAX + room_max)]
                .into_boxed_slice(),
        }
    }
}

/// Returns the places for the contents of the next records in the sealing buffer, for a scattered
/// receive.
pub(crate) fn content_ranges(slot: &Slot) -> [Range<usize>; RECORDS_PER_STEP] {
    std::array::from_fn(|n| content_range(&slot.tls, n))
}
