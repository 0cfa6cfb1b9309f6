//! Threads that wait for the same lock, sampled: the kernel shows the system call in which each thread sleeps.
//!
//! A mutex of glibc or musl sleeps in futex(2) until its value, 2 for a mutex with waiters, changes. The address tells
//! which mutex it is. Condition variables, with which idle threads wait for work, use another operation.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::model::LockWaits;
use dormouse_measure::proc_files;

/// Time between two samples.
const EVERY: Duration = Duration::from_millis(10);
/// Maximum number of threads that a sample looks at.
const THREADS_MAX: usize = 512;
/// Waiting threads from which a lock is contended.
const WAITING_MIN: usize = 2;

const FUTEX: u64 = if cfg!(target_arch = "x86_64") {
    202
} else {
    98
};
/// The operation, without the flags for private futexes and the clock (futex(2)).
const OPERATION: u64 = 0x7f;
const FUTEX_WAIT: u64 = 0;
const HAS_WAITERS: u64 = 2;
/// What the kernel shows instead of a call for a thread that runs, or waits for a core only.
const RUNNING: &[u8] = b"running";

/// Samples the threads of a server until it is stopped.
pub(super) struct LockSampler {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<LockWaits, String>>,
}

impl LockSampler {
    pub(super) fn start(pids: &[i32]) -> Self {
        let (is_over, pids) = (Arc::new(AtomicBool::new(false)), pids.to_vec());
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || sample(&pids, &over));
        Self { is_over, thread }
    }

    pub(super) fn stop(self) -> Result<LockWaits, String> {
        self.is_over.store(true, Ordering::Relaxed);
        let sampled = self.thread.join();
        sampled.unwrap_or_else(|_| Err("the sampler failed".into()))
    }
}

fn sample(pids: &[i32], is_over: &AtomicBool) -> Result<LockWaits, String> {
    let (mut samples, mut contended, mut asleep, mut threads) = (0, 0, 0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let seen = look(pids)?;
        samples += 1;
        if seen.waiting >= WAITING_MIN {
            (contended, threads) = (contended + 1, threads + seen.waiting);
            asleep += u32::from(!seen.is_running);
        }
        thread::sleep(EVERY);
    }
    let share = |of: u32| f64::from(of) / samples.max(1) as f64;
    Ok(LockWaits {
        samples,
        share: share(contended),
        threads: threads as f64 / f64::from(contended.max(1)),
        asleep_share: Some(share(asleep)),
    })
}

/// What the threads of a server were doing at one time.
struct Sample {
    /// Number of threads that waited for the same lock, of the lock with the most.
    waiting: usize,
    /// Whether a thread was running, or ready to run.
    is_running: bool,
}

fn look(pids: &[i32]) -> Result<Sample, String> {
    let mut waiting: BTreeMap<(i32, u64), usize> = BTreeMap::new();
    let (mut is_read, mut is_running) = (false, false);
    for &pid in pids {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for task in tasks.flatten().take(THREADS_MAX) {
            let name = format!("task/{}/syscall", task.file_name().display());
            // A thread may have ended.
            let Ok(call) = proc_files::read_beginning(pid, &name) else {
                continue;
            };
            is_read = true;
            is_running |= call.starts_with(RUNNING);
            if let Some(lock) = lock_of(&String::from_utf8_lossy(&call)) {
                *waiting.entry((pid, lock)).or_default() += 1;
            }
        }
    }
    if !is_read {
        return Err("the system calls of its threads cannot be read: run as root".into());
    }
    Ok(Sample {
        waiting: waiting.into_values().max().unwrap_or(0),
        is_running,
    })
}

/// Address of the lock for which a thread waits, from its line in `/proc/PID/task/TID/syscall`: the number of the call,
/// its arguments, two registers.
fn lock_of(call: &str) -> Option<u64> {
    let mut words = call.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, value) = (argument()?, argument()?, argument()?);
    let is_mutex = operation & OPERATION == FUTEX_WAIT && value == HAS_WAITERS;
    (number == FUTEX && is_mutex).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_is_distinguished_from_a_condition_variable() {
        let call = |words: &str| lock_of(&format!("{FUTEX} {words} 0x7ffd 0x7f0f"));
        assert_eq!(call("0x55d0 0x80 0x2 0x0 0x0 0x0"), Some(0x55d0));
        // pthread_cond_wait and pthread_cond_timedwait.
        assert_eq!(call("0x55d0 0x89 0x0 0x0 0x0 0xffffffff"), None);
        assert_eq!(call("0x55d0 0x189 0x0 0x7f 0x0 0xffffffff"), None);
        // Idle threads of Go's scheduler.
        assert_eq!(call("0xc000 0x80 0x0 0x0 0x0 0x0"), None);
        for other in ["running", "-1 0x7ffd 0x7f0f", "0 0x3 0x7f 0x2000", ""] {
            assert_eq!(lock_of(other), None);
        }
    }
}
