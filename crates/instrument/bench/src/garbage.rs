//! Garbage of closed connections, in a server whose runtime collects it.
//!
//! Garbage that is not collected yet looks in use. Connections that come and go make garbage, until the runtime collects:
//! Go then collects everything, CPython its youngest objects. CPython collects older ones only when many more objects have
//! grown old.

use std::time::{Duration, Instant};

use crate::session::Session;
use dormouse_census::{Collector, Generations, Snapshot};

/// Garbage for Go's collector: connections per step, and at a time. Go collects while they come, and those of that moment
/// outlive it: one at a time leaves a tenth of the scatter that eight leave.
const GO_CONNECTIONS: u64 = 100;
const GO_LANES: u32 = 1;
/// The same for CPython's, which comes more often: the first connections show whether they make garbage. Then a step is so
/// short that few connections have become garbage after the collection, before a census.
const PYTHON_FIRST: u64 = 20;
const PYTHON_STEP: u64 = 2;
const PYTHON_LANES: u32 = 2;

impl Session<'_> {
    /// Waits until the server's garbage has been collected, where a census counts what outlived the last collection.
    /// Connections that come and go, beside `alive` that are held, make garbage, for at most as long as `patience`.
    /// Returns false if what the census would count may be garbage.
    pub fn await_collection(&mut self, alive: u64, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        match self.collector() {
            None => true,
            Some(Collector::Go { collections }) => self.await_go(collections, alive, until),
            // Garbage that is collected while connections are held is corrected for.
            Some(Collector::Python(before)) => self.await_python(before, until) || alive > 0,
        }
    }

    /// Go collects when its heap has grown by the amount that survived the last collection, or every two minutes. What
    /// became garbage during a collection outlives it: so the second one counts, except beside held connections. The
    /// first one finds those alive, and the little garbage of that moment does not matter beside them.
    fn await_go(&mut self, before: u64, alive: u64, until: Instant) -> bool {
        let wanted = before.saturating_add(if alive > 0 { 1 } else { 2 });
        let has_collected = |of: &Self| match of.collector() {
            Some(Collector::Go { collections }) => collections >= wanted,
            _ => true,
        };
        while !has_collected(self) && Instant::now() < until && !self.is_over() {
            if self.cycle_beside(GO_CONNECTIONS, GO_LANES).is_err() {
                return false;
            }
        }
        // Sweeping follows marking.
        self.pause("after a collection", Duration::from_millis(100), alive);
        has_collected(self)
    }

    /// CPython collects young objects when there are 700 more of them. A server whose connections leave no cycles of
    /// references makes no garbage, and nothing is waited for. With few connections at a time, few of them are open
    /// during the collection and outlive it.
    fn await_python(&mut self, mut last: Generations, until: Instant) -> bool {
        let mut connections = PYTHON_FIRST;
        while Instant::now() < until && !self.is_over() {
            let made = self.cycle_beside(connections, PYTHON_LANES);
            let (Ok(_), Some(Collector::Python(now))) = (made, self.collector()) else {
                return false;
            };
            if is_collected(last, now, connections) {
                return true;
            }
            (last, connections) = (now, PYTHON_STEP);
        }
        false
    }

    /// Progress of the collector in the server; `None` where there is none that can be read.
    pub fn collector(&self) -> Option<Collector> {
        let pids = self.server.as_ref()?.tree.pids().ok()?;
        Collector::of(&pids)
    }

    /// Counts the blocks that the server uses now.
    ///
    /// # Errors
    /// In words: why it can't be done.
    pub fn census(&self, alive: u64) -> Result<Snapshot, String> {
        let server = self.server.as_ref();
        let pids = server.and_then(|server| server.tree.pids().ok());
        dormouse_census::take(&pids.unwrap_or_default(), alive)
    }
}

/// Whether CPython has collected the garbage of connections, of which the last step had this many.
fn is_collected(before: Generations, now: Generations, connections: u64) -> bool {
    if now.collections > before.collections {
        // Of a long step, many connections may have become garbage after the collection.
        return connections <= PYTHON_STEP;
    }
    let makes_garbage = now.young >= before.young.saturating_add(connections);
    !makes_garbage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(collections: u64, young: u64) -> Generations {
        Generations {
            collections,
            young,
            full_collections: 0,
            freed_old: 0,
        }
    }

    /// Up to 20 connections, each with a buffer of 256 kB, were garbage when a census counted asyncio's blocks: three audits
    /// differed by 6 %.
    #[test]
    fn a_collection_counts_only_if_few_connections_came_after_it() {
        // Collected at some point of the first step, then at the end of a short one.
        assert!(!is_collected(
            python(40, 300),
            python(41, 500),
            PYTHON_FIRST
        ));
        assert!(!is_collected(python(41, 500), python(41, 640), PYTHON_STEP));
        assert!(is_collected(python(41, 640), python(42, 80), PYTHON_STEP));
    }

    #[test]
    fn a_server_without_cycles_of_references_makes_no_garbage() {
        assert!(is_collected(python(40, 300), python(40, 303), PYTHON_FIRST));
        assert!(is_collected(python(40, 300), python(40, 300), PYTHON_STEP));
        // A collection that other work caused.
        assert!(!is_collected(python(40, 690), python(41, 3), PYTHON_FIRST));
        assert!(is_collected(python(41, 3), python(41, 4), PYTHON_STEP));
    }
}
