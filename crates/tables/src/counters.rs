//! Counters, one block per worker in a mapping that all processes share.
//!
//! A worker writes only its own block, with relaxed stores, so nobody waits for anybody, and a
//! worker that is killed while it writes leaves at worst one count too few.

mod common;
mod count;

use crate::latency::{self, Latency};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, Ended};
use dormouse_reactor::shared::{Block, Shared};
use std::io;

pub use common::Common;
pub use count::{Count, Kind, Unit};

/// This worker's block of the mapping which all processes share.
#[derive(Clone, Debug)]
pub struct Counters(Block);

impl Counters {
    /// Over a block of the shared mapping.
    pub fn new(block: Block) -> Counters {
        Counters(block)
    }

    /// The block of a worker, in the mapping behind a descriptor.
    pub fn of_worker(counters: Fd, workers: u32, worker: u32) -> io::Result<Counters> {
        let shared = Shared::adopt(counters, workers as usize).map_err(io::Error::other)?;
        let block = shared.block(worker as usize);
        block
            .map(Counters)
            .ok_or_else(|| io::Error::other("there are no counters for this worker"))
    }

    /// This process is the worker, since this time of CLOCK_BOOTTIME.
    pub fn note_birth(&self, born_ms: u64) {
        self.set(Count::WorkerPid, process::pid().0 as u64);
        self.set(Count::WorkerBornMs, born_ms);
    }

    /// The worker has died of this.
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

    /// Puts values where this build has them, after a binary that had other counters, or the same
    /// in another order.
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

/// How a process ended, as a number: an exit code, or a signal with a bit above it.
fn code_of(ended: Ended) -> u64 {
    match ended {
        Ended::Exited(code) => u64::from(code as u32),
        Ended::Killed(signal) => BY_SIGNAL | u64::from(signal as u32),
    }
}

const BY_SIGNAL: u64 = 1 << 32;

/// The reverse, in words.
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
    fn an_end_goes_through_the_mapping() {
        for ended in [Ended::Exited(0), Ended::Exited(78), Ended::Killed(9)] {
            assert_eq!(ended_in_words(code_of(ended)), ended.to_string());
        }
    }

    #[test]
    fn values_follow_their_names() {
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
        assert_eq!(block.load(60), 0, "nobody's any more");
        shared.fd().close();
    }
}
