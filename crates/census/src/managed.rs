//! Objects of a garbage-collected runtime, as the runtime itself counts them.

use std::time::{Duration, Instant};

use crate::snapshot::ObjectCounts;
use crate::{jvm, v8};

/// Maximum number of classes of a managed heap in a report.
pub(super) const MANAGED_MAX: usize = 20;
/// Maximum wait for all runtimes of a process tree: a full collection or a snapshot of a large heap takes long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Objects in managed heaps at one moment, by class.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ManagedHeap {
    /// Runtime that counted the objects: `the JVM`, `V8`.
    pub(super) by: Option<&'static str>,
    /// Number of objects and bytes by class.
    pub(super) classes: ObjectCounts,
    /// Heaps that were not counted, and why.
    pub(super) refused: Vec<String>,
}

impl ManagedHeap {
    /// Counts the objects in the runtimes of these processes.
    pub fn of(pids: &[i32]) -> Self {
        Self::count(pids, None)
    }

    /// Asks each runtime for a full collection, then counts the objects that survive it, within `patience` for all.
    pub fn after_collection(pids: &[i32], patience: Duration) -> Self {
        Self::count(pids, Some(patience))
    }

    /// Makes each V8 with an inspector collect its garbage: its buffers lie in malloc's heap, where a census cannot
    /// distinguish garbage. Returns false if one did not.
    pub fn collect_buffers(pids: &[i32], patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let left = || until.saturating_duration_since(Instant::now());
        let mut collected = pids.iter().filter_map(|pid| v8::collect(*pid, left()));
        collected.all(|collected| collected.is_ok())
    }

    /// Counts living objects only if there is a patience for collections.
    fn count(pids: &[i32], collection: Option<Duration>) -> Self {
        let mut heap = Self::default();
        let until = Instant::now() + collection.unwrap_or(PATIENCE);
        for &pid in pids {
            // A V8 snapshot contains only live objects in any case.
            let left = || until.saturating_duration_since(Instant::now());
            let answers = [
                ("the JVM", jvm::histogram(pid, collection.is_some(), left())),
                ("V8", v8::classes(pid, left())),
            ];
            for (who, answer) in answers {
                match answer {
                    None => {}
                    Some(Err(why)) => heap.refused.push(format!(
                        "classes of {who} in process {pid} were not counted, because {why}"
                    )),
                    Some(Ok(classes)) => {
                        heap.by = Some(who);
                        for (class, (instances, bytes)) in classes {
                            let of = heap.classes.entry(class).or_default();
                            of.0 += instances;
                            of.1 += bytes;
                        }
                    }
                }
            }
        }
        heap
    }

    /// Returns the runtime that counted and the total bytes of the objects.
    pub fn bytes(&self) -> Option<(&'static str, u64)> {
        let bytes = self.classes.values().map(|(_, bytes)| bytes).sum();
        Some((self.by?, bytes))
    }

    /// Classes with more instances than before: class, instances before and now, additional bytes.
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
