//! Does it grow? A least-squares line through the points, with its confidence interval.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
const STUDENT_95_LARGE: f64 = 1.96;

/// The slope of a line through measured points.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Slope {
    /// Rise per unit of x.
    pub per_unit: f64,
    /// Half the width of the 95 % confidence interval; `None` with two points, which have no
    /// scatter.
    pub plus_minus: Option<f64>,
}

impl Slope {
    /// Returns the least-squares slope; `None` with fewer than two different x.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
        let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
        let spread: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
        if points.len() < 2 || spread <= 0.0 {
            return None;
        }
        let covariance: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
        let per_unit = covariance / spread;
        let residual = |p: &(f64, f64)| p.1 - mean_y - per_unit * (p.0 - mean_x);
        let residuals: f64 = points.iter().map(|p| residual(p).powi(2)).sum();
        let freedom = points.len() - 2;
        let plus_minus =
            (freedom > 0).then(|| student(freedom) * (residuals / freedom as f64 / spread).sqrt());
        Some(Self {
            per_unit,
            plus_minus,
        })
    }

    /// Returns whether the slope rises by at least twice its uncertainty. A weaker one may be an
    /// unfinished warm-up.
    pub fn is_sure(&self) -> bool {
        self.plus_minus
            .is_some_and(|plus_minus| plus_minus < 0.5 * self.per_unit)
    }
}

fn student(freedom: usize) -> f64 {
    STUDENT_95
        .get(freedom.saturating_sub(1))
        .copied()
        .unwrap_or(STUDENT_95_LARGE)
}

/// The verdict on memory that was measured after each round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The slope exceeds the threshold by more than its uncertainty.
    Grows,
    /// The slope does not exceed the threshold.
    NoGrowth,
    /// Either is possible: more rounds are needed.
    Unclear,
}

/// Growth of memory from round to round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Growth {
    /// (round, bytes after it), without the first round, which warms up caches.
    pub rounds: Vec<(f64, f64)>,
    /// Bytes per round.
    pub slope: Option<Slope>,
    /// Threshold: a smaller rise in bytes per round is not growth.
    pub material_bytes: f64,
    /// Connections closed per round.
    pub connections_per_round: u64,
    /// The verdict.
    pub verdict: Verdict,
}

impl Growth {
    /// Bytes that a closed connection may leave behind without counting as growth.
    ///
    /// A heap that varies by a few pages from round to round is not a leak; the smallest real leak,
    /// one object of malloc's smallest size class per connection, is above this.
    pub const MATERIAL_BYTES_PER_CONNECTION: f64 = 10.0;

    /// Returns the growth of memory (bytes) that was measured after each round, the first round
    /// included.
    pub fn judge(after_round_bytes: &[u64], connections_per_round: u64) -> Self {
        let numbered = after_round_bytes
            .iter()
            .enumerate()
            .map(|(i, &bytes)| (i as f64 + 1.0, bytes as f64));
        Self::of_rounds(numbered.skip(1).collect(), connections_per_round)
    }

    /// The same where more connections may have come between two readings than those of a round. A reading is the number of
    /// all connections so far, and the bytes after them.
    pub fn over_connections(readings: &[(u64, u64)], connections_per_round: u64) -> Self {
        let place = |connections: u64| connections as f64 / connections_per_round.max(1) as f64;
        let rounds = readings.iter().skip(1);
        let rounds = rounds.map(|&(connections, bytes)| (place(connections), bytes as f64));
        Self::of_rounds(rounds.collect(), connections_per_round)
    }

    /// Returns the growth with one more reading, after this many connections.
    pub fn with(mut self, connections: u64, bytes: u64) -> Self {
        let place = connections as f64 / self.connections_per_round.max(1) as f64;
        self.rounds.push((place, bytes as f64));
        Self::of_rounds(self.rounds, self.connections_per_round)
    }

    /// Number of connections from the first reading to the last.
    pub fn connections(&self) -> f64 {
        let ends = self.rounds.first().zip(self.rounds.last());
        let rounds = ends.map_or(0.0, |(first, last)| last.0 - first.0);
        rounds * self.connections_per_round as f64
    }

    fn of_rounds(rounds: Vec<(f64, f64)>, connections_per_round: u64) -> Self {
        let slope = Slope::through(&rounds);
        let material_bytes = Self::MATERIAL_BYTES_PER_CONNECTION * connections_per_round as f64;
        let verdict = match slope {
            Some(Slope {
                per_unit,
                plus_minus: Some(plus_minus),
            }) => {
                if per_unit - plus_minus > material_bytes {
                    Verdict::Grows
                } else if per_unit <= material_bytes {
                    Verdict::NoGrowth
                } else {
                    Verdict::Unclear
                }
            }
            _ => Verdict::Unclear,
        };
        Self {
            rounds,
            slope,
            material_bytes,
            connections_per_round,
            verdict,
        }
    }

    /// Returns the retained bytes per closed connection.
    pub fn bytes_per_connection(&self) -> Option<f64> {
        let per_round = self.slope?.per_unit;
        (self.connections_per_round > 0).then(|| per_round / self.connections_per_round as f64)
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(slope) = self.slope else {
            return f.write_str("too few rounds to say whether it grows (at least 4 are needed)");
        };
        // A negative value that rounds to zero is zero.
        let zero_if_below = |value: f64, digit: f64| {
            if value.abs() < digit / 2.0 {
                0.0
            } else {
                value
            }
        };
        let mb = |bytes: f64| zero_if_below(bytes / 1e6, 0.01);
        let word = match self.verdict {
            Verdict::Grows => "grows by",
            Verdict::NoGrowth => "no growth:",
            Verdict::Unclear => "growth unclear:",
        };
        write!(f, "{word} {:.2}", mb(slope.per_unit))?;
        if let Some(plus_minus) = slope.plus_minus {
            write!(f, " ± {:.2}", mb(plus_minus))?;
        }
        f.write_str(" MB per round")?;
        if let Some(bytes) = self.bytes_per_connection() {
            let bytes = zero_if_below(bytes, 1.0);
            write!(f, " ({bytes:.0} bytes per closed connection)")?;
        }
        if self.verdict == Verdict::Unclear {
            f.write_str("; run with more --rounds")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_textbook_line_has_its_textbook_interval() {
        // x = 1..5, y = 2, 4, 5, 4, 5: slope 0.6, residual variance 0.8, standard error 0.2828.
        let slope =
            Slope::through(&[(1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 4.0), (5.0, 5.0)]).unwrap();
        assert!((slope.per_unit - 0.6).abs() < 1e-12);
        assert!((slope.plus_minus.unwrap() - 3.182 * 0.282_842_7).abs() < 1e-6);
    }

    #[test]
    fn too_few_points_give_no_verdict() {
        assert_eq!(Slope::through(&[]), None);
        assert_eq!(Slope::through(&[(1.0, 1.0)]), None);
        assert_eq!(Slope::through(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Growth::judge(&[1, 2, 3], 1).verdict, Verdict::Unclear);
        assert!(
            Growth::judge(&[1], 1)
                .to_string()
                .contains("too few rounds")
        );
    }

    /// asyncio keeps connections that failed as garbage, 56 MB in each round, and frees all with one collection. A leak of
    /// the same size remains.
    #[test]
    fn a_later_reading_distinguishes_garbage_from_a_leak() {
        let growing = Growth::judge(&[60e6, 116e6, 172e6, 228e6, 284e6].map(|b| b as u64), 250);
        assert_eq!(growing.verdict, Verdict::Grows);
        assert_ne!(
            growing.clone().with(2_750, 72_000_000).verdict,
            Verdict::Grows
        );
        let leak = growing.with(2_750, 620_000_000);
        assert_eq!(leak.verdict, Verdict::Grows);
        assert_eq!(leak.bytes_per_connection(), Some(224_000.0));
    }

    /// A server in Go that kept 1 kB of each connection. A different number of connections came after each round, until Go
    /// had collected.
    #[test]
    fn growth_follows_the_connections_and_not_the_rounds() {
        let readings = [750, 1_500, 1_950, 2_500, 2_750].map(|n: u64| (n, 1_200_000 + 1_024 * n));
        let growth = Growth::over_connections(&readings, 250);
        assert!((growth.bytes_per_connection().unwrap() - 1_024.0).abs() < 0.01);
        assert!(growth.slope.unwrap().is_sure());
        assert_eq!((growth.rounds.len(), growth.connections()), (4, 1_250.0));
    }

    #[test]
    fn a_warm_up_in_the_first_round_is_not_growth() {
        let growth = Growth::judge(
            &[10_000_000, 90_000_000, 90_004_096, 90_000_000, 90_004_096],
            20_000,
        );
        assert_eq!(growth.verdict, Verdict::NoGrowth, "{growth}");
    }

    proptest! {
        #[test]
        fn a_leak_of_a_thousand_bytes_is_found_under_noise(noise in proptest::collection::vec(0_u64..400_000, 6)) {
            let leak = |(i, noise): (usize, &u64)| 50_000_000 + i as u64 * 5_000 * 1_000 + noise;
            let after: Vec<u64> = noise.iter().enumerate().map(leak).collect();
            let growth = Growth::judge(&after, 5_000);
            prop_assert_eq!(growth.verdict, Verdict::Grows);
            let bytes = growth.bytes_per_connection().unwrap();
            prop_assert!((900.0..1100.0).contains(&bytes), "{}", bytes);
        }

        #[test]
        fn noise_without_a_leak_is_never_called_growth(noise in proptest::collection::vec(0_u64..40_000, 6)) {
            let after: Vec<u64> = noise.iter().map(|noise| 50_000_000 + noise).collect();
            prop_assert_ne!(Growth::judge(&after, 5_000).verdict, Verdict::Grows);
        }
    }
}
