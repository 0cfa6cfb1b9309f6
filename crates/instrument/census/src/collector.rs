//! Progress of a runtime's garbage collector, read from outside.
//!
//! Garbage that is not collected yet looks in use. A census therefore waits for a collection, and this module tells
//! when one has happened.

pub use crate::python::Generations;
use crate::time_limit::{PATIENCE, limited};
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
    Python(Generations),
}

impl Collector {
    /// Returns the progress in these processes: of Go's collector that is furthest behind, or of CPython's together.
    /// `None` if they have none that can be read.
    pub fn of(pids: &[i32]) -> Option<Self> {
        let pids = pids.to_vec();
        limited(PATIENCE, move || Self::of_now(&pids)).ok()?
    }

    fn of_now(pids: &[i32]) -> Option<Self> {
        let all = pids.iter().filter_map(|pid| Self::of_process(*pid));
        all.reduce(|one, other| match (one, other) {
            (
                Self::Go { collections },
                Self::Go {
                    collections: of_other,
                },
            ) => Self::Go {
                collections: collections.min(of_other),
            },
            (Self::Python(one), Self::Python(other)) => Self::Python(one.with(other)),
            (go @ Self::Go { .. }, _) | (_, go) => go,
        })
    }

    fn of_process(pid: i32) -> Option<Self> {
        let go = go::collections(pid).map(|collections| Self::Go { collections });
        go.or_else(|| python::collector(pid).map(Self::Python))
    }
}
