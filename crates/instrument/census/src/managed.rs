//! Objects of a garbage-collected runtime, as the runtime itself counts them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::snapshot::{Detail, ObjectCounts, add_objects};
use crate::v8::Survivors;
use crate::{jvm, v8};

/// Maximum number of classes of a managed heap in a report.
pub(super) const MANAGED_MAX: usize = 20;

/// Objects in managed heaps that survived a collection, by class.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ManagedHeap {
    /// Runtime that counted the objects: `the JVM`, `V8`.
    pub(super) by: Option<&'static str>,
    /// Bytes of all objects.
    bytes: u64,
    /// Number of objects and bytes by class; empty if the classes were not counted.
    pub(super) classes: ObjectCounts,
    /// Heaps that were not counted, and why.
    pub(super) refused: Vec<String>,
}

impl ManagedHeap {
    /// Creates the heap that a runtime has counted.
    pub fn counted(by: &'static str, bytes: u64, classes: BTreeMap<String, (u64, u64)>) -> Self {
        Self {
            by: Some(by),
            bytes,
            classes,
            refused: Vec::new(),
        }
    }

    /// Asks each runtime of these processes for a full collection, then counts the objects that survive it, within
    /// `patience` for all.
    pub fn after_collection(pids: &[i32], detail: Detail, patience: Duration) -> Self {
        let mut heap = Self::default();
        let until = Instant::now() + patience;
        for &pid in pids {
            let left = || until.saturating_duration_since(Instant::now());
            let of_jvm = jvm::living(pid, left());
            let of_jvm = of_jvm.map(|classes| classes.map(|classes| (total(&classes), classes)));
            heap.add(pid, "the JVM", of_jvm);
            heap.add_v8(pid, v8::living(pid, detail, left()));
        }
        heap
    }

    fn add_v8(&mut self, pid: i32, answer: Option<Result<Survivors, String>>) {
        let without_classes = |why: String| {
            self.refused.push(format!(
                "classes of V8's objects in process {pid} were not counted, because {why}"
            ));
            ObjectCounts::new()
        };
        let answer = answer
            .map(|answer| answer.map(|of| (of.bytes, of.classes.unwrap_or_else(without_classes))));
        self.add(pid, "V8", answer);
    }

    fn add(
        &mut self,
        pid: i32,
        who: &'static str,
        answer: Option<Result<(u64, ObjectCounts), String>>,
    ) {
        match answer {
            None => {}
            Some(Err(why)) => self.refused.push(format!(
                "objects of {who} in process {pid} were not counted, because {why}"
            )),
            Some(Ok((bytes, classes))) => {
                self.by = Some(who);
                self.bytes = self.bytes.saturating_add(bytes);
                for (class, (instances, bytes)) in classes {
                    add_objects(&mut self.classes, class, instances, bytes);
                }
            }
        }
    }

    /// Makes each V8 with an inspector collect its garbage: its buffers lie in malloc's heap, where a census cannot
    /// distinguish garbage. Returns false if one did not.
    pub fn collect_buffers(pids: &[i32], patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let left = || until.saturating_duration_since(Instant::now());
        let mut collected = pids.iter().filter_map(|pid| v8::collect(*pid, left()));
        collected.all(|collected| collected.is_ok())
    }

    /// Returns the runtime that counted and the total bytes of the objects.
    pub fn bytes(&self) -> Option<(&'static str, u64)> {
        Some((self.by?, self.bytes))
    }

    /// Whether the classes were counted.
    pub fn has_classes(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Number of objects of a class, and their bytes.
    pub fn of_class(&self, class: &str) -> (u64, u64) {
        self.classes.get(class).copied().unwrap_or_default()
    }

    /// Classes with more instances than before, those with the most additional bytes first.
    pub fn grown_since(&self, before: &ManagedHeap) -> Vec<String> {
        let more = |class: &String, &(instances, bytes): &(u64, u64)| {
            let (had, had_bytes) = before.of_class(class);
            (instances > had && bytes > had_bytes).then(|| (bytes - had_bytes, class.clone()))
        };
        let mut grown: Vec<_> = self
            .classes
            .iter()
            .filter_map(|(class, counts)| more(class, counts))
            .collect();
        grown.sort_by_key(|(more, _)| std::cmp::Reverse(*more));
        grown.truncate(MANAGED_MAX);
        grown.into_iter().map(|(_, class)| class).collect()
    }
}

/// Bytes of all objects.
fn total(classes: &ObjectCounts) -> u64 {
    let bytes = classes.values().map(|(_, bytes)| *bytes);
    bytes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_classes_the_bytes_count() {
        let mut heap = ManagedHeap::default();
        let of = Survivors {
            bytes: 4711,
            classes: Err("its heap snapshot is too large".into()),
        };
        heap.add_v8(1, Some(Ok(of)));
        assert_eq!(heap.bytes(), Some(("V8", 4711)));
        assert!(!heap.has_classes());
        assert_eq!(heap.refused.len(), 1);
    }

    /// A program may call itself a JVM and say what it likes.
    #[test]
    fn objects_of_any_number_are_added() {
        let text = |class: &str| format!("1: {0} {0} {class}\n", u64::MAX);
        let classes = jvm::parse(&[text("A"), text("B")].concat());
        assert_eq!(total(&classes), u64::MAX);
        let mut heap = ManagedHeap::default();
        for _ in 0..2 {
            heap.add(1, "the JVM", Some(Ok((u64::MAX, classes.clone()))));
        }
        assert_eq!(heap.bytes(), Some(("the JVM", u64::MAX)));
        assert_eq!(heap.of_class("A"), (u64::MAX, u64::MAX));
    }
}
