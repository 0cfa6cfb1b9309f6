//! Measuring a process tree and the kernel from outside, by what `/proc` says.
//!
//! A server is a *tree*: a process, all its descendants, and those which were re-parented but
//! still belong to it. Figures are sums over the tree. Memory that several processes of the tree
//! map is counted once in PSS (each has its share) and several times in RSS, so bytes per
//! connection are always taken from PSS.

mod cpu;
mod kernel;
mod machine;
mod memory;
mod proc_files;
mod tree;

pub use cpu::CpuTime;
pub use kernel::{KernelMemory, SLAB_CACHES};
pub use machine::Machine;
pub use memory::Memory;
pub use tree::{ProcessInfo, ProcessTree};

use crate::trouble::Trouble;

/// Everything that is read of a process tree in one go.
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
    /// Reads the tree as it is now.
    ///
    /// # Errors
    /// When the root of the tree is gone, or one of its processes may not be read.
    pub fn take(tree: &ProcessTree) -> Result<Self, Trouble> {
        let pids = tree.pids()?;
        let mut sample = Self::default();
        for &pid in &pids {
            // A worker may end between the listing and the reading: it is no longer of the tree.
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
            return Err(Trouble::target(
                "the server has died: none of its processes is left",
            ));
        }
        Ok(sample)
    }
}
