//! Compares heap snapshots: which blocks come with a connection and which remain.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::managed::{MANAGED_MAX, ManagedHeap};
use crate::pages::PageSample;
use crate::snapshot::{SizeCount, Snapshot};

/// Maximum number of size classes in a report.
const CLASSES_MAX: usize = 24;
/// Maximum number of block sizes that pin pages, in a report.
const PINS_MAX: usize = 8;

/// Blocks of one size that come with connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SizeClass {
    /// Allocator that the blocks belong to: `malloc`, `CPython` or `Go`.
    #[serde(default = "malloc")]
    pub heap: String,
    /// Size of a block in bytes, including its header.
    pub size_bytes: u64,
    /// Number of blocks at 0, N and 2N connections.
    pub blocks: [u64; 3],
    /// Blocks per connection, from 0 to 2N.
    pub per_connection: f64,
    /// Bytes per connection.
    pub bytes_per_connection: f64,
    /// Resident bytes per connection; may be missing in audits by older versions.
    #[serde(default)]
    pub resident_per_connection: Option<f64>,
    /// Share of zeros in these blocks, from 0 to 1.
    pub zero_share: f64,
}

fn malloc() -> String {
    "malloc".into()
}

/// Objects of one class of a managed heap.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassCount {
    /// The runtime's name for the class: `[B` is a JVM's byte array.
    pub class: String,
    /// Objects at 2N connections.
    pub instances: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Additional objects per connection.
    #[serde(default)]
    pub per_connection: f64,
    /// Bytes of the additional objects per connection.
    #[serde(default)]
    pub bytes_per_connection: f64,
}

/// Census of a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CensusReport {
    /// Method: `glibc malloc`, `CPython's allocator`, `Go's spans`, `classes of the JVM` or `V8`, `pages`.
    pub method: String,
    /// Size classes by bytes per connection, the largest first.
    pub classes: Vec<SizeClass>,
    /// Heap bytes per connection.
    pub heap_bytes_per_connection: f64,
    /// Blocks per connection, of all sizes.
    pub blocks_per_connection: f64,
    /// Bytes in use at 0, N and 2N connections, held (2N after an exchange and an idle period), after all have closed,
    /// and after the first and the last round of churn.
    pub in_use_bytes: BTreeMap<String, u64>,
    /// Resident bytes of free blocks at each of these moments.
    pub free_bytes: BTreeMap<String, u64>,
    /// Bytes of those in whole free pages, which `malloc_trim` returns.
    #[serde(default)]
    pub returnable_bytes: BTreeMap<String, u64>,
    /// Blocks that pin pages: size, number before, and number after all connections have closed.
    #[serde(default)]
    pub pins: Vec<(u64, u64, u64)>,
    /// Stack bytes per connection, of threads and of goroutines.
    #[serde(default)]
    pub stack_bytes_per_connection: f64,
    /// Sizes with more blocks after the rounds of churn: size, blocks before, blocks after.
    pub grown: Vec<(u64, u64, u64)>,
    /// Classes of a managed heap, if its runtime reports them.
    pub managed: Vec<ClassCount>,
    /// A sample of pages, if the allocator cannot be read.
    pub pages: Option<PageSample>,
    /// Memory that could not be read, and why.
    pub notes: Vec<String>,
}

impl CensusReport {
    /// Compares the snapshots at 0, N and 2N connections.
    pub fn compare(
        none: &Snapshot,
        n: &Snapshot,
        two_n: &Snapshot,
        later: &[(&str, &Snapshot)],
    ) -> Self {
        let connections = two_n.connections.saturating_sub(none.connections).max(1) as f64;
        let heaps: [(&str, SizesOf); 3] = [
            ("malloc", |of| &of.sizes),
            ("CPython", |of| &of.small),
            ("Go", |of| &of.go),
        ];
        let mut classes: Vec<SizeClass> = Vec::new();
        for (heap, of) in heaps {
            let blocks =
                |at: &Snapshot, size: &u64| of(at).get(size).map_or(0, |count| count.blocks);
            let resident = |at: &Snapshot, size: &u64| {
                of(at)
                    .get(size)
                    .map_or(0.0, |count| count.resident_bytes as f64)
            };
            // A size whose blocks are gone is a part of the sum, too: a table that grew has another size.
            let sizes: BTreeSet<&u64> = of(none).keys().chain(of(two_n).keys()).collect();
            classes.extend(sizes.into_iter().map(|size| {
                let count = of(two_n).get(size).copied().unwrap_or_default();
                let at = [blocks(none, size), blocks(n, size), count.blocks];
                let per_connection = (at[2] as f64 - at[0] as f64) / connections;
                SizeClass {
                    heap: heap.into(),
                    size_bytes: *size,
                    blocks: at,
                    per_connection,
                    bytes_per_connection: per_connection * *size as f64,
                    resident_per_connection: Some(
                        (count.resident_bytes as f64 - resident(none, size)) / connections,
                    ),
                    zero_share: count.zero_bytes as f64
                        / count.blocks.saturating_mul(*size).max(1) as f64,
                }
            }));
        }
        classes.sort_by(|a, b| b.bytes_per_connection.total_cmp(&a.bytes_per_connection));
        let sum = |of: fn(&SizeClass) -> f64| classes.iter().map(of).sum::<f64>();
        let (heap, number) = (sum(|c| c.bytes_per_connection), sum(|c| c.per_connection));
        classes.retain(|class| class.bytes_per_connection >= 16.0);
        classes.truncate(CLASSES_MAX);
        let moments = [("none", none), ("n", n), ("held", two_n)];
        let moments: Vec<_> = moments.iter().chain(later).collect();
        let at_moments = |of: fn(&Snapshot) -> u64| {
            let named = moments.iter();
            named
                .map(|(name, at)| ((*name).to_owned(), of(at)))
                .collect()
        };
        let stacks = |of: &Snapshot| of.stack_bytes as f64 + of.go_stack_bytes as f64;
        Self {
            method: method(two_n),
            classes,
            heap_bytes_per_connection: heap,
            blocks_per_connection: number,
            in_use_bytes: at_moments(|at| at.in_use_bytes),
            free_bytes: at_moments(|at| at.free_bytes),
            returnable_bytes: at_moments(|at| at.returnable_bytes),
            pins: Vec::new(),
            stack_bytes_per_connection: (stacks(two_n) - stacks(none)) / connections,
            grown: Vec::new(),
            managed: Vec::new(),
            pages: None,
            notes: two_n.refused.clone(),
        }
    }

    /// Counts the blocks of a connection between these two snapshots instead.
    pub fn count_between(&mut self, before: &Snapshot, held: &Snapshot) {
        let other = Self::compare(before, before, held, &[]);
        *self = Self {
            in_use_bytes: std::mem::take(&mut self.in_use_bytes),
            free_bytes: std::mem::take(&mut self.free_bytes),
            returnable_bytes: std::mem::take(&mut self.returnable_bytes),
            ..other
        };
    }

    /// Creates a report without glibc's heap.
    pub fn without_malloc(why: &str) -> Self {
        Self {
            method: "pages".into(),
            classes: Vec::new(),
            heap_bytes_per_connection: 0.0,
            blocks_per_connection: 0.0,
            in_use_bytes: BTreeMap::new(),
            free_bytes: BTreeMap::new(),
            returnable_bytes: BTreeMap::new(),
            pins: Vec::new(),
            stack_bytes_per_connection: 0.0,
            grown: Vec::new(),
            managed: Vec::new(),
            pages: None,
            notes: vec![format!("the heap was not counted, because {why}")],
        }
    }

    /// Adds the managed heaps at 0 and at 2N connections.
    pub fn add_managed(&mut self, none: &ManagedHeap, two_n: &ManagedHeap, connections: u64) {
        self.notes.extend(two_n.refused.iter().cloned());
        let Some(by) = two_n
            .by
            .filter(|_| none.has_classes() && two_n.has_classes())
        else {
            return;
        };
        self.method = format!("{}, classes of {by}", self.method);
        let connections = connections.max(1) as f64;
        let class = |(name, &(instances, bytes)): (&String, &(u64, u64))| {
            let before = none.classes.get(name).copied().unwrap_or_default();
            ClassCount {
                class: name.clone(),
                instances,
                bytes,
                per_connection: (instances as f64 - before.0 as f64) / connections,
                bytes_per_connection: (bytes as f64 - before.1 as f64) / connections,
            }
        };
        self.managed = two_n.classes.iter().map(class).collect();
        self.managed
            .sort_by(|a, b| b.bytes_per_connection.total_cmp(&a.bytes_per_connection));
        self.managed.truncate(MANAGED_MAX);
    }

    /// Adds a page sample, for memory that neither malloc nor a runtime accounts for.
    pub fn add_pages(&mut self, sample: Result<PageSample, String>) {
        match sample {
            Ok(sample) => {
                if sample.unread_bytes > 0 {
                    let gib = sample.unread_bytes >> 30;
                    self.notes.push(format!(
                        "{gib} GiB of address space were not examined for pages, because so much is mapped"
                    ));
                }
                self.pages = Some(sample);
            }
            Err(why) => self
                .notes
                .push(format!("pages were not sampled, because {why}")),
        }
    }
}

fn method(of: &Snapshot) -> String {
    let heaps = [
        ("glibc malloc", of.sizes.is_empty()),
        ("CPython's allocator", of.small.is_empty()),
        ("Go's spans", of.go.is_empty()),
    ];
    let walked = heaps.into_iter().filter(|(_, is_empty)| !is_empty);
    walked.map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// Blocks on otherwise mostly free pages: size, number before and after; the largest increase first.
pub fn pins(before: &Snapshot, after: &Snapshot) -> Vec<(u64, u64, u64)> {
    let mut pins: Vec<_> = after
        .pins
        .iter()
        .map(|(&size, &blocks)| (size, before.pins.get(&size).copied().unwrap_or(0), blocks))
        .collect();
    pins.sort_by_key(|(_, had, has)| std::cmp::Reverse(has.saturating_sub(*had)));
    pins.truncate(PINS_MAX);
    pins
}

/// Selects the size classes of one heap in a snapshot.
type SizesOf = fn(&Snapshot) -> &BTreeMap<u64, SizeCount>;

/// Sizes with more blocks in `after` than in `before`, by additional bytes, the largest first.
pub fn grown(before: &Snapshot, after: &Snapshot) -> Vec<(u64, u64, u64)> {
    let heaps: [SizesOf; 3] = [|of| &of.sizes, |of| &of.small, |of| &of.go];
    let mut grown: Vec<_> = heaps
        .iter()
        .flat_map(|of| of(after).iter().map(move |(size, count)| (of, size, count)))
        .map(|(of, &size, count)| {
            let had = of(before).get(&size).map_or(0, |count| count.blocks);
            (size, had, count.blocks)
        })
        .filter(|(_, had, has)| has > had)
        .collect();
    grown.sort_by_key(|(size, had, has)| std::cmp::Reverse((has - had).saturating_mul(*size)));
    grown.truncate(8);
    grown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(connections: u64, sizes: &[(u64, u64)]) -> Snapshot {
        let sizes = sizes.iter().map(|&(size, blocks)| {
            let zero_bytes = blocks * size / 2;
            let count = SizeCount {
                blocks,
                zero_bytes,
                resident_bytes: blocks * size,
            };
            (size, count)
        });
        Snapshot {
            connections,
            sizes: sizes.collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn blocks_that_come_with_connections_stand_out() {
        let none = snapshot(0, &[(32, 1000), (16912, 3)]);
        let n = snapshot(100, &[(32, 1100), (16912, 203)]);
        let two_n = snapshot(200, &[(32, 1200), (16912, 403)]);
        let report = CensusReport::compare(&none, &n, &two_n, &[]);
        assert_eq!(report.classes[0].size_bytes, 16912);
        assert_eq!(report.classes[0].per_connection, 2.0);
        assert_eq!(report.classes[0].zero_share, 0.5);
        assert_eq!(
            report.classes[0].resident_per_connection,
            Some(2.0 * 16912.0)
        );
        assert_eq!(report.blocks_per_connection, 3.0);
        assert_eq!(grown(&none, &n)[0], (16912, 3, 203));
    }

    /// A table of connections that was enlarged is a new block, and the old one is gone.
    #[test]
    fn a_block_that_is_gone_is_subtracted() {
        let none = snapshot(0, &[(4_096, 1)]);
        let two_n = snapshot(256, &[(8_192, 1), (64, 256)]);
        let report = CensusReport::compare(&none, &none, &two_n, &[]);
        assert_eq!(report.heap_bytes_per_connection, 64.0 + 4_096.0 / 256.0);
        assert_eq!(report.blocks_per_connection, 1.0);
    }

    #[test]
    fn classes_are_counted_per_connection() {
        let told = |count| {
            let classes = BTreeMap::from([("TLSSocket".into(), (count, 200 * count))]);
            ManagedHeap::counted("V8", 200 * count, classes)
        };
        let mut report = CensusReport::without_malloc("it is another one");
        report.add_managed(&told(3), &told(1003), 500);
        assert_eq!(report.managed[0].per_connection, 2.0);
        assert_eq!(report.managed[0].bytes_per_connection, 400.0);
        assert!(
            report.method.ends_with("classes of V8"),
            "{}",
            report.method
        );
    }
}
