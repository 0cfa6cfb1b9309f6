//! Pools of warm connections, which are established before a local client needs them.
//!
//! A warm connection is an ordinary slot in the phase `Warm`, so it survives crashes and upgrades. A
//! pool only knows the indices of these slots, and how many are missing. When a warm connection ends,
//! epoll reports it and the pool replaces it. New connections are spaced out; the interval grows while
//! attempts fail or connections end soon.

use crate::established::Connections;
use crate::settings::RouteSums;
use crate::token::Id;
use std::collections::BTreeMap;

/// Maximum number of connections begun at once.
const BATCH: u32 = 8;
/// Minimum time between two batches.
const SPACING_MS: u64 = 50;
/// The first and the longest wait after a failure.
const BACKOFF_MS: std::ops::Range<u64> = 200..10_000;
/// Time between two checks whether there is room.
const ROOM_MS: u64 = 500;
/// A connection that ends sooner counts as a failure.
const LASTING_S: u32 = 2;

/// The warm connections of one origination, in one worker.
#[derive(Default)]
pub(crate) struct Pool {
    /// Configured size.
    size: u32,
    /// The slots. Some connections may have ended since.
    ready: Vec<Id>,
    /// Number of connections being established.
    begun: u32,
    /// When to check for missing connections.
    check_ms: Option<u64>,
    backoff_ms: u64,
}

impl Pool {
    pub(crate) fn new(size: u32) -> Pool {
        Pool {
            size,
            check_ms: (size > 0).then_some(0),
            ..Pool::default()
        }
    }

    /// Creates a pool for each origination, by route number.
    pub(crate) fn of(sums: &RouteSums) -> BTreeMap<u16, Pool> {
        let all = sums.originations.iter();
        all.map(|&(number, warm)| (number, Pool::new(warm)))
            .collect()
    }

    pub(crate) fn check_ms(&self) -> Option<u64> {
        self.check_ms
    }

    pub(crate) fn ready(&self) -> u64 {
        self.ready.len() as u64
    }

    /// Adds a connection that is established now.
    pub(crate) fn established(&mut self, index: u32, generation: u32) {
        self.begun = self.begun.saturating_sub(1);
        self.ready.push((index, generation));
    }

    /// Notes that an attempt has failed.
    pub(crate) fn failed(&mut self, now_ms: u64) {
        self.begun = self.begun.saturating_sub(1);
        self.back_off(now_ms);
    }

    /// Notes the end of a warm connection that lasted `lasted_s` seconds.
    pub(crate) fn lost(&mut self, lasted_s: u32, now_ms: u64) {
        if lasted_s < LASTING_S {
            self.back_off(now_ms);
        } else {
            self.backoff_ms = 0;
            self.check_soon(now_ms);
        }
    }

    /// Updates the index of a moved slot.
    pub(crate) fn moved(&mut self, from: u32, to: u32, generation: u32) {
        let entry = self
            .ready
            .iter_mut()
            .find(|entry| **entry == (from, generation));
        if let Some((index, _)) = entry {
            *index = to;
        }
    }

    fn back_off(&mut self, now_ms: u64) {
        self.backoff_ms = (self.backoff_ms * 2).clamp(BACKOFF_MS.start, BACKOFF_MS.end);
        self.check_ms = Some(now_ms + self.backoff_ms);
    }

    /// Checks for missing connections after a while.
    pub(crate) fn check_soon(&mut self, now_ms: u64) {
        if self.size > 0 && self.check_ms.is_none() {
            self.check_ms = Some(now_ms + SPACING_MS);
        }
    }

    /// Checks again later, because the limits of the route have no room for another connection.
    pub(crate) fn wait_for_room(&mut self, now_ms: u64) {
        self.check_ms = Some(now_ms + ROOM_MS);
    }

    /// Adds a warm connection that a predecessor left.
    pub(crate) fn found(&mut self, index: u32, generation: u32) {
        self.ready.push((index, generation));
    }

    /// The connections of a pool that is given up.
    pub(crate) fn into_ready(self) -> Vec<Id> {
        self.ready
    }

    /// Takes the newest connection, which is the least likely to have ended.
    pub(crate) fn pop(&mut self, now_ms: u64) -> Option<Id> {
        let ready = self.ready.pop()?;
        self.check_soon(now_ms);
        Some(ready)
    }

    /// Returns how many connections to begin now.
    pub(crate) fn missing(&mut self, connections: &Connections, now_ms: u64) -> u32 {
        let is_warm = |&(index, generation): &Id| connections.is_warm(index, generation);
        self.ready.retain(is_warm);
        self.check_ms = None;
        let missing = self
            .size
            .saturating_sub(self.ready.len() as u32 + self.begun);
        let begin = missing.min(BATCH);
        if missing > begin {
            self.check_soon(now_ms);
        }
        self.begun += begin;
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backs_off_from_a_server_that_closes_at_once() {
        let mut pool = Pool::new(3);
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                pool.lost(0, 1_000);
                pool.check_ms().expect("the time of the next check") - 1_000
            })
            .collect();
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        pool.check_ms = None;
        pool.lost(60, 2_000);
        assert_eq!(pool.check_ms(), Some(2_000 + SPACING_MS));
    }
}
