//! Pools of warm connections: established and at rest before there is a local client for them.
//!
//! Such a connection is a slot like any other, in the phase `Warm`, so it survives what others
//! survive; a pool only knows which they are, and how many are lacking. One that ends is seen by its
//! socket, and is replaced. Connecting is spaced out, and ever more so while it fails, or leads to
//! connections that do not last.

use crate::established::Connections;
use dormouse_routes::route::{Direction, Route};

/// Connections begun at once.
const BATCH: u32 = 8;
/// The least time between two batches.
const SPACING_MS: u64 = 50;
/// The first and the longest wait after a failure.
const BACKOFF_MS: std::ops::Range<u64> = 200..10_000;
/// A connection that ends sooner counts as a failure.
const LASTING_S: u32 = 2;

/// The warm connections of one origination, in one worker.
#[derive(Default)]
pub(crate) struct Pool {
    wanted: u32,
    /// Index and generation of slots. Some may have ended since.
    ready: Vec<(u32, u32)>,
    /// Being connected.
    begun: u32,
    /// When to look whether one is lacking.
    look_ms: Option<u64>,
    backoff_ms: u64,
}

impl Pool {
    pub(crate) fn new(wanted: u32) -> Pool {
        Pool {
            wanted,
            look_ms: (wanted > 0).then_some(0),
            ..Pool::default()
        }
    }

    /// How many warm connections each origination wants here.
    pub(crate) fn of(routes: &[Route]) -> Vec<Pool> {
        let wanted = |direction: &Direction| match direction {
            Direction::Originate(origin) => origin.warm,
            Direction::Terminate { .. } | Direction::PassThrough(_) | Direction::Gone => 0,
        };
        routes
            .iter()
            .map(|route| Pool::new(wanted(&route.direction)))
            .collect()
    }

    pub(crate) fn look_ms(&self) -> Option<u64> {
        self.look_ms
    }

    pub(crate) fn ready(&self) -> u64 {
        self.ready.len() as u64
    }

    /// One that was begun is established.
    pub(crate) fn established(&mut self, index: u32, generation: u32) {
        self.begun = self.begun.saturating_sub(1);
        self.ready.push((index, generation));
    }

    /// One that was begun has failed.
    pub(crate) fn failed(&mut self, now_ms: u64) {
        self.begun = self.begun.saturating_sub(1);
        self.back_off(now_ms);
    }

    /// A warm connection has ended after `lasted_s`.
    pub(crate) fn lost(&mut self, lasted_s: u32, now_ms: u64) {
        if lasted_s < LASTING_S {
            self.back_off(now_ms);
        } else {
            self.backoff_ms = 0;
            self.look_soon(now_ms);
        }
    }

    /// The slot of one of them was moved.
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
        self.look_ms = Some(now_ms + self.backoff_ms);
    }

    fn look_soon(&mut self, now_ms: u64) {
        if self.wanted > 0 && self.look_ms.is_none() {
            self.look_ms = Some(now_ms + SPACING_MS);
        }
    }

    /// The slot of a warm connection that was found after a crash.
    pub(crate) fn found(&mut self, index: u32, generation: u32) {
        self.ready.push((index, generation));
    }

    /// The connection which has waited least: it is the likeliest to be good.
    pub(crate) fn pop(&mut self, now_ms: u64) -> Option<(u32, u32)> {
        let ready = self.ready.pop()?;
        self.look_soon(now_ms);
        Some(ready)
    }

    /// Looks no more, until something changes.
    pub(crate) fn rest(&mut self) {
        self.look_ms = None;
    }

    /// How many to begin now.
    pub(crate) fn lacking(&mut self, connections: &Connections, now_ms: u64) -> u32 {
        let is_warm = |&(index, generation): &(u32, u32)| connections.is_warm(index, generation);
        self.ready.retain(is_warm);
        self.look_ms = None;
        let lacking = self
            .wanted
            .saturating_sub(self.ready.len() as u32 + self.begun);
        let begin = lacking.min(BATCH);
        if lacking > begin {
            self.look_soon(now_ms);
        }
        self.begun += begin;
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_hangs_up_at_once_is_not_pressed() {
        let mut pool = Pool::new(3);
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                pool.lost(0, 1_000);
                pool.look_ms().expect("it looks again") - 1_000
            })
            .collect();
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        pool.look_ms = None;
        pool.lost(60, 2_000);
        assert_eq!(pool.look_ms(), Some(2_000 + SPACING_MS));
    }
}
