//! Where memory is: a census of a process's heap, taken from outside, by the size of its blocks.
//!
//! glibc keeps the size of every block right before it, so any process that may read this memory can
//! walk the heap. Between no, N and 2N connections the blocks that belong to a
//! connection stand out by their number. Where the allocator is another one, pages are sampled.

mod glibc;
mod jvm;
mod managed;
mod pages;
mod process;
mod python;
mod report;
mod snapshot;
mod v8;

pub use managed::ManagedHeap;
pub use pages::PageSample;
pub use report::{CensusReport, ClassCount, SizeClass, grown};
pub use snapshot::{SizeCount, Snapshot};

/// Reads a text as each of those that a census reads.
pub(crate) fn read_texts(text: &str) {
    let _ = text.lines().filter_map(process::region).count();
    let own = ["4711".to_owned()].into();
    let _ = text
        .lines()
        .filter_map(|line| v8::listener(line, &own))
        .count();
    let _ = (
        jvm::parse(text),
        v8::count(text),
        v8::receive(&mut text.as_bytes()),
    );
}

/// Walks bytes as a heap, all of whose pages are resident, and as pools of CPython: blocks in use.
pub(crate) fn walk_bytes(bytes: &[u8]) -> u64 {
    glibc::walk_bytes(bytes) + python::blocks_of(bytes)
}

/// Takes a census of all processes of a tree.
///
/// # Errors
/// In words: why there is none.
pub fn take(pids: &[i32], connections: u64) -> Result<Snapshot, String> {
    let mut whole = Snapshot {
        connections,
        ..Snapshot::default()
    };
    for &pid in pids {
        let walked = glibc::walk(pid).and_then(|mut snapshot| {
            python::walk(pid, &mut snapshot)?;
            Ok(snapshot)
        });
        match walked {
            Ok(snapshot) => whole.add(&snapshot),
            Err(why) => whole.refused.push(format!("process {pid}: {why}")),
        }
    }
    if whole.heap_bytes == 0 {
        let why = whole.refused.into_iter().next();
        return Err(why.unwrap_or_else(|| "there is no heap of glibc's malloc in it".into()));
    }
    Ok(whole)
}

/// Samples the pages of these processes.
///
/// # Errors
/// In words: why not.
pub fn sample_pages(pids: &[i32], connections: u64) -> Result<PageSample, String> {
    pages::sample(pids, connections)
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
