//! Threads that run while nothing happens: those that never sleep, and those of a JVM itself.
//!
//! The kernel counts how often each thread gave up the processor itself. A thread that waits for events or for a timer
//! does so each time; one that polls is only ever interrupted. That holds on a busy machine too, where its CPU time
//! says little.
//!
//! A JVM compiles and collects in threads that it names. On a machine without an idle core, they catch up with the load
//! while the connections are idle.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use crate::software::jvm;
use dormouse_measure::proc_files;

/// CPU time from which a thread was at work, as a share of the time.
const AT_WORK: f64 = 0.01;
/// Maximum number of threads of a process that are looked at.
const THREADS_MAX: usize = 8192;

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
    /// Whether a JVM compiles or collects in it.
    is_of_jvm: bool,
}

/// What threads did since a moment.
pub(super) struct ActivitySince {
    /// Number of threads that were at work, and never slept.
    pub(super) polling: u64,
    /// CPU time without that of a JVM's compilers and collectors. `None`: there is no JVM, or it has more threads than are
    /// looked at.
    pub(super) of_program_ns: Option<u64>,
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

    /// What these threads did until now.
    pub(super) fn since(&self) -> ActivitySince {
        self.until(&Self::of(&self.pids))
    }

    fn until(&self, now: &Self) -> ActivitySince {
        let seconds = (now.at - self.at).as_secs_f64();
        let polling = now.threads.iter().filter(|(thread, now)| {
            let before = self.threads.get(thread);
            before.is_some_and(|before| polled(*before, **now, seconds))
        });
        ActivitySince {
            polling: polling.count() as u64,
            of_program_ns: self.of_program_ns(now),
        }
    }

    fn of_program_ns(&self, now: &Self) -> Option<u64> {
        let has_jvm = now.threads.values().any(|thread| thread.is_of_jvm);
        let is_whole = |pid: &i32| {
            let threads = now.threads.keys().filter(|(of, _)| of == pid);
            threads.count() < THREADS_MAX
        };
        (has_jvm && self.pids.iter().all(is_whole)).then_some(())?;
        let others = now.threads.iter().filter(|(_, now)| !now.is_of_jvm);
        let spent = others.map(|(thread, now)| {
            let before = self.threads.get(thread).map_or(0, |before| before.cpu_ns);
            now.cpu_ns.saturating_sub(before)
        });
        Some(spent.sum())
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
        is_of_jvm: is_of_jvm(&status),
    })
}

fn is_of_jvm(status: &str) -> bool {
    let name = status.strip_prefix("Name:\t").unwrap_or_default();
    jvm::THREADS.iter().any(|of_jvm| name.starts_with(of_jvm))
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
            is_of_jvm: false,
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

    /// Recorded: the names of OpenJDK 17, with its several collectors.
    #[test]
    fn compilers_and_collectors_are_no_cost_of_connections() {
        let is_of_jvm = |name: &str| is_of_jvm(&format!("Name:\t{name}\nUmask:\t0022\n"));
        for name in ["C2 CompilerThre", "G1 Conc#0", "GC Thread#1", "VM Thread"] {
            assert!(is_of_jvm(name), "{name}");
        }
        for name in ["java", "my-app-thread-w", "Common-Cleaner", "nginx"] {
            assert!(!is_of_jvm(name), "{name}");
        }
        let activity = |threads: &[(&str, u64, bool)]| {
            let thread = |&(id, cpu_ms, is_of_jvm): &(&str, u64, bool)| {
                let thread = ThreadActivity {
                    cpu_ns: 1_000_000 * cpu_ms,
                    sleeps: 0,
                    is_of_jvm,
                };
                ((7, id.to_owned()), thread)
            };
            Activity {
                at: Instant::now(),
                pids: vec![7],
                threads: threads.iter().map(thread).collect(),
            }
        };
        let before = activity(&[("7", 100, false), ("8", 100, true), ("9", 50, true)]);
        // One compiler has ended meanwhile, and a thread of the program has begun.
        let after = activity(&[("7", 102, false), ("8", 700, true), ("10", 3, false)]);
        assert_eq!(before.until(&after).of_program_ns, Some(5_000_000));
        let without = activity(&[("7", 102, false)]);
        assert_eq!(before.until(&without).of_program_ns, None);
    }

    #[test]
    fn this_process_is_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!Activity::of(&[own]).threads.is_empty());
        assert!(Activity::of(&[-1]).threads.is_empty());
    }
}
