//! Byte rate limits: a rate per second, and a burst.
//!
//! Bytes are charged after they were moved, as time: a shared word holds the time until which all moved
//! bytes are paid for, and each charge advances it by the bytes' cost. A connection whose charge puts
//! that time further ahead of now than the burst allows must wait until it is within the burst again. So
//! connections continue in the order of their charges, the sum is exact for any number of connections
//! and step sizes, nothing is stored per connection, and a killed worker leaves at most its last step
//! uncharged.
//!
//! A compromised worker can write any time into the word. So a debt counts only as far as all connections together
//! can have made it, and none lasts for ever.
//!
//! The upper 8 bits of the word identify the limit, so that a reload with another limit starts without
//! debt. The lower 56 bits are a time in ticks, which last for 35 years.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// A byte rate limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pace {
    /// Sustained rate, in bytes per second.
    pub bytes_per_s: u64,
    /// Bytes that may be moved at once after a quiet time.
    pub burst_bytes: u64,
}

const TIME_BITS: u32 = 56;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Bytes that a step may move at any rate.
const STEP_BYTES_MIN: u64 = 128 << 10;

/// Ticks are short, because a short message may cost less than a microsecond.
const TICKS_PER_MS: u64 = 64_000;

impl Pace {
    /// Charges bytes that were moved by one of at most `payers` connections. Returns how many milliseconds the
    /// connection must wait.
    pub(crate) fn pay(self, word: &AtomicU64, bytes: u64, now_ms: u64, payers: u32) -> u64 {
        let now = now_ms.saturating_mul(TICKS_PER_MS);
        let cost = self.cost(bytes);
        let latest = now.saturating_add(self.debt_max(payers));
        let later = |paid: u64| {
            let paid_until = self.paid_until(paid).min(latest).max(now);
            Some(self.tag() << TIME_BITS | paid_until.saturating_add(cost).min(TIME_MASK))
        };
        let former = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        let former = former.map_or(0, |paid| self.paid_until(paid));
        let former = former.min(latest).max(now);
        let ahead = former.saturating_add(cost).saturating_sub(now);
        let wait = ahead.saturating_sub(self.cost(self.burst_bytes));
        wait.div_ceil(TICKS_PER_MS)
    }

    /// Charges this amount if that stays within the burst. Returns `false` if it does not; then nothing is
    /// charged.
    pub(crate) fn take(self, word: &AtomicU64, amount: u64, now_ms: u64) -> bool {
        let now = now_ms.saturating_mul(TICKS_PER_MS);
        let latest = now.saturating_add(self.cost(self.burst_bytes));
        let later = |paid: u64| {
            let paid_until = self.paid_until(paid).max(now);
            // Nobody can have taken more than the burst: a later time is forged, and does not count.
            let paid_until = if paid_until > latest { now } else { paid_until };
            let next = paid_until.saturating_add(self.cost(amount));
            (next <= latest).then_some(self.tag() << TIME_BITS | next.min(TIME_MASK))
        };
        let (relaxed, word) = (Ordering::Relaxed, word);
        word.fetch_update(relaxed, relaxed, later).is_ok()
    }

    /// Whether no debt is left. A debt that no `payers` connections can have made is forged, and does not count.
    pub(crate) fn is_paid(self, word: &AtomicU64, now_ms: u64, payers: u32) -> bool {
        let now = now_ms.saturating_mul(TICKS_PER_MS);
        // Bytes are charged on top of the maximum, too.
        let latest = now
            .saturating_add(self.debt_max(payers))
            .saturating_add(self.debt_max(1));
        let paid_until = self.paid_until(word.load(Ordering::Relaxed));
        paid_until <= now || paid_until > latest
    }

    /// Maximum bytes per step, which keeps waits short.
    pub fn step_bytes(self) -> u64 {
        self.bytes_per_s / 32
    }

    /// The maximum debt, in ticks: the burst, and a step of each connection.
    fn debt_max(self, payers: u32) -> u64 {
        let step = self.cost(self.step_bytes().max(STEP_BYTES_MIN));
        self.cost(self.burst_bytes)
            .saturating_add(step.saturating_mul(payers.into()))
    }

    fn paid_until(self, word: u64) -> u64 {
        match word >> TIME_BITS == self.tag() {
            true => word & TIME_MASK,
            false => 0,
        }
    }

    /// The cost of this many bytes, in ticks.
    fn cost(self, bytes: u64) -> u64 {
        let ticks = u128::from(bytes) * 1000 * u128::from(TICKS_PER_MS);
        let ticks = ticks.div_ceil(u128::from(self.bytes_per_s.max(1)));
        u64::try_from(ticks).unwrap_or(TIME_MASK).min(TIME_MASK)
    }

    /// Identifies the limit. Two limits may share a tag by chance; then a debt survives a reload.
    fn tag(self) -> u64 {
        let mixed = crate::hash::mix(self.bytes_per_s ^ self.burst_bytes.rotate_left(32));
        mixed >> TIME_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACE: Pace = Pace {
        bytes_per_s: 1_000_000,
        burst_bytes: 500_000,
    };

    #[test]
    fn a_burst_is_free_and_recovers() {
        let word = AtomicU64::new(0);
        assert_eq!(PACE.pay(&word, 500_000, 10_000, 1), 0);
        assert_eq!(PACE.pay(&word, 1_000, 10_000, 1), 1);
        assert_eq!(PACE.pay(&word, 99_000, 10_000, 1), 100);
        assert!(!PACE.is_paid(&word, 10_599, 1));
        assert!(PACE.is_paid(&word, 10_600, 1));
        // Half of the burst after half of the time.
        assert_eq!(PACE.pay(&word, 250_000, 10_350, 1), 0);
        assert_eq!(PACE.pay(&word, 1_000, 10_350, 1), 1);
    }

    #[test]
    fn what_exceeds_the_burst_is_refused_and_not_charged() {
        let five = Pace {
            bytes_per_s: 5,
            burst_bytes: 5,
        };
        let word = AtomicU64::new(0);
        let taken = |now_ms| (0..100).filter(|_| five.take(&word, 1, now_ms)).count();
        assert_eq!(taken(10_000), 5, "a second's worth at once");
        assert_eq!(taken(10_100), 0);
        assert_eq!(taken(10_200), 1, "refusals cost nothing");
        assert_eq!(taken(11_200), 5);
        // A compromised worker sets a time of years.
        word.store(five.tag() << TIME_BITS | TIME_MASK, Ordering::Relaxed);
        assert_eq!(taken(11_300), 5);
    }

    #[test]
    fn another_limit_starts_without_debt() {
        let word = AtomicU64::new(0);
        assert_eq!(PACE.pay(&word, 100_500_000, 1, 1), 100_000);
        let faster = Pace {
            bytes_per_s: 2_000_000,
            ..PACE
        };
        assert!(faster.is_paid(&word, 1, 1));
        assert_eq!(faster.pay(&word, 500_000, 1, 1), 0);
        assert_eq!(faster.pay(&word, 2_000, 1, 1), 1);
    }

    /// A compromised worker sets a debt of years. The connections of others wait as long as for a real debt.
    #[test]
    fn a_forged_debt_is_limited() {
        let word = AtomicU64::new(PACE.tag() << TIME_BITS | TIME_MASK);
        assert!(PACE.is_paid(&word, 10_000, 10));
        // Ten steps of 128 KiB at 1 MB/s.
        assert_eq!(PACE.pay(&word, 1_000, 10_000, 10), 1_312);
        assert!(!PACE.is_paid(&word, 10_000, 10));
        assert_eq!(PACE.pay(&word, 1_000, 11_311, 10), 2);
        assert_eq!(PACE.pay(&word, 1_000, 20_000, 10), 0);
    }

    /// Each of `many` connections moves `step` bytes whenever it may, for four simulated seconds. The sum
    /// is at most the burst, plus the rate times the duration, plus one last step of each connection.
    /// After the burst, no connection gets more than two steps ahead of another, except for rounding.
    fn race(pace: Pace, many: usize, step: u64) {
        const MS: u64 = 4_000;
        let word = AtomicU64::new(0);
        let mut next_ms = vec![5_u64; many];
        let mut passed = vec![0_u64; many];
        let mut before = Vec::new();
        for now_ms in 5..5 + MS {
            if now_ms == MS / 2 {
                before = passed.clone();
            }
            for (next_ms, passed) in next_ms.iter_mut().zip(&mut passed) {
                // A connection that need not wait continues in the next turn.
                if *next_ms <= now_ms {
                    *passed += step;
                    *next_ms = now_ms + pace.pay(&word, step, now_ms, many as u32).max(1);
                }
            }
        }
        let sum: u64 = passed.iter().sum();
        let paced = pace.bytes_per_s * MS / 1000 + pace.burst_bytes;
        assert!(sum <= paced + many as u64 * step, "{sum} of {paced}");
        let demand = many as u64 * MS * step;
        // The shortest wait is a millisecond, so each connection loses up to one to rounding.
        let least = paced.min(demand) * 9 / 10;
        assert!(sum + many as u64 * step >= least, "{sum} of {paced}");
        let since = passed.iter().zip(&before).map(|(now, then)| now - then);
        let (least, most) = (since.clone().min().unwrap(), since.max().unwrap());
        // Waits are whole milliseconds. If a round takes only a few of them, rounding matters.
        let round_ms = (many as u64 * step * 1000 / pace.bytes_per_s).max(1);
        let apart = 2 * step + most / round_ms;
        assert!(most - least <= apart, "{least} to {most}");
    }

    #[test]
    fn the_sum_is_exact_and_fair_for_any_number_of_connections() {
        for many in [1, 2, 7, 300] {
            for step in [100, 16_384, 65_536] {
                for bytes_per_s in [65_536, 1_000_000, 125_000_000] {
                    let burst_bytes = bytes_per_s / 4;
                    let pace = Pace {
                        bytes_per_s,
                        burst_bytes,
                    };
                    race(pace, many, step);
                }
            }
        }
    }

    proptest! {
        /// No values cause a panic, a shorter wait after more bytes, or a lost charge.
        #[test]
        fn handles_any_values(bytes_per_s: u64, burst_bytes: u64, word: u64, bytes: u64, payers: u32, now_ms in 0_u64..1 << 38) {
            let pace = Pace { bytes_per_s, burst_bytes };
            let word = AtomicU64::new(word);
            let first = pace.pay(&word, bytes, now_ms, payers);
            let second = pace.pay(&word, bytes, now_ms, payers);
            prop_assert!(second >= first);
            // After any charge, another one is due, however the word was forged.
            pace.pay(&word, 1, now_ms, payers);
            prop_assert!(!pace.is_paid(&word, now_ms, payers));
        }
    }
}
