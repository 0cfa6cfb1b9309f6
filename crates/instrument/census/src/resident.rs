//! Anonymous memory of a process by mapping, and which mappings are stacks of live threads.
//!
//! A server with one thread per connection keeps its memory in stacks. glibc retains the stacks of ended threads for
//! later ones, and they stay resident, so a stack counts only while a thread's stack pointer lies in it.

use std::fs;
use std::ops::Range;

use dormouse_measure::proc_files;

use crate::process;
use crate::snapshot::Snapshot;

/// Maximum number of threads whose stacks are looked at.
const THREADS_MAX: usize = 32_768;

/// An anonymous mapping.
struct Mapping {
    start: u64,
    end: u64,
    name: String,
    pss_bytes: u64,
}

/// Adds the stacks of a process, and its memory that is neither a stack nor a walked heap. `heaps`: mappings of a runtime
/// that keeps the stacks of its threads in its heap.
pub(super) fn add(pid: i32, heaps: &[Range<u64>], into: &mut Snapshot) -> Result<(), String> {
    let Ok(text) = proc_files::read_beginning(pid, "smaps") else {
        return Ok(());
    };
    let mappings = anonymous(&String::from_utf8_lossy(&text));
    let mut threads = threads(pid);
    let cut = cut_off(text.len() as u64, threads.len());
    into.refused
        .extend(cut.map(|what| format!("process {pid}: {what}")));
    threads.truncate(THREADS_MAX);
    let pointers = stack_pointers(pid, &threads);
    let live = |mapping: &Mapping| {
        let after = pointers.partition_point(|pointer| *pointer < mapping.start);
        pointers
            .get(after)
            .is_some_and(|pointer| *pointer < mapping.end)
    };
    // A heap is never a stack, even if a coroutine's stack pointer lies in it.
    let is_heap = |mapping: &Mapping| heaps.iter().any(|heap| heap.contains(&mapping.start));
    let is_stack = |mapping: &Mapping| {
        (mapping.name.is_empty() || mapping.name == "[stack]") && !is_heap(mapping) && live(mapping)
    };
    let (stacks, others): (Vec<_>, Vec<_>) = mappings.iter().partition(|mapping| is_stack(mapping));
    let lengths: Vec<u64> = stacks.iter().map(|stack| stack.end - stack.start).collect();
    let was_stack = |mapping: &&&Mapping| {
        mapping.name.is_empty() && lengths.contains(&(mapping.end - mapping.start))
    };
    let sum = |of: &mut dyn Iterator<Item = &Mapping>| -> u64 { of.map(|one| one.pss_bytes).sum() };
    let stack_bytes = sum(&mut stacks.into_iter());
    let other_bytes = sum(&mut others.iter().filter(|one| !was_stack(one)).copied());
    into.stack_bytes += stack_bytes;
    into.other_bytes += other_bytes.saturating_sub(into.walked_bytes);
    Ok(())
}

/// Parses a `smaps` file for private, writable mappings without a file.
fn anonymous(smaps: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut counts = false;
    for line in smaps.lines() {
        if let Some(kb) = line.strip_prefix("Pss:") {
            let kb = kb
                .split_whitespace()
                .next()
                .and_then(|kb| kb.parse::<u64>().ok());
            if let Some(mapping) = mappings.last_mut().filter(|_| counts) {
                mapping.pss_bytes = kb.unwrap_or(0).saturating_mul(1024);
            }
        } else if let Some(region) = process::region(line) {
            counts = region.anonymous;
            if counts {
                mappings.push(Mapping {
                    start: region.start,
                    end: region.end,
                    name: region.name,
                    pss_bytes: 0,
                });
            }
        }
    }
    mappings
}

/// Describes what was not looked at, if the text was read up to its limit or there are more threads than are looked at.
fn cut_off(text_bytes: u64, threads: usize) -> Option<String> {
    if text_bytes >= proc_files::BYTES_MAX {
        return Some("it has too many mappings: some were not counted".into());
    }
    (threads > THREADS_MAX).then(|| {
        format!("it has more than {THREADS_MAX} threads: the stacks of the others were not counted")
    })
}

/// Returns the threads of a process: at most one more than are looked at.
fn threads(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let ids = tasks.flatten().take(THREADS_MAX + 1);
    ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns the stack pointers of those threads that wait in the kernel, in ascending order.
fn stack_pointers(pid: i32, threads: &[i32]) -> Vec<u64> {
    let pointer = |id: &i32| {
        let text = proc_files::read_beginning(pid, &format!("task/{id}/syscall")).ok()?;
        stack_pointer(&String::from_utf8_lossy(&text))
    };
    let mut pointers: Vec<u64> = threads.iter().filter_map(pointer).collect();
    pointers.sort_unstable();
    pointers
}

/// Returns the last word but one of `232 0x5 0x7f… 0x7ffe… 0x7f…`. A running thread has only the word `running`.
fn stack_pointer(syscall: &str) -> Option<u64> {
    let words: Vec<_> = syscall.split_whitespace().collect();
    let pointer = words.len().checked_sub(2)?;
    u64::from_str_radix(words.get(pointer)?.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_and_their_shares() {
        let text = "7f00-9f00 rw-p 00000000 00:00 0 \nSize: 32 kB\nPss: 12 kB\n\
                    a000-b000 r-xp 00000000 08:01 77 /bin/x\nPss: 4 kB\n\
                    c000-d000 rw-p 00000000 00:00 0 [heap]\nPss: 8 kB\n";
        let found = anonymous(text);
        let shares: Vec<_> = found.iter().map(|one| one.pss_bytes).collect();
        assert_eq!(shares, [12 << 10, 8 << 10]);
        assert_eq!(found[1].name, "[heap]");
    }

    #[test]
    fn what_is_cut_off_is_told() {
        assert_eq!(cut_off(proc_files::BYTES_MAX - 1, THREADS_MAX), None);
        assert!(cut_off(proc_files::BYTES_MAX, 1).is_some());
        let threads = cut_off(0, THREADS_MAX + 1);
        assert!(threads.is_some_and(|what| what.contains("32768 threads")));
    }

    #[test]
    fn the_stack_pointer_of_a_thread() {
        assert_eq!(
            stack_pointer("0 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffd10 0x7f20\n"),
            Some(0x7f_fd10)
        );
        assert_eq!(stack_pointer("running\n"), None);
        assert_eq!(stack_pointer(""), None);
    }

    #[test]
    fn a_waiting_thread_has_a_stack() {
        let (tell, wait) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || wait.recv().is_err());
        let own = i32::try_from(std::process::id()).unwrap();
        let found = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let mut snapshot = Snapshot::default();
            add(own, &[], &mut snapshot).unwrap();
            snapshot.stack_bytes > 0
        });
        // Recorded: Caddy of Debian 12, in Go 1.19, which keeps the stacks of its threads in its heap: 10 MB of objects
        // were called stacks.
        let mut in_heaps = Snapshot::default();
        add(own, std::slice::from_ref(&(0..u64::MAX)), &mut in_heaps).unwrap();
        drop(tell);
        assert!(waiting.join().unwrap() && found);
        assert_eq!(in_heaps.stack_bytes, 0);
    }
}
