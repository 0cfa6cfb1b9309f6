//! Bytes that a connection uses: the difference between two censuses, if these count all relevant memory.

use crate::managed::ManagedHeap;
use crate::snapshot::Snapshot;

/// Unreadable memory per connection, in bytes, above which the readable blocks say too little.
const UNREAD_BYTES: f64 = 512.0;
/// The same limit as a share of the readable bytes.
const UNREAD_SHARE: f64 = 0.25;
/// Difference in blocks per connection between the two halves above which it counts as clear.
const CLEAR: f64 = 0.2;
/// Memory in unknown mappings, as a multiple of the counted memory, above which the counted part says too little.
const UNREAD_TIMES: u64 = 4;

/// Bytes per connection in blocks that a program keeps free for later connections in its own pools, as HAProxy does.
/// They look in use before the connections are opened. They show where the second half of the connections took more
/// blocks of a size than the first half, which reused the free ones.
pub fn hidden_per_connection(none: &Snapshot, n: &Snapshot, two_n: &Snapshot) -> f64 {
    let step = |from: &Snapshot, to: &Snapshot| {
        to.connections.saturating_sub(from.connections).max(1) as f64
    };
    let (first, second) = (step(none, n), step(n, two_n));
    let blocks =
        |of: &Snapshot, size: &u64| of.sizes.get(size).map_or(0.0, |count| count.blocks as f64);
    let hidden = two_n.sizes.keys().map(|size| {
        let of_first = (blocks(n, size) - blocks(none, size)) / first;
        let of_second = (blocks(two_n, size) - blocks(n, size)) / second;
        let overall = (blocks(two_n, size) - blocks(none, size)) / (first + second);
        let is_clear = of_second > of_first + CLEAR && of_second > CLEAR;
        if is_clear {
            (of_second - overall) * *size as f64
        } else {
            0.0
        }
    });
    hidden.sum()
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
        return Err(format!(
            "memory of {whose} cannot be read; blocks of malloc alone are {blocks:.0} bytes per connection"
        ));
    }
    let unread = more(|of| of.other_bytes);
    if unread > UNREAD_BYTES && unread > UNREAD_SHARE * blocks {
        return Err(format!(
            "{unread:.0} bytes per connection lie in mappings of an unknown allocator; blocks of known ones are {blocks:.0}"
        ));
    }
    if held.other_bytes > UNREAD_TIMES * held.used_bytes() {
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
        let hidden = hidden_per_connection(&with(0, 80), &with(100, 110), &with(200, 210));
        assert!((hidden - 0.35 * 1008.0).abs() < 1.0, "{hidden}");
        let none = hidden_per_connection(&with(0, 0), &with(100, 100), &with(200, 201));
        assert_eq!(none, 0.0);
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
