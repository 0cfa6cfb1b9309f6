//! Where memory is: a census of a process's heap, taken from outside, by the size of its blocks.
//!
//! glibc keeps the size of every block right before it, so a heap can be walked by anybody who may
//! read the process's memory. Between no, N and 2N connections the blocks that belong to a
//! connection stand out by their number. Where the allocator is another one, pages are sampled.

mod glibc;
mod jvm;
mod pages;
mod process;
mod python;
mod snapshot;
mod v8;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use pages::PageSample;
pub use snapshot::{SizeCount, Snapshot};

/// Classes of a managed heap that are kept in a report.
const MANAGED_MAX: usize = 20;
/// Size classes that are kept in a report.
const CLASSES_MAX: usize = 24;

/// Blocks of one size which come with connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SizeClass {
    /// MeasuredSide blocks: `malloc`, or `CPython`.
    #[serde(default = "malloc")]
    pub heap: String,
    /// Bytes of a block, its header included.
    pub size_bytes: u64,
    /// Blocks at none, N and 2N connections.
    pub blocks: [u64; 3],
    /// Blocks per connection, from none to 2N.
    pub per_connection: f64,
    /// Bytes per connection.
    pub bytes_per_connection: f64,
    /// Bytes per connection which are resident; may be missing in audits of older versions.
    #[serde(default)]
    pub resident_per_connection: Option<f64>,
    /// How much of these blocks is zero, from 0 to 1.
    pub zero_share: f64,
}

fn malloc() -> String {
    "malloc".into()
}

/// Objects of one class of a managed heap.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassCount {
    /// Its name, as the runtime has it: `[B` is a JVM's array of bytes.
    pub class: String,
    /// How many there are with 2N connections.
    pub instances: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How many of them came with each connection.
    #[serde(default)]
    pub per_connection: f64,
    /// Bytes of those.
    #[serde(default)]
    pub bytes_per_connection: f64,
}

/// What a runtime tells of its own heap at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ManagedHeap {
    /// Who told: `the JVM`, `V8`.
    by: Option<&'static str>,
    /// Objects and bytes by class.
    classes: BTreeMap<String, (u64, u64)>,
    /// What was not told, and why.
    refused: Vec<String>,
}

/// The census of a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CensusReport {
    /// How it was taken: `glibc malloc`, `CPython's allocator`, `classes of the JVM` or `V8`, `pages`.
    pub method: String,
    /// Sizes by bytes per connection, the greatest first.
    pub classes: Vec<SizeClass>,
    /// Bytes per connection that the heap explains.
    pub heap_bytes_per_connection: f64,
    /// Blocks per connection, of all sizes.
    pub blocks_per_connection: f64,
    /// Bytes in use at none, N, 2N, held (2N after an exchange and a while), after all have closed, and
    /// after the first and the last round of churn.
    pub in_use_bytes: BTreeMap<String, u64>,
    /// Resident bytes of free blocks at the same moments.
    pub free_bytes: BTreeMap<String, u64>,
    /// Sizes which became more over the rounds of churn: size, blocks before, blocks after.
    pub grown: Vec<(u64, u64, u64)>,
    /// Classes of a managed heap, where its runtime tells.
    pub managed: Vec<ClassCount>,
    /// A sample of the pages, where the allocator can't be read.
    pub pages: Option<PageSample>,
    /// What could not be read, and why.
    pub notes: Vec<String>,
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

/// The size classes of one of a snapshot's heaps.
type SizesOf = fn(&Snapshot) -> &BTreeMap<u64, SizeCount>;

/// What the snapshots at none, N and 2N say together.
pub fn compare(
    none: &Snapshot,
    n: &Snapshot,
    two_n: &Snapshot,
    later: &[(&str, &Snapshot)],
) -> CensusReport {
    let connections = two_n.connections.saturating_sub(none.connections).max(1) as f64;
    let heaps: [(&str, SizesOf); 2] = [("malloc", |of| &of.sizes), ("CPython", |of| &of.small)];
    let mut classes: Vec<SizeClass> = Vec::new();
    for (heap, of) in heaps {
        let blocks = |at: &Snapshot, size: &u64| of(at).get(size).map_or(0, |count| count.blocks);
        let resident = |at: &Snapshot, size: &u64| {
            of(at)
                .get(size)
                .map_or(0.0, |count| count.resident_bytes as f64)
        };
        classes.extend(of(two_n).iter().map(|(size, count)| {
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
                zero_share: count.zero_bytes as f64 / (count.blocks * size).max(1) as f64,
            }
        }));
    }
    classes.sort_by(|a, b| b.bytes_per_connection.total_cmp(&a.bytes_per_connection));
    let sum = |of: fn(&SizeClass) -> f64| classes.iter().map(of).sum::<f64>();
    let (heap, number) = (sum(|c| c.bytes_per_connection), sum(|c| c.per_connection));
    classes.retain(|class| class.bytes_per_connection >= 16.0);
    classes.truncate(CLASSES_MAX);
    let moments = [("none", none), ("n", n), ("held", two_n)];
    let moments = moments.iter().chain(later);
    CensusReport {
        method: if two_n.small.is_empty() {
            "glibc malloc".into()
        } else {
            "glibc malloc, CPython's allocator".into()
        },
        classes,
        heap_bytes_per_connection: heap,
        blocks_per_connection: number,
        in_use_bytes: moments
            .clone()
            .map(|(name, of)| ((*name).to_owned(), of.in_use_bytes))
            .collect(),
        free_bytes: moments
            .map(|(name, of)| ((*name).to_owned(), of.free_bytes))
            .collect(),
        grown: Vec::new(),
        managed: Vec::new(),
        pages: None,
        notes: two_n.refused.clone(),
    }
}

/// Sizes of which there are more in `after` than in `before`, by bytes, the greatest first.
pub fn grown(before: &Snapshot, after: &Snapshot) -> Vec<(u64, u64, u64)> {
    let mut grown: Vec<_> = after
        .sizes
        .iter()
        .map(|(&size, count)| {
            let had = before.sizes.get(&size).map_or(0, |count| count.blocks);
            (size, had, count.blocks)
        })
        .filter(|(_, had, has)| has > had)
        .collect();
    grown.sort_by_key(|(size, had, has)| std::cmp::Reverse((has - had) * size));
    grown.truncate(8);
    grown
}

impl ManagedHeap {
    /// Who told, and the bytes of all objects.
    pub fn bytes(&self) -> Option<(&'static str, u64)> {
        let bytes = self.classes.values().map(|(_, bytes)| bytes).sum();
        Some((self.by?, bytes))
    }

    /// Classes of which there are more than there were: class, instances then and now, bytes more.
    pub fn more_than(&self, before: &ManagedHeap) -> Vec<(String, u64, u64, u64)> {
        let mut grown: Vec<_> = self
            .classes
            .iter()
            .map(|(class, &(instances, bytes))| {
                let had = before.classes.get(class).copied().unwrap_or_default();
                (class.clone(), had.0, instances, bytes.saturating_sub(had.1))
            })
            .filter(|(_, had, has, more)| has > had && *more > 0)
            .collect();
        grown.sort_by_key(|(_, _, _, more)| std::cmp::Reverse(*more));
        grown.truncate(MANAGED_MAX);
        grown
    }
}

/// Asks the runtimes among these processes which objects they hold.
pub fn ask(pids: &[i32]) -> ManagedHeap {
    told(pids, false)
}

/// The same of those objects alone that outlive a full collection, which is made for it.
pub fn ask_living(pids: &[i32]) -> ManagedHeap {
    told(pids, true)
}

fn told(pids: &[i32], living: bool) -> ManagedHeap {
    let mut told = ManagedHeap::default();
    for &pid in pids {
        // A snapshot of V8 is of what lives, anyhow.
        let answers = [
            ("the JVM", jvm::histogram(pid, living)),
            ("V8", v8::classes(pid)),
        ];
        for (who, answer) in answers {
            match answer {
                None => {}
                Some(Err(why)) => told.refused.push(format!(
                    "classes of {who} in process {pid} were not counted, because {why}"
                )),
                Some(Ok(classes)) => {
                    told.by = Some(who);
                    for (class, (instances, bytes)) in classes {
                        let of = told.classes.entry(class).or_default();
                        of.0 += instances;
                        of.1 += bytes;
                    }
                }
            }
        }
    }
    told
}

/// Without glibc's heap.
pub fn without_malloc(why: &str) -> CensusReport {
    CensusReport {
        method: "pages".into(),
        classes: Vec::new(),
        heap_bytes_per_connection: 0.0,
        blocks_per_connection: 0.0,
        in_use_bytes: BTreeMap::new(),
        free_bytes: BTreeMap::new(),
        grown: Vec::new(),
        managed: Vec::new(),
        pages: None,
        notes: vec![format!("the heap was not walked, because {why}")],
    }
}

/// Adds what runtimes told at none and at 2N connections.
pub fn add_classes(
    report: &mut CensusReport,
    none: &ManagedHeap,
    two_n: &ManagedHeap,
    connections: u64,
) {
    report.notes.extend(two_n.refused.iter().cloned());
    let Some(by) = two_n.by else { return };
    report.method = format!("{}, classes of {by}", report.method);
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
    report.managed = two_n.classes.iter().map(class).collect();
    report
        .managed
        .sort_by(|a, b| b.bytes_per_connection.total_cmp(&a.bytes_per_connection));
    report.managed.truncate(MANAGED_MAX);
}

/// Adds a sample of pages, for memory that neither malloc nor a runtime accounts for.
pub fn add_pages(report: &mut CensusReport, sample: Result<PageSample, String>) {
    match sample {
        Ok(sample) => report.pages = Some(sample),
        Err(why) => report
            .notes
            .push(format!("pages were not sampled, because {why}")),
    }
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
        let report = compare(&none, &n, &two_n, &[]);
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

    #[test]
    fn classes_are_counted_per_connection() {
        let told = |count| ManagedHeap {
            by: Some("V8"),
            classes: BTreeMap::from([("TLSSocket".into(), (count, 200 * count))]),
            refused: Vec::new(),
        };
        let mut report = without_malloc("it is another one");
        add_classes(&mut report, &told(3), &told(1003), 500);
        assert_eq!(report.managed[0].per_connection, 2.0);
        assert_eq!(report.managed[0].bytes_per_connection, 400.0);
        assert!(
            report.method.ends_with("classes of V8"),
            "{}",
            report.method
        );
    }

    #[test]
    fn a_process_without_a_heap_is_refused_in_words() {
        assert!(take(&[], 0).unwrap_err().contains("no heap"));
        assert!(take(&[i32::MAX], 0).is_err());
    }
}
