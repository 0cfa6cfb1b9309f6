//! The slots in a worker's shared memory, seen from outside, for tests that kill the worker at a chosen
//! moment. Needs root, because the processes are not dumpable.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use memchr::memmem::Finder;
use rustix::process::Signal;

use crate::process::signal;
use crate::wait::PATIENCE;

/// Offset of the number of the busy slot in the header (0: none).
const BUSY_AT: u64 = 64;

/// Offset of the first slot.
const SLOTS_AT: u64 = 16 * 4096;

/// The memory file with the slots of one worker.
pub struct Slots {
    file: File,
}

impl Slots {
    /// Finds the file among the descriptors of a worker or keeper.
    pub fn of(pid: u32) -> Option<Self> {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let found = links.flatten().find(|link| {
            fs::read_link(link.path())
                .is_ok_and(|target| target.to_string_lossy().contains("dormouse-slots"))
        })?;
        let file = File::open(found.path()).ok()?;
        Some(Self { file })
    }

    /// Whether any slot is in use, even after all processes with these slots have exited.
    ///
    /// # Panics
    /// When the file cannot be read.
    pub fn hold_anything(&self) -> bool {
        let mut block = vec![0; 1 << 20];
        let mut at = SLOTS_AT;
        loop {
            let n = self.file.read_at(&mut block, at).expect("a memory file");
            if block[..n].iter().any(|&byte| byte != 0) {
                return true;
            }
            if n == 0 {
                return false;
            }
            at += n as u64;
        }
    }

    /// Whether the worker is processing a connection.
    pub fn is_busy(&self) -> bool {
        let mut word = [0; 4];
        self.file.read_exact_at(&mut word, BUSY_AT).is_ok() && word != [0; 4]
    }
}

/// Stops a process, and returns when every one of its threads is stopped.
///
/// # Panics
/// When it does not stop, because it has ended.
pub fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    let end = Instant::now() + PATIENCE;
    // Not `wait::until`, which sleeps: the test wants this moment of the process.
    while !is_stopped(pid) {
        assert!(Instant::now() < end, "process {pid} does not stop");
        std::thread::yield_now();
    }
}

/// Whether every thread of a process is stopped (by SIGSTOP). A thread that has not run since the signal can
/// still be chosen to accept a connection.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

/// Address of the program in the memory of a process.
pub fn program_address(pid: u32) -> Option<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.contains("/dormouse"))?;
    Some(line.split('-').next()?.to_owned())
}

/// Returns the names of those secrets that the memory of a process contains.
///
/// # Panics
/// When the memory cannot be read.
pub fn in_memory<'a>(pid: u32, secrets: &[(&'a str, &[u8])]) -> Vec<&'a str> {
    let mut sought: Vec<_> = secrets
        .iter()
        .map(|(name, secret)| (*name, Finder::new(secret)))
        .collect();
    let mut found = Vec::new();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the maps of a process");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("root may read memory");
    let mut looked_at = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else {
            continue;
        };
        // Nobody writes to the code of a program.
        let is_code = !rights.contains('w') && line.contains(" /");
        let is_kernels = line.contains("[vvar") || line.contains("[vsyscall");
        if is_code || is_kernels || !rights.starts_with('r') {
            continue;
        }
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
        else {
            continue;
        };
        // Mappings of slots are sparse and large, and cannot contain the bytes.
        if end - start > 64 << 20 {
            continue;
        }
        let mut window = vec![0; (end - start) as usize];
        if memory.read_exact_at(&mut window, start).is_err() {
            continue;
        }
        looked_at += window.len();
        let here = sought.extract_if(.., |(_, finder)| finder.find(&window).is_some());
        found.extend(here.map(|(name, _)| name));
    }
    assert!(looked_at > 1 << 20, "the memory of {pid} cannot be read");
    found
}
