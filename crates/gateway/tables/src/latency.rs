//! Histograms of durations, beside the counters of a worker.
//!
//! A histogram is a few words of the worker's block: the number of observations per bucket, and their
//! sum. An observation is two relaxed additions to memory that no other process writes.

use dormouse_reactor::shared::{View, WORDS};

/// First word of the histograms in a worker's block, after the counters.
pub(crate) const WORDS_AT: usize = 192;
/// Words per histogram: a count for each bound, one for longer durations, and the sum.
const WORDS_EACH: usize = BOUNDS + 2;
const BOUNDS: usize = 13;

const _: () = assert!(WORDS_AT + Latency::ALL.len() * WORDS_EACH <= WORDS);

/// Measured duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Latency {
    /// From accept to the end of a handshake, including the time in the queue.
    Handshake,
    /// From the first connect to a backend until one has accepted.
    BackendConnect,
    /// One turn of a worker's loop, which is the longest wait of any ready event.
    Wake,
}

/// Bounds in microseconds, for durations measured in whole milliseconds.
const BY_MILLISECONDS: [u64; BOUNDS] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];
/// Bounds in microseconds, for short durations.
const BY_MICROSECONDS: [u64; BOUNDS] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000,
];

/// A histogram, summed over all workers.
pub struct Distribution {
    /// Upper bounds in microseconds, each with the number of observations up to it.
    pub up_to: Vec<(u64, u64)>,
    /// All observations.
    pub count: u64,
    /// Sum of all observations, in microseconds.
    pub sum_us: u64,
}

impl Latency {
    /// All histograms, in the order of a worker's block.
    pub const ALL: &'static [Latency] =
        &[Latency::Handshake, Latency::BackendConnect, Latency::Wake];

    /// Returns the name and the description.
    pub fn name(self) -> (&'static str, &'static str) {
        match self {
            Latency::Handshake => (
                "handshake_seconds",
                "Time from accept to the end of a successful handshake, including the time in the \
                 queue.",
            ),
            Latency::BackendConnect => (
                "backend_connect_seconds",
                "Time from the first connect to a backend until one has accepted.",
            ),
            Latency::Wake => (
                "wake_seconds",
                "Longest wait of any ready event in one turn of a worker's loop. Every eighth turn \
                 is measured.",
            ),
        }
    }

    fn bounds_us(self) -> &'static [u64; BOUNDS] {
        match self {
            Latency::Handshake | Latency::BackendConnect => &BY_MILLISECONDS,
            Latency::Wake => &BY_MICROSECONDS,
        }
    }

    fn first_word(self) -> usize {
        WORDS_AT + self as usize * WORDS_EACH
    }

    /// The word that counts observations of this duration.
    pub(crate) fn bucket_at(self, took_us: u64) -> usize {
        let bucket = self.bounds_us().partition_point(|&bound| bound < took_us);
        self.first_word() + bucket
    }

    /// The word that holds the sum of all observations.
    pub(crate) fn sum_at(self) -> usize {
        self.first_word() + BOUNDS + 1
    }

    /// The sum of all workers' histograms.
    pub fn distribution(self, counters: &View) -> Distribution {
        let word = |n: usize| counters.sum(self.first_word() + n);
        let mut count = 0;
        let up_to = self.bounds_us().iter().enumerate().map(|(n, &bound)| {
            count = u64::wrapping_add(count, word(n));
            (bound, count)
        });
        let up_to: Vec<_> = up_to.collect();
        Distribution {
            count: count.wrapping_add(word(BOUNDS)),
            up_to,
            sum_us: word(BOUNDS + 1),
        }
    }
}

impl Distribution {
    /// The smallest bound, in microseconds, that this share of the observations does not exceed. `None`:
    /// there are no observations, or the quantile is above all bounds.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let found = self.up_to.iter().find(|(_, count)| *count >= rank);
        found.map(|&(bound, _)| bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use dormouse_reactor::shared::Shared;

    #[test]
    fn observations_are_counted_in_their_buckets() {
        let shared = Shared::create("test", 2).expect("memory");
        for (worker, took_us) in [(0, 1_000), (1, 1_001), (0, 10_000_000), (1, 10_000_001)] {
            let counters = Counters::new(shared.block(worker).expect("a block"));
            counters.observe(Latency::Handshake, took_us);
        }
        let reader = shared.reader().expect("a descriptor");
        let view = View::open(reader, 2).expect("a view");
        let seen = Latency::Handshake.distribution(&view);
        assert_eq!(seen.up_to[0], (1_000, 1));
        assert_eq!(seen.up_to[1], (2_500, 2));
        assert_eq!(seen.up_to[BOUNDS - 1], (10_000_000, 3));
        assert_eq!((seen.count, seen.sum_us), (4, 20_002_002));
        assert_eq!(seen.quantile_us(0.5), Some(2_500));
        assert_eq!(seen.quantile_us(0.99), None);
        for other in [Latency::BackendConnect, Latency::Wake] {
            assert_eq!(other.distribution(&view).count, 0, "{other:?}");
            assert_eq!(
                other.distribution(&view).quantile_us(0.5),
                None,
                "{other:?}"
            );
        }
        reader.close();
        shared.fd().close();
    }
}
