//! Bytes that held connections use, from the censuses around them.

use super::heap_reader::HeapReader;
use super::held::Held;
use super::moments::NOT_REACHED;
use crate::model::Measured;
use dormouse_census::{self as census, ManagedHeap, Snapshot};

/// Share of what a connection uses that may be hidden by a server's own pools before more connections are opened.
const HIDDEN_SHARE: f64 = 0.05;
const NO_COLLECTION: &str =
    "the server did not collect its garbage within the time limit; --time raises it";
const TOO_FEW: &str = "so few connections take less than the server's other memory varied meanwhile; --time or -n raises their number";
const GARBAGE_WENT: &str = "CPython freed garbage of earlier connections while these were held";

/// Bytes that a connection uses, counted in the allocators.
pub(super) struct UsedBytes {
    /// Right after the handshake.
    pub(super) after_handshake: Measured<f64>,
    /// The part of these that was ever touched.
    pub(super) touched_after_handshake: Measured<f64>,
    /// After an exchange and an idle period.
    pub(super) held: Measured<f64>,
    /// The part of these that is still in use after the connections have closed.
    pub(super) kept: Measured<f64>,
}

/// Two censuses whose difference is what the connections use that were opened in between.
pub(super) struct CensusPair<'a> {
    pub(super) before: &'a Snapshot,
    pub(super) held: &'a Snapshot,
    /// Bytes per connection that the difference hides.
    hidden_bytes: f64,
}

impl Held {
    /// Bytes that a connection uses.
    pub(super) fn used(&self, heap: &HeapReader) -> UsedBytes {
        let opened = self.pair_since_before(heap, self.moments.first_of(&["4n", "2n", "n"]));
        // Objects after the handshakes, where they were counted separately.
        let objects = self.objects.opened.as_ref().or(self.objects.held.as_ref());
        let after_handshake = self.used_bytes(&opened, objects);
        let of_held = self.pair_of_held(heap);
        let held = self.used_bytes(&of_held, self.objects.held.as_ref());
        UsedBytes {
            kept: held.value().map_or_else(
                || Measured::not("the bytes in use are not known"),
                |_| self.kept_bytes(heap, &of_held).into(),
            ),
            touched_after_handshake: match (&after_handshake, &opened) {
                (Measured::Value(used), Ok(pair)) => {
                    Measured::Value(used - census::untouched_per_connection(pair.before, pair.held))
                }
                (used, _) => used.clone(),
            },
            after_handshake,
            held,
        }
    }

    /// Bytes per connection that are still in use after the connections have closed.
    fn kept_bytes(
        &self,
        heap: &HeapReader,
        of_held: &Result<CensusPair<'_>, String>,
    ) -> Result<f64, String> {
        let pair = of_held.as_ref().map_err(String::clone)?;
        if heap.collects {
            return Err("closed connections may be garbage that was not collected yet".into());
        }
        if let Some(early) = &self.closed_early {
            return Err(early.clone());
        }
        let closed = self.moments.snapshot("after_close").ok_or(NOT_REACHED)?;
        pair.before.ensure_comparable(closed)?;
        if pair.before.connections > 0 {
            return Err(GARBAGE_WENT.into());
        }
        let more = closed.used_bytes().saturating_sub(pair.before.used_bytes());
        Ok(more as f64 / pair.held.connections.max(1) as f64)
    }

    /// Whether CPython has freed old garbage since the last connections were opened. Garbage that it frees while they are
    /// opened shows in the halves.
    pub(super) fn is_garbage_lost(&self) -> bool {
        let opened = self.moments.first_of(&["before_requests", "4n", "2n", "n"]);
        let both = opened.zip(self.moments.snapshot("after_quiet"));
        both.is_some_and(|(opened, quiet)| opened.lost_garbage_until(quiet))
    }

    /// The censuses whose difference is what held connections use after an exchange.
    pub(super) fn pair_of_held(&self, heap: &HeapReader) -> Result<CensusPair<'_>, String> {
        let pair = |before, held| {
            let both = self
                .moments
                .snapshot(before)
                .zip(self.moments.snapshot(held));
            both.map(|(before, held)| CensusPair {
                before,
                held,
                hidden_bytes: 0.0,
            })
        };
        if self.is_garbage_lost() {
            let again = pair("after_quiet", "again");
            let again = again.filter(|pair| !pair.before.lost_garbage_until(pair.held));
            let why = "there was no time to hold more; --time raises the limit";
            return again.ok_or_else(|| format!("{GARBAGE_WENT}, and {why}"));
        }
        // If the server closed those with a request, the silent ones remain.
        pair("before_requests", "after_quiet")
            .map_or_else(|| self.pair_since_before(heap, self.last_census()), Ok)
    }

    /// This census, and the one before all connections.
    fn pair_since_before<'a>(
        &'a self,
        heap: &HeapReader,
        held: Option<&'a Snapshot>,
    ) -> Result<CensusPair<'a>, String> {
        let both = self.moments.snapshot("before").zip(held);
        let (before, held) = both.ok_or_else(|| self.why_no_census(heap))?;
        Ok(CensusPair {
            before,
            held,
            hidden_bytes: self.hidden_bytes(),
        })
    }

    /// Why there is no census of held connections.
    pub(super) fn why_no_census(&self, heap: &HeapReader) -> String {
        let why = heap.no_census.clone().or_else(|| self.closed_early.clone());
        why.unwrap_or_else(|| NOT_REACHED.into())
    }

    /// Bytes that a connection uses at the time of a census, counted in the allocators.
    fn used_bytes(
        &self,
        pair: &Result<CensusPair<'_>, String>,
        objects: Option<&ManagedHeap>,
    ) -> Measured<f64> {
        let pair = match pair {
            Ok(_) if self.is_uncollected => return Measured::not(NO_COLLECTION),
            Ok(pair) => pair,
            Err(why) => return Measured::not(why.clone()),
        };
        let before = (pair.before, self.objects.none.as_ref());
        let used = census::used_per_connection(before, (pair.held, objects));
        match used.map(|used| used + pair.hidden_bytes) {
            Ok(used) if used <= 0.0 => Measured::not(TOO_FEW),
            used => used.into(),
        }
    }

    /// Bytes per connection in blocks that a server's own pools held before.
    fn hidden_bytes(&self) -> f64 {
        let Some(none) = self.moments.snapshot("before") else {
            return 0.0;
        };
        let steps = [("2n", "4n"), ("n", "2n")];
        let both = |(half, whole)| {
            self.moments
                .snapshot(half)
                .zip(self.moments.snapshot(whole))
        };
        let known = steps.into_iter().find_map(both);
        known.map_or(0.0, |(half, whole)| {
            let later = self.moments.snapshot("after_quiet");
            let later = later.filter(|later| later.connections == whole.connections);
            census::hidden_per_connection([none, half, whole], later)
        })
    }

    /// Additional bytes in the heap with twice N connections, and their number.
    fn heap_of_twice(&self) -> Option<(f64, u64)> {
        let none = self.moments.snapshot("before")?;
        let held = self.moments.snapshot("2n")?;
        let blocks = held.used_bytes().saturating_sub(none.used_bytes());
        Some((blocks as f64, held.connections.max(1)))
    }

    /// Whether so much was hidden that the figure needs more connections.
    pub(super) fn hides_much(&self) -> bool {
        // Pools of blocks hide nothing of the objects that a runtime counts.
        self.heap_of_twice().is_some_and(|(blocks, connections)| {
            self.hidden_bytes() > HIDDEN_SHARE * blocks / connections as f64
        })
    }

    /// Whether most of the memory of the connections lies outside the heaps that a census can walk.
    pub(super) fn explains_little(&self) -> bool {
        let grown = self.moments.grown("2n");
        let is_much = grown / self.connections.max(1) as f64 > 2048.0;
        self.heap_of_twice()
            .is_some_and(|(heap, _)| is_much && heap < grown / 2.0)
    }

    /// The last census while connections were held: after an exchange and an idle period, if the load got so far.
    pub(super) fn last_census(&self) -> Option<&Snapshot> {
        self.moments.first_of(&["after_quiet", "4n", "2n", "n"])
    }
}

#[cfg(test)]
mod tests {
    use super::super::moments::Moments;
    use super::*;
    use dormouse_census::SizeCount;

    /// Size of asyncio's read buffer.
    const BUFFER: u64 = 262_160;

    fn held(counts: &[(&'static str, u64, u64, u64)]) -> Held {
        let snapshot = |&(name, connections, blocks, freed): &(&'static str, u64, u64, u64)| {
            let count = SizeCount {
                blocks,
                ..SizeCount::default()
            };
            let snapshot = Snapshot {
                connections,
                in_use_bytes: blocks * BUFFER,
                sizes: [(BUFFER, count)].into(),
                small: [(64, count)].into(),
                freed_old_objects: Some(freed),
                ..Snapshot::default()
            };
            (name, snapshot)
        };
        Held {
            moments: Moments {
                snapshots: counts.iter().map(snapshot).collect(),
                ..Moments::default()
            },
            ..Held::default()
        }
    }

    fn used(held: &Held) -> UsedBytes {
        held.used(&HeapReader::default())
    }

    /// asyncio kept 293 connections of an earlier audit as garbage, and freed 16,070 objects of them with one collection of
    /// its oldest generation. If that happened after the last connection was opened, the figure was too low by a quarter or
    /// more.
    #[test]
    fn garbage_that_is_freed_after_the_last_connection_was_opened_is_not_counted() {
        let mut counts = vec![
            ("before", 0, 293, 39_666),
            ("n", 250, 543, 39_666),
            ("2n", 500, 793, 39_668),
            ("after_quiet", 500, 500, 55_738),
        ];
        let why = used(&held(&counts)).held;
        let why = why.why_not().unwrap();
        assert!(why.contains("CPython freed garbage"), "{why}");
        counts.push(("again", 750, 750, 55_740));
        assert_eq!(used(&held(&counts)).held, Measured::Value(BUFFER as f64));
        // The census before these connections is one of others that were open.
        let mut closed = counts.clone();
        closed.push(("after_close", 0, 100, 55_741));
        let kept = used(&held(&closed)).kept;
        let why = kept.why_not().unwrap();
        assert!(why.contains("CPython freed garbage"), "{why}");
        // More garbage was freed.
        counts.pop();
        counts.push(("again", 750, 700, 59_000));
        assert!(used(&held(&counts)).held.value().is_none());
    }

    /// Recorded: dnsdist closes idle connections after two seconds. A census of 478 counted the blocks of 239.
    #[test]
    fn a_census_while_the_server_closes_connections_is_dropped() {
        let counts = [("before", 0, 0, 0), ("n", 239, 239, 0), ("2n", 478, 239, 0)];
        let mut held = held(&counts);
        held.closed_early = Some("the server closed 239 of 478 idle connections".into());
        held.moments.forget("2n");
        assert_eq!(used(&held).held, Measured::Value(BUFFER as f64));
        held.moments.forget("n");
        let why = used(&held).held;
        assert!(why.why_not().is_some_and(|why| why.contains("closed 239")));
    }

    #[test]
    fn garbage_that_is_freed_while_connections_are_opened_shows_in_the_halves() {
        let counts = [
            ("before", 0, 293, 39_666),
            ("n", 250, 250, 55_738),
            ("2n", 500, 500, 55_740),
            ("after_quiet", 500, 500, 55_741),
        ];
        let held = held(&counts);
        assert!(!held.is_garbage_lost());
        let used = used(&held).held;
        let used = used.value().unwrap() / BUFFER as f64;
        assert!((used - 1.0).abs() < 0.01, "{used}");
    }

    /// Connections that were held without a request are garbage when others have received a response.
    #[test]
    fn http_connections_are_counted_from_the_garbage_of_the_silent_ones() {
        let counts = [
            ("before", 0, 10, 100),
            ("n", 250, 260, 100),
            ("2n", 500, 510, 100),
            ("before_requests", 0, 510, 100),
            ("after_quiet", 500, 1_010, 101),
        ];
        assert_eq!(used(&held(&counts)).held, Measured::Value(BUFFER as f64));
        // Recorded: uvicorn closes idle connections after five seconds.
        let closed = [counts[0], counts[1], counts[2], counts[3]];
        assert_eq!(used(&held(&closed)).held, Measured::Value(BUFFER as f64));
    }
}
