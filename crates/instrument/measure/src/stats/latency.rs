//! Distributions of latencies in bounded memory.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency, in nanoseconds. Latencies are kept with three significant digits.
const LONGEST_NS: u64 = 600 * 1_000_000_000;

/// The percentiles a curve is drawn from.
const CURVE: [f64; 14] = [
    1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0,
];

/// A distribution of latencies. Its size does not depend on the number of latencies.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// The sparse form in which a generator sends its distribution.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SparseHistogram(Vec<(u64, u64)>);

/// Percentiles of a distribution, in microseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Number of latencies.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Half were at most this.
    pub p50_us: f64,
    /// Nine of ten were at most this.
    pub p90_us: f64,
    /// 99 of 100 were at most this.
    pub p99_us: f64,
    /// 999 of 1000 were at most this.
    pub p999_us: f64,
    /// The greatest.
    pub max_us: f64,
    /// (percentile, microseconds), for drawing.
    pub curve: Vec<(f64, f64)>,
}

impl Latencies {
    /// Returns an empty distribution.
    pub fn new() -> Self {
        // The bounds are constants that the library accepts; the fallback is never used.
        let histogram = Histogram::new_with_bounds(100, LONGEST_NS, 3)
            .or_else(|_| Histogram::new(3))
            .unwrap_or_else(|_| unreachable!("three digits are a valid precision"));
        Self { histogram }
    }

    /// Records one latency; longer ones than ten minutes count as ten minutes.
    pub fn record(&mut self, latency: Duration) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NS);
        self.histogram.saturating_record(latency_ns.min(LONGEST_NS));
    }

    /// Returns the number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the form that is sent between processes.
    pub fn to_sparse(&self) -> SparseHistogram {
        let values = self.histogram.iter_recorded();
        SparseHistogram(
            values
                .map(|v| (v.value_iterated_to(), v.count_at_value()))
                .collect(),
        )
    }

    /// Adds the distribution of another process.
    pub fn add(&mut self, sparse: &SparseHistogram) {
        for &(value, count) in &sparse.0 {
            self.histogram
                .saturating_record_n(value.min(LONGEST_NS), count);
        }
    }

    /// Returns the figures of the distribution; `None` if it is empty.
    pub fn summary(&self) -> Option<Summary> {
        if self.histogram.is_empty() {
            return None;
        }
        let at_us =
            |percentile: f64| self.histogram.value_at_percentile(percentile) as f64 / 1000.0;
        Some(Summary {
            count: self.histogram.len(),
            mean_us: self.histogram.mean() / 1000.0,
            p50_us: at_us(50.0),
            p90_us: at_us(90.0),
            p99_us: at_us(99.0),
            p999_us: at_us(99.9),
            max_us: self.histogram.max() as f64 / 1000.0,
            curve: CURVE
                .iter()
                .map(|&percentile| (percentile, at_us(percentile)))
                .collect(),
        })
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_within_a_thousandth() {
        let mut latencies = Latencies::new();
        (1..=10_000).for_each(|us| latencies.record(Duration::from_micros(us)));
        let summary = latencies.summary().unwrap();
        for (measured, right) in [
            (summary.p50_us, 5_000.0),
            (summary.p99_us, 9_900.0),
            (summary.p999_us, 9_990.0),
            (summary.max_us, 10_000.0),
        ] {
            assert!(
                (measured - right).abs() <= right / 500.0,
                "{measured} is not {right}"
            );
        }
        assert_eq!(summary.count, 10_000);
    }

    #[test]
    fn two_halves_are_the_whole() {
        let (mut whole, mut left, mut right) =
            (Latencies::new(), Latencies::new(), Latencies::new());
        for us in 1..=1_000_u64 {
            let latency = Duration::from_micros(us * us);
            whole.record(latency);
            if us % 3 == 0 {
                left.record(latency)
            } else {
                right.record(latency)
            }
        }
        left.add(&right.to_sparse());
        let (sum, whole) = (left.summary().unwrap(), whole.summary().unwrap());
        assert_eq!(sum.count, whole.count);
        assert!((sum.p99_us - whole.p99_us).abs() <= whole.p99_us / 500.0);
    }

    #[test]
    fn an_empty_distribution_has_no_figures_and_an_hour_fits() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.summary(), None);
        latencies.record(Duration::from_secs(3600));
        assert_eq!(latencies.count(), 1);
    }
}
