//! Bounds of the repair process' work: probes are spread over time, and wakes have a rate.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

/// Records looked at for silent peers before packets are looked at again. The answers of all of them find room.
const PROBES_PER_TURN: u64 = 1024;

/// Maximum wakes per second. Packets beyond are dropped, and repeated by their senders.
const WAKES_PER_S: u32 = 20_000;

/// Looks at every record in use once in an interval, at some in each turn, so that probes are spread.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// What is left of this round.
    left: VecDeque<Range<u32>>,
    count: u64,
    began_ms: u64,
    looked: u64,
}

impl Rounds {
    /// Returns the records whose turn has come.
    pub(crate) fn next(
        &mut self,
        now_ms: u64,
        interval_s: u32,
        in_use: impl FnOnce() -> io::Result<Vec<Range<u32>>>,
    ) -> io::Result<Vec<u32>> {
        let interval_ms = u64::from(interval_s.max(1)) * 1000;
        let elapsed_ms = now_ms.saturating_sub(self.began_ms);
        if self.left.is_empty() {
            if elapsed_ms < interval_ms {
                return Ok(Vec::new());
            }
            let ranges = in_use()?;
            self.count = ranges.iter().map(|range| range.len() as u64).sum();
            self.left = ranges.into();
            (self.began_ms, self.looked) = (now_ms, 0);
            return Ok(Vec::new());
        }
        let due = (self.count * elapsed_ms / interval_ms).min(self.count) - self.looked;
        let mut now = Vec::new();
        while (now.len() as u64) < due.min(PROBES_PER_TURN)
            && let Some(range) = self.left.front_mut()
        {
            match range.next() {
                Some(number) => now.push(number),
                None => drop(self.left.pop_front()),
            }
        }
        self.left.retain(|range| !range.is_empty());
        self.looked += now.len() as u64;
        Ok(now)
    }
}

/// When packets were last dropped, or may have been: until they had time to come again, nobody's silence means anything.
#[derive(Debug, Default)]
pub(crate) struct Crowding {
    /// In milliseconds of CLOCK_BOOTTIME.
    pub(crate) last_ms: Option<u64>,
}

impl Crowding {
    /// Notes that packets may be dropped now.
    pub(crate) fn note(&mut self, now_ms: u64) {
        self.last_ms = Some(now_ms);
    }

    /// Whether every answer of the last two intervals has found room: that to the last probe, and that to the one before.
    pub(crate) fn is_over(&self, now_ms: u64, interval_s: u32) -> bool {
        let quiet_ms = 2000 * u64::from(interval_s.max(1));
        self.last_ms.is_none_or(|at_ms| at_ms + quiet_ms <= now_ms)
    }
}

/// The number of wakes in the current second.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    second: u64,
    used: u32,
}

impl Allowance {
    /// Counts a wake. Returns `false` if there were too many in this second.
    pub(crate) fn take(&mut self, now_ms: u64) -> bool {
        let second = now_ms / 1000;
        if self.second != second {
            (self.second, self.used) = (second, 0);
        }
        self.used += 1;
        self.used <= WAKES_PER_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_means_nothing_until_answers_had_time_to_come_again() {
        let mut crowding = Crowding::default();
        assert!(crowding.is_over(0, 15));
        crowding.note(100_000);
        assert!(!crowding.is_over(129_999, 15));
        assert!(crowding.is_over(130_000, 15));
    }
}
