//! Progress of a runtime's garbage collector, read from outside.
//!
//! Garbage that is not collected yet looks in use. A census therefore waits for a collection, and this module tells
//! when one has happened.

use crate::{go, python};

/// Progress of a garbage collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collector {
    /// Go's, which collects when the heap has grown by the amount that survived the last collection.
    Go {
        /// Collections finished.
        collections: u64,
    },
    /// CPython's, which collects cycles of references among young objects when there are 700 more of them.
    Python {
        /// Collections of the youngest objects.
        collections: u64,
        /// Objects that were made and not freed since the last one.
        young: u64,
    },
}

impl Collector {
    /// Returns the collector that is furthest behind among these processes; `None` if they have none that can be read.
    pub fn of(pids: &[i32]) -> Option<Self> {
        let all = pids.iter().filter_map(|pid| Self::of_process(*pid));
        all.min_by_key(|one| one.collections())
    }

    fn of_process(pid: i32) -> Option<Self> {
        let go = go::collections(pid).map(|collections| Self::Go { collections });
        go.or_else(|| {
            let generations = python::collector(pid)?;
            Some(Self::Python {
                collections: generations.collections,
                young: generations.young,
            })
        })
    }

    /// Number of collections so far.
    pub fn collections(self) -> u64 {
        match self {
            Self::Go { collections } | Self::Python { collections, .. } => collections,
        }
    }

    /// Objects since the last collection, where the collector counts them.
    pub fn young(self) -> u64 {
        match self {
            Self::Go { .. } => 0,
            Self::Python { young, .. } => young,
        }
    }
}
