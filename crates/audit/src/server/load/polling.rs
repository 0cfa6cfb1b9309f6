//! Threads that run while nothing happens, and never sleep.
//!
//! The kernel counts how often each thread gave up the processor itself. A thread that waits for events or for a timer
//! does so each time; one that polls is only ever interrupted. That holds on a busy machine too, where its CPU time
//! says little.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use dormouse_measure::proc_files;

/// CPU time from which a thread was at work, as a share of the time.
const AT_WORK: f64 = 0.01;
/// Maximum number of threads of a process that are looked at.
const THREADS_MAX: usize = 512;

/// CPU time and sleeps of each thread up to a moment.
pub(super) struct Activity {
    at: Instant,
    pids: Vec<i32>,
    threads: BTreeMap<(i32, String), ThreadActivity>,
}

#[derive(Clone, Copy, Debug)]
struct ThreadActivity {
    cpu_ns: u64,
    sleeps: u64,
}

impl Activity {
    /// Reads the threads of these processes.
    pub(super) fn of(pids: &[i32]) -> Self {
        Self {
            at: Instant::now(),
            pids: pids.to_vec(),
            threads: pids.iter().flat_map(|pid| threads(*pid)).collect(),
        }
    }

    /// Number of threads that were at work since that moment, and never slept.
    pub(super) fn polling_since(&self) -> u64 {
        let now = Self::of(&self.pids);
        let seconds = (now.at - self.at).as_secs_f64();
        let polling = now.threads.iter().filter(|(thread, now)| {
            let before = self.threads.get(thread);
            before.is_some_and(|before| polled(*before, **now, seconds))
        });
        polling.count() as u64
    }
}

fn polled(before: ThreadActivity, now: ThreadActivity, seconds: f64) -> bool {
    let cpu_s = now.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e9;
    now.sleeps == before.sleeps && cpu_s > AT_WORK * seconds
}

fn threads(pid: i32) -> Vec<((i32, String), ThreadActivity)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = tasks.flatten().take(THREADS_MAX);
    let names = names.map(|task| task.file_name().display().to_string());
    names
        .filter_map(|name| Some(((pid, name.clone()), activity(pid, &name)?)))
        .collect()
}

fn activity(pid: i32, thread: &str) -> Option<ThreadActivity> {
    let read = |file: &str| {
        let bytes = proc_files::read_beginning(pid, &format!("task/{thread}/{file}")).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (scheduled, status) = (read("schedstat")?, read("status")?);
    Some(ThreadActivity {
        cpu_ns: scheduled.split_ascii_whitespace().next()?.parse().ok()?,
        sleeps: sleeps(&status)?,
    })
}

fn sleeps(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_only_interrupted_polls() {
        let at = |cpu_ms: u64, sleeps| ThreadActivity {
            cpu_ns: 1_000_000 * cpu_ms,
            sleeps,
        };
        // A core of its own, and a small part of one on a busy machine.
        assert!(polled(at(500, 40), at(1_500, 40), 1.0));
        assert!(polled(at(500, 40), at(580, 40), 1.0));
        // A timer every millisecond; a thread that does nothing.
        assert!(!polled(at(500, 40), at(530, 1_040), 1.0));
        assert!(!polled(at(500, 40), at(500, 40), 1.0));
    }

    #[test]
    fn sleeps_are_those_that_the_thread_chose() {
        let status =
            "Name:\tsick\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(sleeps(status), Some(150));
        assert_eq!(sleeps("Name:\tsick\n"), None);
    }

    #[test]
    fn this_process_is_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!Activity::of(&[own]).threads.is_empty());
        assert!(Activity::of(&[-1]).threads.is_empty());
    }
}
