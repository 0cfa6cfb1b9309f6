//! The two buffers that all connections of a worker share, and the places of records in them.

use crate::memory::allowance::{RECEIVE_MAX, RECORDS_PER_STEP};
use dormouse_engine::stream::{BATCH_START, content_range};
use dormouse_handover::slot::Slot;
use dormouse_record::{CONTENT_MAX, RECORD_MAX};
use std::ops::Range;

/// The buffers of the opening and the sealing flow.
pub(crate) struct Scratch {
    pub(crate) opening: Box<[u8]>,
    /// Plaintext in it is sealed in place.
    pub(crate) sealing: Box<[u8]>,
    /// The length of the opening buffer's front that may contain plaintext.
    opened: usize,
}

impl Scratch {
    /// Allocates both buffers, zeroed.
    pub(crate) fn new() -> Scratch {
        let room_max = 64;
        Scratch {
            opening: vec![0; RECEIVE_MAX + RECORD_MAX].into_boxed_slice(),
            sealing: vec![0; BATCH_START + (RECORDS_PER_STEP + 2) * (CONTENT_MAX + room_max)]
                .into_boxed_slice(),
            opened: 0,
        }
    }

    /// Notes that records were opened in this much of the opening buffer.
    pub(crate) fn note_opened(&mut self, len: usize) {
        self.opened = self.opened.max(len);
    }

    /// Wipes opened plaintext, which would stay until the next record comes, of any connection.
    pub(crate) fn wipe_opened(&mut self) {
        let opened = std::mem::take(&mut self.opened);
        if let Some(front) = self.opening.get_mut(..opened) {
            front.fill(0);
        }
    }
}

/// Returns the places for the contents of the next records in the sealing buffer, for a scattered
/// receive.
pub(crate) fn content_ranges(slot: &Slot) -> [Range<usize>; RECORDS_PER_STEP] {
    std::array::from_fn(|n| content_range(&slot.tls, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_plaintext_is_wiped() {
        let mut scratch = Scratch::new();
        for len in [1_000, 100] {
            scratch.opening[..len].fill(7);
            scratch.note_opened(len);
        }
        scratch.wipe_opened();
        assert!(scratch.opening.iter().all(|&byte| byte == 0));
        scratch.opening[0] = 7;
        scratch.wipe_opened();
        assert_eq!(scratch.opening[0], 7, "nothing was opened since");
    }
}
