//! Counters: one block per worker, in a mapping that all processes share.
//!
//! A worker writes only its own block, with relaxed stores and without locks. A worker that is killed
//! during a write leaves at worst a count that is one too low.

mod common;
mod count;

use crate::latency::{self, Latency};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, Ended};
use dormouse_reactor::shared::{Block, Shared};
use std::io;

pub use common::Common;
pub use count::{Count, Kind, Unit};

/// This worker's block of the shared mapping.
#[derive(Clone, Debug)]
pub struct Counters(Block);

impl Counters {
    /// Wraps a block of the shared mapping.
    pub fn new(block: Block) -> Counters {
        Counters(block)
    }

    /// Maps the block of a worker, by the mapping's descriptor.
    pub fn of_worker(counters: Fd, workers: u32, worker: u32) -> io::Result<Counters> {
        let shared = Shared::adopt(counters, workers as usize).map_err(io::Error::other)?;
        let block = shared.block(worker as usize);
        block
            .map(Counters)
            .ok_or_else(|| io::Error::other("the mapping has no counters for this worker"))
    }

    /// Notes that this process is the worker, and its start time on CLOCK_BOOTTIME.
    pub fn note_birth(&self, born_ms: u64) {
        self.set(Count::WorkerPid, process::pid().0 as u64);
        self.set(Count::WorkerBornMs, born_ms);
    }

    /// Notes the time and the cause of the worker's death.
    pub fn note_death(&self, ended: Ended) {
        self.set(Count::DiedOf, code_of(ended));
        self.set(Count::DiedMs, process::boottime_ms());
    }

    /// Adds `n`.
    pub fn add(&self, count: Count, n: u64) {
        self.0.add(count as usize, n);
    }

    /// Adds an observation of `took_us` microseconds to a histogram.
    pub fn observe(&self, latency: Latency, took_us: u64) {
        self.0.add(latency.bucket_at(took_us), 1);
        self.0.add(latency.sum_at(), took_us);
    }

    /// Moves values to this build's places, after an upgrade from a binary with other counters or another
    /// order. `former` are that binary's names.
    pub fn reorder(&self, former: &[String]) {
        let values: Vec<u64> = (0..former.len()).map(|word| self.0.load(word)).collect();
        for (word, count) in Count::ALL.iter().enumerate() {
            let place = former.iter().position(|name| name == count.name());
            let value = place.and_then(|place| values.get(place));
            self.0.set(word, value.copied().unwrap_or(0));
        }
        self.0.clear(Count::ALL.len()..latency::WORDS_AT);
    }

    /// Sets a gauge.
    pub fn set(&self, count: Count, value: u64) {
        self.0.set(count as usize, value);
    }
}

const _: () = assert!(Count::ALL.len() <= latency::WORDS_AT);

/// Encodes how a process ended: an exit code, or a signal number with bit 32 set.
fn code_of(ended: Ended) -> u64 {
    match ended {
        Ended::Exited(code) => u64::from(code as u32),
        Ended::Killed(signal) => BY_SIGNAL | u64::from(signal as u32),
    }
}

const BY_SIGNAL: u64 = 1 << 32;

/// Decodes how a process ended, as text.
pub fn ended_in_words(code: u64) -> String {
    let number = code as u32 as i32;
    if code & BY_SIGNAL != 0 {
        Ended::Killed(number).to_string()
    } else {
        Ended::Exited(number).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_death_round_trips() {
        for ended in [Ended::Exited(0), Ended::Exited(78), Ended::Killed(9)] {
            assert_eq!(ended_in_words(code_of(ended)), ended.to_string());
        }
    }

    #[test]
    fn values_move_with_their_names() {
        let shared = Shared::create("test", 1).expect("memory");
        let block = shared.block(0).expect("a block");
        let count = Counters::new(block.clone());
        let former = ["restarts", "gone", "accepted"].map(String::from);
        for (word, value) in [7, 8, 9].into_iter().enumerate() {
            block.set(word, value);
        }
        block.set(60, 3);
        count.reorder(&former);
        assert_eq!(block.load(Count::Restarts as usize), 7);
        assert_eq!(block.load(Count::Accepted as usize), 9);
        assert_eq!(shared.sum(Count::Connections as usize), 0);
        assert_eq!(block.load(60), 0, "unused words are cleared");
        shared.fd().close();
    }
}
