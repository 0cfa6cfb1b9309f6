//! One reading of a whole process tree.

use crate::cpu::CpuTime;
use crate::error::Error;
use crate::memory::Memory;
use crate::proc_files;
use crate::tree::ProcessTree;

/// One reading of everything about a process tree.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TreeSample {
    /// Memory, summed over the tree.
    pub memory: Memory,
    /// CPU time, summed over the tree.
    pub cpu: CpuTime,
    /// Processes in the tree.
    pub processes: u64,
    /// Threads in the tree.
    pub threads: u64,
    /// Open descriptors in the tree; processes that share a file table count once per process.
    pub descriptors: u64,
}

impl TreeSample {
    /// Reads the current tree.
    ///
    /// # Errors
    /// If the root of the tree is gone, or one of its processes may not be read.
    pub fn take(tree: &ProcessTree) -> Result<Self, Error> {
        let pids = tree.pids()?;
        let mut sample = Self::default();
        for &pid in &pids {
            // A worker may exit between the listing and the reading: it is no longer part of the
            // tree.
            let Some(memory) = Memory::of(pid)? else {
                continue;
            };
            let Some(cpu) = CpuTime::of(pid)? else {
                continue;
            };
            sample.memory += memory;
            sample.cpu += cpu;
            sample.processes += 1;
            sample.threads += proc_files::count_entries(pid, "task");
            sample.descriptors += proc_files::count_entries(pid, "fd");
        }
        if sample.processes == 0 {
            return Err(Error::target(
                "the server has died: none of its processes is left",
            ));
        }
        Ok(sample)
    }
}
