//! Bytes that a connection uses: the difference between two censuses, if these count all relevant memory.

use std::collections::BTreeMap;

use crate::managed::ManagedHeap;
use crate::snapshot::{SizeCount, Snapshot};

/// Unreadable memory per connection, in bytes, above which the readable blocks say too little.
const UNREAD_BYTES: f64 = 512.0;
/// The same limit as a share of the readable bytes.
const UNREAD_SHARE: f64 = 0.25;
/// Difference in blocks per connection between the two halves above which it counts as clear; and in blocks, because
/// with few connections a single block makes a difference.
const CLEAR: f64 = 0.03;
const CLEAR_BLOCKS: f64 = 4.0;
/// Blocks per connection from which blocks of a size belong to connections.
const OF_CONNECTION: f64 = 0.2;
/// Share of the blocks of a size that a later census of the same connections still has, if they belong to connections.
const STAYS: f64 = 0.9;
/// Memory in unknown mappings, as a multiple of the counted memory, above which the counted part says too little.
const UNREAD_TIMES: u64 = 4;

/// Bytes per connection that the difference between no and all connections hides: blocks that a program keeps free for
/// later connections in its own pools, as HAProxy does, and garbage that was not collected yet. Both look in use before
/// the connections are opened, and then the first half of the connections takes fewer blocks of a size than the second.
/// `later`: a census of the same connections. Blocks that are gone by then belonged to something else, such as a JVM's
/// compiler.
pub fn hidden_per_connection([none, n, two_n]: [&Snapshot; 3], later: Option<&Snapshot>) -> f64 {
    let of_heap = |of| hidden([none, n, two_n], later, of);
    of_heap(|of| &of.sizes) + of_heap(|of| &of.small)
}

fn hidden(
    [none, n, two_n]: [&Snapshot; 3],
    later: Option<&Snapshot>,
    of: fn(&Snapshot) -> &BTreeMap<u64, SizeCount>,
) -> f64 {
    let step = |from: &Snapshot, to: &Snapshot| {
        to.connections.saturating_sub(from.connections).max(1) as f64
    };
    let (first, second) = (step(none, n), step(n, two_n));
    let blocks =
        |at: &Snapshot, size: &u64| of(at).get(size).map_or(0.0, |count| count.blocks as f64);
    let clear = CLEAR.max(CLEAR_BLOCKS / first.min(second));
    // CPython may also collect garbage while the second half is opened.
    let is_collecting = !two_n.small.is_empty();
    let of_size = |size: &u64| {
        let of_first = (blocks(n, size) - blocks(none, size)) / first;
        let of_second = (blocks(two_n, size) - blocks(n, size)) / second;
        let overall = (blocks(two_n, size) - blocks(none, size)) / (first + second);
        let most = if is_collecting {
            of_first.max(of_second)
        } else {
            of_second
        };
        let is_clear = most > of_first.min(of_second) + clear && most > OF_CONNECTION;
        let stays = later.is_none_or(|later| blocks(later, size) >= STAYS * blocks(two_n, size));
        if is_clear && stays {
            (most - overall) * *size as f64
        } else {
            0.0
        }
    };
    of(two_n).keys().map(of_size).sum()
}

/// Bytes per connection in malloc blocks that were never touched, and so take no memory: Node.js allocates a buffer of
/// 64 kB for each connection and fills a few kB of it.
pub fn untouched_per_connection(before: &Snapshot, held: &Snapshot) -> f64 {
    let untouched = |of: &Snapshot| -> f64 {
        let sizes = of.sizes.iter();
        sizes
            .map(|(size, count)| {
                size.saturating_mul(count.blocks)
                    .saturating_sub(count.resident_bytes) as f64
            })
            .sum()
    };
    let connections = held.connections.saturating_sub(before.connections).max(1) as f64;
    (untouched(held) - untouched(before)) / connections
}

/// Returns the bytes that each connection uses: the difference between `held` and `before`. The second member of each
/// pair holds the objects that a runtime counts.
///
/// # Errors
/// If some memory could not be read; the text says which.
pub fn used_per_connection(
    (before, objects_before): (&Snapshot, Option<&ManagedHeap>),
    (held, objects): (&Snapshot, Option<&ManagedHeap>),
) -> Result<f64, String> {
    before.ensure_comparable(held)?;
    let connections = held.connections.saturating_sub(before.connections).max(1) as f64;
    let more = |of: fn(&Snapshot) -> u64| (of(held) as f64 - of(before) as f64) / connections;
    let blocks = more(Snapshot::used_bytes);
    let bytes = |heap: Option<&ManagedHeap>| heap.and_then(ManagedHeap::bytes);
    if let (Some((_, before)), Some((_, held))) = (bytes(objects_before), bytes(objects)) {
        return Ok(blocks + (held as f64 - before as f64) / connections);
    }
    let whose: Vec<_> = held.unread.iter().map(String::as_str).collect();
    if !whose.is_empty() {
        let whose = whose.join(" and ");
        // Other memory of the server may have been freed meanwhile.
        let alone = if blocks >= 1.0 {
            format!("; blocks of malloc alone are {blocks:.0} bytes per connection")
        } else {
            String::new()
        };
        return Err(format!("memory of {whose} cannot be read{alone}"));
    }
    let unread = more(|of| of.other_bytes);
    if unread > UNREAD_BYTES && unread > UNREAD_SHARE * blocks {
        return Err(format!(
            "{unread:.0} bytes per connection lie in mappings of an unknown allocator; blocks of known ones are {blocks:.0}"
        ));
    }
    if held.other_bytes > UNREAD_TIMES.saturating_mul(held.used_bytes()) {
        return Err("most of the memory lies in mappings of an unknown allocator".into());
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(connections: u64, in_use_bytes: u64, other_bytes: u64) -> Snapshot {
        Snapshot {
            connections,
            in_use_bytes,
            other_bytes,
            ..Snapshot::default()
        }
    }

    fn used(before: &Snapshot, held: &Snapshot) -> Result<f64, String> {
        used_per_connection((before, None), (held, None))
    }

    #[test]
    fn free_heap_that_was_there_before_changes_nothing() {
        let before = Snapshot {
            free_bytes: 20_000_000,
            ..snapshot(0, 5_000_000, 0)
        };
        let held = snapshot(1000, 20_000_000, 0);
        assert_eq!(used(&before, &held), Ok(15_000.0));
    }

    #[test]
    fn blocks_of_a_pool_show_in_the_second_half() {
        let with = |connections, blocks| {
            let mut snapshot = snapshot(connections, 0, 0);
            let count = crate::SizeCount {
                blocks,
                ..Default::default()
            };
            snapshot.sizes.insert(1008, count);
            snapshot
        };
        // A pool with 70 free objects: the first 100 connections took only 30 new blocks.
        let hidden = hidden_per_connection([&with(0, 80), &with(100, 110), &with(200, 210)], None);
        assert!((hidden - 0.35 * 1008.0).abs() < 1.0, "{hidden}");
        let none = hidden_per_connection([&with(0, 0), &with(100, 100), &with(200, 201)], None);
        assert_eq!(none, 0.0);
        // Recorded: Jetty, beside whose second half of the connections a compiler of the JVM worked, which had 14 MB.
        let compiler = [&with(0, 80), &with(100, 80), &with(200, 1_080)];
        assert!(hidden_per_connection(compiler, None) > 1_000.0);
        assert_eq!(hidden_per_connection(compiler, Some(&with(200, 85))), 0.0);
    }

    /// Recorded: Node.js, 1,000 connections with a buffer of 64 kB each, of which 8 kB were filled.
    #[test]
    fn memory_that_was_never_touched_is_known() {
        let with = |connections, blocks, resident_bytes| {
            let mut snapshot = snapshot(connections, 0, 0);
            let count = SizeCount {
                blocks,
                resident_bytes,
                ..Default::default()
            };
            snapshot.sizes.insert(65_552, count);
            snapshot
        };
        let untouched =
            untouched_per_connection(&with(0, 2, 131_104), &with(1000, 1002, 8_131_104));
        assert!((untouched - 57_552.0).abs() < 1.0, "{untouched}");
    }

    /// Recorded: asyncio keeps closed connections in cycles of references. Eight of them, with a buffer of 256 kB each,
    /// were collected while the next connections were opened, and 16.8 % of the memory seemed to be missing.
    #[test]
    fn garbage_before_the_connections_hides_nothing() {
        let with = |connections, blocks| {
            let mut snapshot = snapshot(connections, 0, 0);
            let count = SizeCount {
                blocks,
                ..Default::default()
            };
            snapshot.sizes.insert(262_160, count);
            snapshot.small.insert(64, count);
            snapshot
        };
        let block = 262_160.0 + 64.0;
        // Collected while the first half was opened, or the second.
        for counts in [[8, 48, 96], [8, 56, 96]] {
            let [none, n, two_n] = counts;
            let used = f64::from(two_n - none) / 96.0 * block;
            let [none, n, two_n] = [(0, none), (48, n), (96, two_n)]
                .map(|(connections, blocks)| with(connections, blocks as u64));
            let hidden = hidden_per_connection([&none, &n, &two_n], None);
            assert!((used + hidden - block).abs() < 1.0, "{used} + {hidden}");
        }
        // One block more or less is no garbage.
        assert_eq!(
            hidden_per_connection([&with(0, 0), &with(48, 47), &with(96, 96)], None),
            0.0
        );
    }

    /// One of two workers changed its heap during each attempt to read it.
    #[test]
    fn a_process_that_was_counted_once_only_makes_no_difference() {
        let before = snapshot(0, 5_000_000, 0);
        let held = Snapshot {
            uncounted: 1,
            refused: vec!["process 7: its heap changed".into()],
            ..snapshot(1000, 20_000_000, 0)
        };
        let why = used(&before, &held).unwrap_err();
        assert!(why.contains("process 7"), "{why}");
        let both = Snapshot {
            uncounted: 1,
            ..before
        };
        assert_eq!(used(&both, &held), Ok(15_000.0));
    }

    #[test]
    fn unreadable_memory_is_not_reported_as_zero() {
        let before = snapshot(0, 5_000_000, 0);
        let mapped = used(&before, &snapshot(1000, 6_000_000, 30_000_000));
        assert!(mapped.unwrap_err().contains("unknown allocator"));
        let mut node = snapshot(1000, 6_000_000, 0);
        node.unread.insert("V8".into());
        assert!(used(&before, &node).unwrap_err().contains("memory of V8"));
    }
}
