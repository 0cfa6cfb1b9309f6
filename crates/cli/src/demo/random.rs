//! Random numbers for the demo: which connection wakes, and what it sends. Not for secrets.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// A xorshift generator.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Returns a generator with a different sequence in every run.
    pub(super) fn new() -> Random {
        Random(RandomState::new().build_hasher().finish() | 1)
    }

    /// Returns a number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Returns a message: mostly short, like chat and telemetry; sometimes longer than a record, so
    /// that it has to be split and reassembled.
    pub(super) fn message(&mut self) -> Vec<u8> {
        let len = match self.below(100) {
            0 => 16_385 + self.below(24_000),
            1..10 => 512 + self.below(3_584),
            _ => 16 + self.below(496),
        };
        let mut message = Vec::with_capacity(len + 8);
        while message.len() < len {
            message.extend_from_slice(&self.next().to_le_bytes());
        }
        message.truncate(len);
        message
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
