//! Numbers of connections by age.
//!
//! A worker counts each connection in the period of ten minutes in which it was established. So nothing is written while
//! connections grow older, and a reader adds up periods. The periods of a week and more are a ring; connections that are
//! older than the ring are one number.
//!
//! A compromised worker can write any number here, so sums wrap around.

use std::sync::atomic::{AtomicU64, Ordering};

/// Seconds of a period.
const PERIOD_S: u32 = 600;
/// Words: the latest period, the number of older connections, and the ring.
pub(crate) const WORDS: usize = 1024;
const RING: u64 = WORDS as u64 - 2;

/// Periods of an hour, a day and a week.
const BOUNDS: [u64; 3] = [6, 6 * 24, 6 * 24 * 7];
const _: () = assert!(BOUNDS[2] <= RING);

/// Numbers of connections by age, to ten minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// Established less than an hour ago.
    pub under_hour: u64,
    /// Established less than a day ago.
    pub under_day: u64,
    /// Established less than a week ago.
    pub under_week: u64,
    /// Others.
    pub older: u64,
}

impl Ages {
    fn add(&mut self, age: u64, connections: u64) {
        let number = match BOUNDS.iter().position(|bound| age < *bound) {
            Some(0) => &mut self.under_hour,
            Some(1) => &mut self.under_day,
            Some(_) => &mut self.under_week,
            None => &mut self.older,
        };
        *number = number.wrapping_add(connections);
    }
}

/// A worker's numbers, which only that worker writes.
pub(crate) struct Births<'a> {
    pub(crate) latest: &'a AtomicU64,
    pub(crate) older: &'a AtomicU64,
    /// Returns a word of the ring.
    pub(crate) ring: &'a dyn Fn(usize) -> &'a AtomicU64,
}

impl<'a> Births<'a> {
    /// Counts a connection that was established in this second of CLOCK_BOOTTIME.
    pub(crate) fn enter(&self, opened_s: u32) {
        let period = u64::from(opened_s / PERIOD_S);
        let latest = self.latest.load(Ordering::Relaxed);
        if period > latest {
            self.advance(latest, period);
        }
        let word = self.word(period);
        word.store(
            word.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Counts one connection less.
    pub(crate) fn leave(&self, opened_s: u32) {
        let word = self.word(u64::from(opened_s / PERIOD_S));
        let less = word.load(Ordering::Relaxed).saturating_sub(1);
        word.store(less, Ordering::Relaxed);
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let ring = (0..RING as usize).map(self.ring);
        for word in ring.chain([self.older]) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Adds the numbers of this worker.
    pub(crate) fn add_to(&self, ages: &mut Ages, now_s: u32) {
        let now = u64::from(now_s / PERIOD_S);
        let latest = self.latest.load(Ordering::Relaxed).min(now);
        for period in latest.saturating_sub(RING - 1)..=latest {
            ages.add(now - period, self.word(period).load(Ordering::Relaxed));
        }
        ages.add(u64::MAX, self.older.load(Ordering::Relaxed));
    }

    /// Begins a period: its place in the ring, and those of the periods before it that were skipped, are now those of
    /// older connections.
    fn advance(&self, latest: u64, period: u64) {
        for skipped in (latest + 1).max(period.saturating_sub(RING - 1))..=period {
            let word = (self.ring)((skipped % RING) as usize);
            let left = word.load(Ordering::Relaxed);
            if left != 0 {
                let older = self.older.load(Ordering::Relaxed);
                self.older
                    .store(older.wrapping_add(left), Ordering::Relaxed);
                word.store(0, Ordering::Relaxed);
            }
        }
        self.latest.store(period, Ordering::Relaxed);
    }

    /// The word in which connections of this period are counted.
    fn word(&self, period: u64) -> &'a AtomicU64 {
        let latest = self.latest.load(Ordering::Relaxed);
        match period.saturating_add(RING) <= latest {
            true => self.older,
            false => (self.ring)((period % RING) as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: u32 = 3_600;
    const DAY_S: u32 = 24 * HOUR_S;

    fn with(test: impl FnOnce(&Births<'_>)) {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let ring = |at: usize| &words[at + 2];
        test(&Births {
            latest: &words[0],
            older: &words[1],
            ring: &ring,
        });
    }

    fn at(births: &Births<'_>, now_s: u32) -> [u64; 4] {
        let mut ages = Ages::default();
        births.add_to(&mut ages, now_s);
        [ages.under_hour, ages.under_day, ages.under_week, ages.older]
    }

    #[test]
    fn connections_grow_older_without_a_write() {
        with(|births| {
            let start_s = 400 * DAY_S;
            births.enter(start_s);
            births.enter(start_s + 5 * HOUR_S);
            for (after_s, expected) in [
                (5 * HOUR_S, [1, 1, 0, 0]),
                (7 * HOUR_S, [0, 2, 0, 0]),
                (25 * HOUR_S, [0, 1, 1, 0]),
                (3 * DAY_S, [0, 0, 2, 0]),
                (8 * DAY_S, [0, 0, 0, 2]),
                (80 * DAY_S, [0, 0, 0, 2]),
            ] {
                assert_eq!(at(births, start_s + after_s), expected, "{after_s}");
            }
            births.leave(start_s);
            assert_eq!(at(births, start_s + 5 * HOUR_S), [1, 0, 0, 0]);
        });
    }

    #[test]
    fn the_ring_is_used_again_and_no_connection_is_lost() {
        with(|births| {
            let hours = 24 * 40;
            for hour in 0..hours {
                births.enter(hour * HOUR_S);
            }
            let now_s = hours * HOUR_S;
            let all: u64 = at(births, now_s).iter().sum();
            assert_eq!(all, u64::from(hours));
            assert_eq!(at(births, now_s)[..3], [0, 23, 144]);
            for hour in 0..hours {
                births.leave(hour * HOUR_S);
            }
            assert_eq!(at(births, now_s), [0; 4]);
            // In any order, as a new worker finds the slots of the one before it.
            births.enter(now_s);
            births.enter(0);
            births.enter(now_s - 2 * HOUR_S);
            assert_eq!(at(births, now_s), [1, 1, 0, 1]);
            births.clear();
            assert_eq!(at(births, now_s), [0; 4]);
        });
    }

    #[test]
    fn a_hostile_worker_stops_no_reader() {
        with(|births| {
            births.latest.store(u64::MAX, Ordering::Relaxed);
            births.older.store(u64::MAX, Ordering::Relaxed);
            (births.ring)(0).store(2, Ordering::Relaxed);
            at(births, DAY_S);
            births.enter(DAY_S);
            births.leave(DAY_S);
        });
    }
}
