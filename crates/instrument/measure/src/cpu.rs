//! The CPU time of one process.

use std::fs;
use std::ops::{AddAssign, Sub};

use crate::error::Error;
use crate::proc_files;

/// Used CPU time, in nanoseconds.
///
/// `stat` counts ended threads and waited-for children too, but rounds down to clock ticks (10 ms),
/// which over 50 workers is half a second. `schedstat` is exact, but only for threads that live.
/// The greater of the two is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    /// User and system time together.
    pub total_ns: u64,
    /// The system part, as far as clock ticks tell.
    pub system_ns: u64,
}

impl CpuTime {
    /// Reads process `pid`; `None` if it is gone.
    pub fn of(pid: i32) -> Result<Option<Self>, Error> {
        let Some(stat) = proc_files::read(pid, "stat")? else {
            return Ok(None);
        };
        let Some(ticks) = Ticks::parse(&stat) else {
            return Ok(None);
        };
        let tick_ns = tick_ns();
        let ns = |ticks: u64| ticks.saturating_mul(tick_ns);
        let own_ns = ns(ticks.user.saturating_add(ticks.system)).max(scheduled_ns(pid));
        Ok(Some(Self {
            total_ns: own_ns.saturating_add(ns(ticks.children)),
            system_ns: ns(ticks.system),
        }))
    }

    /// Returns user and system time in the text of a `stat` file, in clock ticks.
    pub(crate) fn ticks(stat: &str) -> Option<u64> {
        let ticks = Ticks::parse(stat)?;
        ticks.user.checked_add(ticks.system)
    }

    /// Returns the time of this process's waited-for children, in nanoseconds.
    pub fn ns_of_children() -> u64 {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Ticks::parse(&stat).map_or(0, |ticks| ticks.children.saturating_mul(tick_ns()))
    }
}

/// Returns the length of the clock tick in which `stat` counts.
fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// The fields of `stat` that count time.
struct Ticks {
    user: u64,
    system: u64,
    /// Waited-for children: both of their parts.
    children: u64,
}

impl Ticks {
    fn parse(stat: &str) -> Option<Self> {
        let fields = proc_files::stat_fields(stat);
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            user: number(11)?,
            system: number(12)?,
            children: number(13)?.checked_add(number(14)?)?,
        })
    }
}

/// Returns the run time of all living threads.
fn scheduled_ns(pid: i32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let run_time = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    threads.flatten().filter_map(run_time).sum()
}

impl AddAssign for CpuTime {
    fn add_assign(&mut self, other: Self) {
        self.total_ns += other.total_ns;
        self.system_ns += other.system_ns;
    }
}

impl Sub for CpuTime {
    type Output = Self;

    /// Returns the CPU time since `earlier`. A tree that lost a process may have less than before:
    /// then it is 0.
    fn sub(self, earlier: Self) -> Self {
        Self {
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_manual() {
        // proc(5): utime is field 14, stime 15, cutime 16, cstime 17, counted from 1.
        let stat = "1 (x) S 4 5 6 7 8 9 10 11 12 13 114 115 116 117 18";
        let ticks = Ticks::parse(stat).unwrap();
        assert_eq!((ticks.user, ticks.system, ticks.children), (114, 115, 233));
    }

    /// Found by fuzzing.
    #[test]
    fn a_sum_that_no_number_holds_is_not_read() {
        let stat = format!("1 (x) S 4 5 6 7 8 9 10 11 12 13 114 115 {} 7 18", u64::MAX);
        assert!(Ticks::parse(&stat).is_none());
    }

    #[test]
    fn work_is_counted() {
        let own = i32::try_from(std::process::id()).unwrap();
        let now = || CpuTime::of(own).unwrap().unwrap();
        let before = now();
        let mut sum = 0_u64;
        while (now() - before).total_ns < 30_000_000 {
            sum = std::hint::black_box((0..100_000).fold(sum, u64::wrapping_add));
        }
    }
}
