//! The heap at one moment: blocks in use by size.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Held connections for each freed object of garbage up to which that object does not matter. A connection is at least
/// one object, so this is one percent.
const GARBAGE_PER_CONNECTIONS: u64 = 100;

/// Maximum number of characters of a class's name: the text comes from the audited process.
const CLASS_NAME_MAX: usize = 200;

/// Blocks of one size in all processes of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SizeCount {
    /// Blocks in use.
    pub blocks: u64,
    /// Zero bytes in these blocks, counted in words of eight.
    pub zero_bytes: u64,
    /// Resident bytes of these blocks: memory that was never touched is not resident.
    #[serde(default)]
    pub resident_bytes: u64,
}

impl SizeCount {
    fn add(&mut self, other: &Self) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.zero_bytes = self.zero_bytes.saturating_add(other.zero_bytes);
        self.resident_bytes = self.resident_bytes.saturating_add(other.resident_bytes);
    }
}

/// The heap at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Open connections.
    pub connections: u64,
    /// Total bytes of the blocks in use.
    pub in_use_bytes: u64,
    /// Resident bytes of malloc's free blocks.
    pub free_bytes: u64,
    /// Bytes of those in whole free pages, which `malloc_trim` returns.
    pub returnable_bytes: u64,
    /// Total bytes of the heaps.
    pub heap_bytes: u64,
    /// Resident bytes of memory that an allocator's structures account for, including its free blocks.
    pub walked_bytes: u64,
    /// Malloc blocks in use, by size.
    pub sizes: BTreeMap<u64, SizeCount>,
    /// Blocks in use on pages that are otherwise mostly free, by size.
    pub pins: BTreeMap<u64, u64>,
    /// Blocks in use of CPython's own allocator, by size.
    pub small: BTreeMap<u64, SizeCount>,
    /// Go objects that survived the last collection, by size.
    pub go: BTreeMap<u64, SizeCount>,
    /// Objects of garbage that CPython's collections of older objects have freed so far; `None` without its collector.
    pub freed_old_objects: Option<u64>,
    /// Bytes of Go's stacks in use.
    pub go_stack_bytes: u64,
    /// Number of collections that Go has finished; `None` without Go.
    pub go_collections: Option<u64>,
    /// Allocators or runtimes in the process whose memory cannot be read: `V8`, `jemalloc`, …
    pub unread: BTreeSet<String>,
    /// Resident bytes of the stacks of live threads.
    pub stack_bytes: u64,
    /// Resident bytes of anonymous memory that is neither a walked heap nor a thread's stack.
    pub other_bytes: u64,
    /// Memory of the tree that could not be read, with the reason.
    pub refused: Vec<String>,
    /// Number of processes that could not be counted, wholly or in part.
    pub uncounted: u64,
}

impl Snapshot {
    pub(crate) fn add(&mut self, other: &Snapshot) {
        // What a process has in its memory says how much that is.
        for (own, others) in [
            (&mut self.in_use_bytes, other.in_use_bytes),
            (&mut self.free_bytes, other.free_bytes),
            (&mut self.returnable_bytes, other.returnable_bytes),
            (&mut self.heap_bytes, other.heap_bytes),
            (&mut self.walked_bytes, other.walked_bytes),
            (&mut self.go_stack_bytes, other.go_stack_bytes),
            (&mut self.stack_bytes, other.stack_bytes),
            (&mut self.other_bytes, other.other_bytes),
            (&mut self.uncounted, other.uncounted),
        ] {
            *own = own.saturating_add(others);
        }
        self.go_collections = match (self.go_collections, other.go_collections) {
            // For the tree, the process with the fewest collections counts.
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.freed_old_objects = match (self.freed_old_objects, other.freed_old_objects) {
            (Some(one), Some(two)) => Some(one.saturating_add(two)),
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
            let pins = self.pins.entry(*size).or_default();
            *pins = pins.saturating_add(*blocks);
        }
    }

    /// Whether CPython has freed older garbage between these two snapshots, as many objects as one for every hundredth of
    /// the held connections or more. Then the later snapshot lacks memory that the earlier one has, and their difference
    /// says too little.
    pub fn lost_garbage_until(&self, later: &Self) -> bool {
        let freed = self.freed_old_objects.zip(later.freed_old_objects);
        let freed = freed.map_or(0, |(before, after)| after.saturating_sub(before));
        freed.saturating_mul(GARBAGE_PER_CONNECTIONS) > later.connections
    }

    /// Refuses to compare a snapshot with a later one in which another number of processes was counted.
    ///
    /// # Errors
    /// Why a process was not counted.
    pub fn ensure_comparable(&self, later: &Self) -> Result<(), String> {
        if self.uncounted == later.uncounted {
            return Ok(());
        }
        let why = later.refused.iter().chain(&self.refused).next();
        let why = why.map_or("?", String::as_str);
        Err(format!(
            "not every process could be counted each time ({why})"
        ))
    }

    /// Bytes that the process uses, as far as its allocators can be read: blocks in use and stacks.
    pub fn used_bytes(&self) -> u64 {
        let stacks = self.go_stack_bytes.saturating_add(self.stack_bytes);
        self.in_use_bytes.saturating_add(stacks)
    }
}

/// What to learn about the objects of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Their bytes. A runtime may count classes, too, if that takes no longer.
    Bytes,
    /// Their classes, for which V8 stops the program for longer.
    Classes,
}

/// Objects of a managed heap by class: their number and their bytes.
pub(super) type ObjectCounts = BTreeMap<String, (u64, u64)>;

/// Returns the name of a class, which may have any length.
pub(super) fn class_name(name: &str) -> String {
    if name.len() <= CLASS_NAME_MAX {
        return name.to_owned();
    }
    dormouse_printable::line_up_to(name, CLASS_NAME_MAX).to_string()
}

/// Adds objects of one class. What a runtime says of itself may be any number.
pub(super) fn add_objects(counts: &mut ObjectCounts, class: String, instances: u64, bytes: u64) {
    let of = counts.entry(class).or_default();
    of.0 = of.0.saturating_add(instances);
    of.1 = of.1.saturating_add(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Their number comes from the memory of another process.
    #[test]
    fn freed_objects_of_any_number_are_added_and_compared() {
        let freed = |objects| Snapshot {
            freed_old_objects: Some(objects),
            ..Snapshot::default()
        };
        let mut most = freed(u64::MAX);
        most.add(&freed(1));
        assert_eq!(most, freed(u64::MAX));
        assert!(freed(0).lost_garbage_until(&most));
        assert!(!most.lost_garbage_until(&freed(0)));
        let mut bytes = Snapshot {
            in_use_bytes: u64::MAX,
            stack_bytes: 1,
            ..Snapshot::default()
        };
        bytes.add(&bytes.clone());
        assert_eq!(bytes.used_bytes(), u64::MAX);
    }
}
