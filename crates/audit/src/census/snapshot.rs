//! The heap at one moment: blocks in use, by size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Blocks of one size, over the process tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SizeCount {
    /// Blocks in use.
    pub blocks: u64,
    /// Bytes of them that are zero, in words of eight.
    pub zero_bytes: u64,
    /// Bytes of them which are resident: what was never touched takes nothing.
    #[serde(default)]
    pub resident_bytes: u64,
}

/// The heap at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Connections open.
    pub connections: u64,
    /// Bytes in blocks in use.
    pub in_use_bytes: u64,
    /// Bytes of free blocks that are resident.
    pub free_bytes: u64,
    /// Bytes in heaps altogether.
    pub heap_bytes: u64,
    /// Blocks in use by size.
    pub sizes: BTreeMap<u64, SizeCount>,
    /// Blocks in use of CPython's own allocator, by size.
    pub small: BTreeMap<u64, SizeCount>,
    /// Processes of the tree that could not be read, and why.
    pub refused: Vec<String>,
}

impl Snapshot {
    pub(super) fn add(&mut self, other: &Snapshot) {
        self.in_use_bytes += other.in_use_bytes;
        self.free_bytes += other.free_bytes;
        self.heap_bytes += other.heap_bytes;
        self.refused.extend(other.refused.iter().cloned());
        for (size, count) in &other.sizes {
            let own = self.sizes.entry(*size).or_default();
            own.blocks += count.blocks;
            own.zero_bytes += count.zero_bytes;
            own.resident_bytes += count.resident_bytes;
        }
        for (size, count) in &other.small {
            let own = self.small.entry(*size).or_default();
            own.blocks += count.blocks;
            own.resident_bytes += count.resident_bytes;
        }
    }
}

/// Objects of a managed heap by class: their number, and their bytes.
pub(super) type ObjectCounts = BTreeMap<String, (u64, u64)>;
