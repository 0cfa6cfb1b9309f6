//! The two buffers that all connections of a worker share, and the places of records in them.

use crate::memory::allowance::{RECEIVE_MAX, RECORDS_PER_STEP};
use dormouse_engine::stream::{BATCH_START, content_range};
use dormouse_handover::slot::Slot;
use dormouse_record::{CONTENT_MAX, RECORD_MAX};
use std::ops::Range;

/// Plaintext of at most this length is wiped in the turn that opened it.
const WIPED_AT_ONCE_MAX: usize = RECORD_MAX;

/// Time until more of it is wiped: a worker with much to move would wipe as much in every turn.
const WIPE_MS: u64 = 100;

/// The buffers of the opening and the sealing flow.
pub(crate) struct Scratch {
    pub(crate) opening: Box<[u8]>,
    /// Plaintext in it is sealed in place.
    pub(crate) sealing: Box<[u8]>,
    /// The length of the opening buffer's front that may contain plaintext.
    opened: usize,
    /// Time at which it is wiped, if that was put off.
    wipe_at_ms: Option<u64>,
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
            wipe_at_ms: None,
        }
    }

    /// Notes that records were opened in this much of the opening buffer.
    pub(crate) fn note_opened(&mut self, len: usize) {
        self.opened = self.opened.max(len);
    }

    /// Wipes opened plaintext, which would stay until the next record comes, of any connection. Called once per turn.
    pub(crate) fn wipe_opened(&mut self, now_ms: u64) {
        if self.opened > WIPED_AT_ONCE_MAX {
            let wipe_at_ms = *self.wipe_at_ms.get_or_insert(now_ms + WIPE_MS);
            if now_ms < wipe_at_ms {
                return;
            }
        }
        self.wipe_at_ms = None;
        let opened = std::mem::take(&mut self.opened);
        self.opening[..opened].fill(0);
    }

    /// Time at which a wipe is due.
    pub(crate) fn next_wipe_ms(&self) -> Option<u64> {
        self.wipe_at_ms
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
        let is_clear = |scratch: &Scratch| scratch.opening.iter().all(|&byte| byte == 0);
        for len in [1_000, WIPED_AT_ONCE_MAX] {
            scratch.opening[..len].fill(7);
            scratch.note_opened(len);
            scratch.wipe_opened(0);
            assert!(is_clear(&scratch));
        }
        scratch.opening[0] = 7;
        scratch.wipe_opened(0);
        assert_eq!(scratch.opening[0], 7, "nothing was opened since");
    }

    #[test]
    fn a_full_buffer_is_wiped_a_moment_later_also_while_it_is_in_use() {
        let mut scratch = Scratch::new();
        let mut wiped = 0;
        for now_ms in 0..1_000 {
            scratch.opening.fill(7);
            scratch.note_opened(scratch.opening.len());
            scratch.wipe_opened(now_ms);
            wiped += usize::from(scratch.opening[0] == 0);
        }
        assert_eq!(wiped, 9);
        let due_ms = scratch.next_wipe_ms().expect("a last wipe");
        scratch.wipe_opened(due_ms);
        assert!(scratch.opening.iter().all(|&byte| byte == 0));
        assert_eq!(scratch.next_wipe_ms(), None);
    }
}
