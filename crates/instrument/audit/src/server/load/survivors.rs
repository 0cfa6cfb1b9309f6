//! Objects of garbage-collected runtimes that survive a collection, from round to round.
//!
//! The memory of such a runtime grows until it collects, which is not a leak: only what survives can be one. So the audit
//! makes the runtime collect after each round. If the runtime cannot be asked, the audit makes enough rounds for it to
//! collect by itself.

use crate::model::{ClassRounds, CollectedPoint, CollectedRounds};
use dormouse_census::ManagedHeap;
use dormouse_measure::{Growth, Verdict};

/// Readings after each round.
#[derive(Default)]
pub(super) struct Survivors {
    points: Vec<CollectedPoint>,
    /// The objects, with the number of the round.
    heaps: Vec<(u32, ManagedHeap)>,
}

impl Survivors {
    /// Adds the objects after the next round.
    pub(super) fn add(&mut self, point: CollectedPoint, heap: ManagedHeap) {
        self.points.push(point);
        self.heaps.push((self.round(), heap));
    }

    /// Whether the objects grow, and their classes after the last round are not known.
    pub(super) fn lacks_classes(&self) -> bool {
        let living: Option<Vec<u64>> = self.points.iter().map(|point| point.living_bytes).collect();
        let grows = |living: Vec<u64>| Growth::judge(&living, 1).verdict != Verdict::NoGrowth;
        let last = self.heaps.last();
        last.is_some_and(|(_, heap)| !heap.has_classes()) && living.is_some_and(grows)
    }

    /// Adds the classes after the last round.
    pub(super) fn add_classes(&mut self, heap: ManagedHeap) {
        self.heaps.push((self.round(), heap));
    }

    /// Number of the last round.
    fn round(&self) -> u32 {
        u32::try_from(self.points.len()).unwrap_or(u32::MAX)
    }

    /// The readings, with the classes that grew most; `None` without any.
    pub(super) fn over_rounds(self, connections_per_round: u64) -> Option<CollectedRounds> {
        let by = self.heaps.last().and_then(|(_, heap)| heap.bytes())?.0;
        Some(CollectedRounds {
            by: Some(by.to_owned()),
            classes: self.classes(),
            points: self.points,
            connections_per_round,
        })
    }

    fn classes(&self) -> Vec<ClassRounds> {
        // The first round includes one-time setup.
        let later = self.heaps.iter().filter(|(round, _)| *round > 1);
        let counted: Vec<_> = later.filter(|(_, heap)| heap.has_classes()).collect();
        let (Some((_, first)), Some((_, last))) = (counted.first(), counted.last()) else {
            return Vec::new();
        };
        let of = |class: String| {
            let rounds = counted.iter().map(|(round, heap)| {
                let (objects, bytes) = heap.of_class(&class);
                (*round, objects, bytes)
            });
            ClassRounds {
                rounds: rounds.collect(),
                class,
            }
        };
        last.grown_since(first).into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn heap(bytes: u64, classes: &[(&str, u64)]) -> ManagedHeap {
        let class =
            |(class, objects): &(&str, u64)| ((*class).to_owned(), (*objects, 16 * objects));
        ManagedHeap::counted("V8", bytes, BTreeMap::from_iter(classes.iter().map(class)))
    }

    fn after(bytes: [u64; 5]) -> Survivors {
        let mut survivors = Survivors::default();
        for (round, bytes) in (1..).zip(bytes) {
            let classes: &[_] = if round == 2 {
                &[("TLSSocket", 300), ("Map", 40)]
            } else {
                &[]
            };
            let point = CollectedPoint {
                pss_bytes: 100_000_000,
                living_bytes: Some(bytes),
                in_use_bytes: None,
            };
            survivors.add(point, heap(bytes, classes));
        }
        survivors
    }

    #[test]
    fn the_classes_after_the_last_round_name_what_grows() {
        let mut survivors = after([5_000_000, 6_000_000, 7_000_000, 8_000_000, 9_000_000]);
        assert!(survivors.lacks_classes());
        survivors.add_classes(heap(9_000_000, &[("TLSSocket", 1_050), ("Map", 40)]));
        let rounds = survivors.over_rounds(250).unwrap();
        assert_eq!((rounds.by.as_deref(), rounds.points.len()), (Some("V8"), 5));
        let [class] = &*rounds.classes else {
            panic!("{:?}", rounds.classes);
        };
        assert_eq!(class.class, "TLSSocket");
        assert_eq!(class.rounds, [(2, 300, 4_800), (5, 1_050, 16_800)]);
    }

    #[test]
    fn a_heap_that_does_not_grow_needs_no_classes() {
        assert!(!after([5_000_000; 5]).lacks_classes());
        assert!(Survivors::default().over_rounds(250).is_none());
    }
}
