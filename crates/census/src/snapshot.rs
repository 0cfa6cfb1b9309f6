//! The heap at one moment: blocks in use, by size.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Blocks of one size, over the process tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SizeCount {
    /// Blocks in use.
    pub blocks: u64,
    /// Bytes of them that are zero, in words of eight.
    pub zero_bytes: u64,
    /// Bytes of them that are resident: memory that was never touched takes nothing.
    #[serde(default)]
    pub resident_bytes: u64,
}

impl SizeCount {
    fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.zero_bytes += other.zero_bytes;
        self.resident_bytes += other.resident_bytes;
    }
}

/// The heap at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Connections open.
    pub connections: u64,
    /// Bytes in blocks in use.
    pub in_use_bytes: u64,
    /// Bytes of malloc's free blocks that are resident.
    pub free_bytes: u64,
    /// Of these, bytes in whole free pages: `malloc_trim` gives them back.
    pub returnable_bytes: u64,
    /// Bytes in heaps altogether.
    pub heap_bytes: u64,
    /// Resident bytes of the memory that an allocator's structures account for, its free blocks included.
    pub walked_bytes: u64,
    /// Blocks of malloc in use by size.
    pub sizes: BTreeMap<u64, SizeCount>,
    /// Blocks in use that lie on pages which are free but for them and a few others, by size.
    pub pins: BTreeMap<u64, u64>,
    /// Blocks in use of CPython's own allocator, by size.
    pub small: BTreeMap<u64, SizeCount>,
    /// Objects of Go that outlived its last collection, by size.
    pub go: BTreeMap<u64, SizeCount>,
    /// Bytes of Go's stacks in use.
    pub go_stack_bytes: u64,
    /// Collections that Go has finished; `None` where there is no Go.
    pub go_collections: Option<u64>,
    /// Allocator or runtime of the process whose memory can't be read: `V8`, `jemalloc`, …
    pub unread: BTreeSet<String>,
    /// Resident bytes of the stacks of threads that live.
    pub stack_bytes: u64,
    /// Resident bytes of anonymous memory that is neither a heap that was walked nor a thread's stack.
    pub other_bytes: u64,
    /// Processes of the tree that could not be read, and why.
    pub refused: Vec<String>,
}

impl Snapshot {
    pub(crate) fn add(&mut self, other: &Snapshot) {
        self.in_use_bytes += other.in_use_bytes;
        self.free_bytes += other.free_bytes;
        self.returnable_bytes += other.returnable_bytes;
        self.heap_bytes += other.heap_bytes;
        self.walked_bytes += other.walked_bytes;
        self.go_stack_bytes += other.go_stack_bytes;
        self.stack_bytes += other.stack_bytes;
        self.other_bytes += other.other_bytes;
        self.go_collections = match (self.go_collections, other.go_collections) {
            // The tree has collected as often as the process that did so least.
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.unread.extend(other.unread.iter().cloned());
        self.refused.extend(other.refused.iter().cloned());
        for (own, others) in [
            (&mut self.sizes, &other.sizes),
            (&mut self.small, &other.small),
            (&mut self.go, &other.go),
        ] {
            for (size, count) in others {
                own.entry(*size).or_default().add(count);
            }
        }
        for (size, blocks) in &other.pins {
            *self.pins.entry(*size).or_default() += blocks;
        }
    }

    /// Bytes that the process uses, as far as its allocators can be read: blocks in use, and stacks.
    pub fn used_bytes(&self) -> u64 {
        self.in_use_bytes + self.go_stack_bytes + self.stack_bytes
    }

    /// Free bytes on pages that blocks in use keep: no trim gives them back.
    pub fn pinned_bytes(&self) -> u64 {
        self.free_bytes.saturating_sub(self.returnable_bytes)
    }
}

/// Objects of a managed heap by class: their number, and their bytes.
pub(super) type ObjectCounts = BTreeMap<String, (u64, u64)>;
