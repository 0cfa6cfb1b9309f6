//! A census of a live process's heap, taken from outside: blocks by size, objects by class.
//!
//! Resident memory says little about what a connection uses: a heap that was larger before takes new blocks without
//! growing, and keeps pages without blocks. Allocators keep structures in memory that distinguish blocks in use from
//! free ones, and a process with permission to read this memory can walk them: glibc's malloc, CPython's pools, Go's
//! spans. A JVM counts its objects itself, and so does V8 if its inspector is open. For all other memory the census
//! samples pages.
//!
//! The crate builds on `measure`, which handles processes, and serves `bench` and `audit`, which handle connections.
#![forbid(unsafe_code)]

mod collector;
#[doc(hidden)]
pub mod fuzzed;
mod glibc;
mod go;
mod jvm;
mod managed;
mod pages;
mod process;
mod profile;
mod python;
mod report;
mod resident;
mod snapshot;
mod time_limit;
pub mod tool;
mod unread;
mod used;
mod v8;

use std::time::Duration;

pub use collector::{Collector, Generations};
pub use managed::ManagedHeap;
pub use pages::PageSample;
pub use profile::{HotSpot, hot_spots};
pub use report::{CensusReport, ClassCount, SizeClass, grown, pins};
pub use snapshot::{Detail, SizeCount, Snapshot};
pub use time_limit::{PATIENCE, limited};
pub use used::{hidden_per_connection, untouched_per_connection, used_per_connection};

/// Takes a census of all processes of a tree.
///
/// # Errors
/// If no census can be taken, with the reason.
pub fn take(pids: &[i32], connections: u64) -> Result<Snapshot, String> {
    take_within(PATIENCE, pids, connections)
}

/// The same in less time.
///
/// # Errors
/// As [`take`].
pub fn take_within(patience: Duration, pids: &[i32], connections: u64) -> Result<Snapshot, String> {
    let pids = pids.to_vec();
    limited(patience, move || take_now(&pids, connections))?
}

fn take_now(pids: &[i32], connections: u64) -> Result<Snapshot, String> {
    let mut whole = Snapshot {
        connections,
        ..Snapshot::default()
    };
    for &pid in pids {
        match of_process(pid) {
            Ok(snapshot) => whole.add(&snapshot),
            // A process that has ended meanwhile has no memory.
            Err(_) if !std::path::Path::new(&format!("/proc/{pid}")).exists() => {}
            Err(why) => {
                whole.refused.push(format!("process {pid}: {why}"));
                whole.uncounted += 1;
            }
        }
    }
    if whole.heap_bytes == 0 {
        let why = whole.refused.into_iter().next();
        return Err(why.unwrap_or_else(|| {
            "the server's processes have no heap of glibc's malloc, CPython or Go".into()
        }));
    }
    Ok(whole)
}

fn of_process(pid: i32) -> Result<Snapshot, String> {
    let mut snapshot = glibc::walk(pid)?;
    python::walk(pid, &mut snapshot)?;
    let of_go = go::walk(pid, &mut snapshot)?;
    resident::add(pid, &of_go, &mut snapshot)?;
    snapshot.unread.extend(unread::allocators(pid));
    Ok(snapshot)
}

/// Samples the pages of these processes.
///
/// # Errors
/// If no sample can be taken, with the reason.
pub fn sample_pages(pids: &[i32], connections: u64) -> Result<PageSample, String> {
    let pids = pids.to_vec();
    limited(PATIENCE, move || pages::sample(&pids, connections))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_heap_is_refused_in_words() {
        assert!(take(&[], 0).unwrap_err().contains("no heap"));
        assert!(take(&[i32::MAX], 0).is_err());
    }
}
