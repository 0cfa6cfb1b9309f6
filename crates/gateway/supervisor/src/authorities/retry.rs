//! Pauses between retries.

use std::hash::{BuildHasher as _, RandomState};

/// Pause after the first failure.
const FIRST_MS: u64 = 60_000;
/// Longest pause.
const LONGEST_MS: u64 = 3_600_000;

/// Pause after `failures` earlier failures in a row.
pub(super) fn backoff_ms(failures: u32) -> u64 {
    (FIRST_MS << failures.min(6)).min(LONGEST_MS)
}

/// Shortens a pause by up to a tenth, so that a fleet does not retry all at once.
pub(super) fn jitter(hasher: &RandomState, seed: u64, in_ms: u64) -> u64 {
    in_ms - hasher.hash_one(seed) % (in_ms / 10).max(1)
}
