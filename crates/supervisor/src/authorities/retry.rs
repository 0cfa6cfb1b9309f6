//! Pauses after failures.

use std::hash::{BuildHasher as _, RandomState};

/// The first pause.
const FIRST_MS: u64 = 60_000;
/// The longest pause.
const LONGEST_MS: u64 = 3_600_000;

/// Pause after a failure that came after this many others in a row.
pub(super) fn backoff_ms(failures: u32) -> u64 {
    (FIRST_MS << failures.min(6)).min(LONGEST_MS)
}

/// Up to a tenth sooner, so that a fleet does not ask all at once.
pub(super) fn jitter(hasher: &RandomState, seed: u64, in_ms: u64) -> u64 {
    in_ms - hasher.hash_one(seed) % (in_ms / 10).max(1)
}
