//! The heap of glibc's malloc, walked from outside.
//!
//! A chunk begins with two words: the size of the chunk before it (if that is free), and its own
//! size with three flags in the lowest bits. Chunks lie side by side, so the size leads to the next
//! one, whose flag `PREV_INUSE` tells whether this one is in use. Three kinds of places hold chunks:
//!
//! - the main arena: the `[heap]` mapping, from its first byte to the top chunk;
//! - other arenas: mappings which begin at a multiple of 64 MiB with a `heap_info`, in the first of
//!   which lies the arena's `malloc_state`;
//! - large chunks with mappings of their own, flagged `IS_MMAPPED`.
//!
//! Chunks in the per-thread cache and in fast bins count as in use; they are few. The process
//! is not stopped meanwhile: a walk that does not end exactly at the end of its heap is tried again.
//!
//! Whose memory it is decides what stands in it. So sizes that are read there choose nothing but what is
//! counted, and bound nothing.

use dormouse_measure::Machine;

use super::process::{ProcessMemory, Region, regions};
use super::snapshot::Snapshot;
use std::ops::Range;

const PREV_INUSE: u64 = 1;
const IS_MMAPPED: u64 = 2;
const FLAGS: u64 = 7;
const ALIGN: u64 = 16;
const CHUNK_MIN: u64 = 32;
const HEAP_ALIGN: u64 = 64 << 20;
/// Most bytes of `heap_info` and `malloc_state` before the first chunk of a non-main heap.
const HEAD_MAX: u64 = 4096;
/// Mappings larger than this are arenas of the program, not malloc's large chunks.
const MAPPED_MAX: u64 = 1 << 32;
/// Bytes of one heap that are copied at most; half of the memory that is available, if that is less.
const HEAP_MAX: u64 = 8 << 30;
const TRIES: usize = 4;

/// Walks all heaps of a process.
pub(super) fn walk(pid: i32) -> Result<Snapshot, String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match walk_once(pid) {
            Ok(snapshot) => return Ok(snapshot),
            Err(why) => last = why,
        }
    }
    Err(last)
}

fn walk_once(pid: i32) -> Result<Snapshot, String> {
    let regions = regions(pid)?;
    let reader = ProcessMemory::open(pid)?;
    let mut snapshot = Snapshot::default();
    let mut damaged = false;
    for region in regions.iter().filter(|region| region.anonymous) {
        if region.name == "[heap]" {
            let heap = Heap::read(&reader, region.start, region.end)?;
            damaged |= heap.walk(0, &mut snapshot).is_none();
        } else if region.name.is_empty() && region.start.is_multiple_of(HEAP_ALIGN) {
            arena(&reader, region, &mut snapshot)?;
        } else if region.name.is_empty() && region.len() <= MAPPED_MAX {
            mapped(&reader, region, &mut snapshot)?;
        }
    }
    if damaged {
        return Err("its heap is not that of glibc's malloc, or changed all the time".into());
    }
    Ok(snapshot)
}

/// Walks bytes that are all resident: blocks in use.
pub(super) fn walk_bytes(bytes: &[u8]) -> u64 {
    const PAGE: u64 = 4096;
    let heap = Heap {
        bytes: bytes.to_vec(),
        resident: vec![true; bytes.len().div_ceil(PAGE as usize)],
        page: PAGE,
    };
    let mut found = Snapshot::default();
    heap.walk(0, &mut found);
    found.sizes.values().map(|count| count.blocks).sum()
}

/// A stretch of memory in which chunks lie.
struct Heap {
    bytes: Vec<u8>,
    resident: Vec<bool>,
    page: u64,
}

impl Heap {
    /// Copies a page-aligned range.
    fn read(reader: &ProcessMemory, start: u64, end: u64) -> Result<Self, String> {
        let (page, len) = (reader.page(), end - start);
        if len > HEAP_MAX.min(Machine::available_bytes() / 2) {
            let mib = len >> 20;
            return Err(format!(
                "a heap of {mib} MiB is too large to be walked on this machine"
            ));
        }
        let mut heap = Self {
            bytes: vec![0; usize::try_from(len).unwrap_or(0)],
            resident: vec![false; usize::try_from(len / page).unwrap_or(0)],
            page,
        };
        let mut failed = None;
        reader.resident(start, end, |run| {
            let place = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
            let (from, to) = (place(run.start), place(run.end));
            let pages = from / page as usize..to / page as usize;
            if let Some(resident) = heap.resident.get_mut(pages) {
                resident.fill(true);
            }
            if let Some(room) = heap.bytes.get_mut(from..to) {
                let read = reader.read_pages(run.start, room);
                failed = failed.take().or(read.err());
            }
        })?;
        failed.map_or(Ok(heap), Err)
    }

    fn word(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = self.bytes.get(at..at + 8)?;
        Some(u64::from_ne_bytes(*bytes.first_chunk()?))
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Counts the chunks from `start` on; `None`, and nothing counted, when they do not end where
    /// the heap ends.
    fn walk(&self, start: u64, into: &mut Snapshot) -> Option<()> {
        let mut found = Snapshot {
            heap_bytes: self.len(),
            ..Snapshot::default()
        };
        let mut at = start;
        loop {
            let size = self.word(at + 8)? & !FLAGS;
            let next = at.checked_add(size)?;
            if size < CHUNK_MIN || !size.is_multiple_of(ALIGN) || next > self.len() {
                // A page or less behind the top chunk of a heap that is not page-aligned is no error.
                return None;
            }
            if next == self.len() {
                // The top chunk: free, and mostly not resident.
                found.free_bytes += self.resident_in(at, next);
                break;
            }
            // Heaps of arenas end with two fence posts of 16 bytes; so does a main heap with a hole.
            let next_size = self.word(next + 8)?;
            if next_size & PREV_INUSE != 0 {
                found.in_use_bytes += size;
                let count = found.sizes.entry(size).or_default();
                count.blocks += 1;
                count.zero_bytes += self.zeros(at + 16, next + 8);
                count.resident_bytes += self.resident_in(at, next);
            } else {
                found.free_bytes += self.resident_in(at, next);
            }
            if next_size & !FLAGS < CHUNK_MIN {
                // Fence posts: the rest is no heap of malloc's.
                break;
            }
            at = next;
        }
        into.add(&found);
        Some(())
    }

    /// Bytes of whole words that are zero in a range.
    fn zeros(&self, from: u64, to: u64) -> u64 {
        let of = |piece: Range<u64>, is_resident: bool| {
            if !is_resident {
                return piece.end - piece.start;
            }
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            let bytes = self.bytes.get(place(piece.start)..place(piece.end));
            let words = bytes.unwrap_or_default().chunks_exact(8);
            words.filter(|word| **word == [0; 8]).count() as u64 * 8
        };
        self.pieces(from..to)
            .map(|(piece, here)| of(piece, here))
            .sum()
    }

    /// Resident bytes of a range.
    fn resident_in(&self, from: u64, to: u64) -> u64 {
        let resident = self.pieces(from..to).filter(|(_, here)| *here);
        resident.map(|(piece, _)| piece.end - piece.start).sum()
    }

    /// The parts of a range that lie in one page each, and whether that page is resident.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, bool)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let piece = at..((at / self.page + 1) * self.page).min(range.end);
            if piece.is_empty() {
                return None;
            }
            let index = usize::try_from(at / self.page).unwrap_or(usize::MAX);
            at = piece.end;
            Some((piece, self.resident.get(index).copied().unwrap_or(false)))
        })
    }
}

/// A heap of an arena other than the main one.
fn arena(reader: &ProcessMemory, region: &Region, into: &mut Snapshot) -> Result<(), String> {
    let Ok(head) = Heap::read(reader, region.start, region.start + reader.page()) else {
        return Ok(());
    };
    let (Some(arena), Some(size)) = (head.word(0), head.word(16)) else {
        return Ok(());
    };
    // `ar_ptr` points into a mapping of the same kind; `size` is how much of it is used.
    let fits = size.is_multiple_of(reader.page()) && size <= region.len().min(HEAP_ALIGN);
    let plausible = arena.is_multiple_of(ALIGN) && fits;
    if !plausible || size == 0 || arena == 0 {
        return Ok(());
    }
    let heap = Heap::read(reader, region.start, region.start + size)?;
    let begins = if arena > region.start && arena < region.start + HEAD_MAX {
        arena - region.start
    } else {
        CHUNK_MIN
    };
    // Where exactly the first chunk lies depends on the version: behind `malloc_state`.
    let first = (begins..begins + HEAD_MAX)
        .step_by(ALIGN as usize)
        .find(|&at| {
            let first_is_marked = heap.word(at + 8).is_some_and(|size| size & PREV_INUSE != 0);
            first_is_marked && heap.walk(at, &mut Snapshot::default()).is_some()
        });
    if let Some(first) = first {
        heap.walk(first, into);
    }
    Ok(())
}

/// Large chunks with mappings of their own; the kernel joins neighbours into one region.
fn mapped(reader: &ProcessMemory, region: &Region, into: &mut Snapshot) -> Result<(), String> {
    let mut at = region.start;
    while at < region.end {
        let Ok(head) = Heap::read(reader, at, at + reader.page()) else {
            return Ok(());
        };
        let (Some(before), Some(size)) = (head.word(0), head.word(8)) else {
            return Ok(());
        };
        let length = size & !FLAGS;
        let fits = length >= reader.page() && length <= region.end - at;
        if before != 0
            || size & FLAGS != IS_MMAPPED
            || !fits
            || !length.is_multiple_of(reader.page())
        {
            return Ok(());
        }
        let Ok(chunk) = Heap::read(reader, at, at + length) else {
            return Ok(());
        };
        let resident = chunk.resident.iter().filter(|r| **r).count() as u64 * reader.page();
        into.heap_bytes += resident;
        into.in_use_bytes += resident;
        let count = into.sizes.entry(length).or_default();
        count.blocks += 1;
        count.zero_bytes += chunk.zeros(16, length);
        count.resident_bytes += resident;
        at += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of these sizes and whether each is in use, with a top chunk behind them.
    fn heap(chunks: &[(u64, bool)]) -> Heap {
        let mut bytes = Vec::new();
        let mut before_in_use = true;
        for &(size, in_use) in chunks.iter().chain(&[(64, true)]) {
            let at = bytes.len();
            bytes.resize(at + size as usize, 0);
            let field = size | u64::from(before_in_use);
            bytes[at + 8..at + 16].copy_from_slice(&field.to_ne_bytes());
            before_in_use = in_use;
        }
        let pages = bytes.len().div_ceil(4096);
        Heap {
            bytes,
            resident: vec![true; pages],
            page: 4096,
        }
    }

    #[test]
    fn chunks_are_counted_by_size_and_use() {
        let mut found = Snapshot::default();
        let heap = heap(&[(32, true), (48, false), (16912, true), (16912, true)]);
        heap.walk(0, &mut found).unwrap();
        assert_eq!(found.sizes[&16912].blocks, 2);
        assert_eq!(found.sizes[&32].blocks, 1);
        assert_eq!(found.free_bytes, 48 + 64);
        assert_eq!(found.in_use_bytes, 32 + 2 * 16912);
    }

    #[test]
    fn what_is_no_heap_is_not_counted() {
        let mut found = Snapshot::default();
        let mut broken = heap(&[(32, true), (48, true)]);
        broken.bytes[8] = 0xff;
        assert_eq!(broken.walk(0, &mut found), None);
        let nothing = Heap {
            bytes: vec![0; 64],
            resident: vec![true],
            page: 4096,
        };
        assert_eq!(nothing.walk(0, &mut found), None);
        assert_eq!(found, Snapshot::default());
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn blocks_of_this_very_process_are_found() {
        // A size that nobody else asks for. Other threads of the test allocate meanwhile, in
        // arenas of their own, so only what is here for sure is asserted.
        let blocks: Vec<Vec<u8>> = (0..300).map(|_| vec![0x5a; 23_456]).collect();
        let own = i32::try_from(std::process::id()).unwrap();
        let found = (0..50).find_map(|_| {
            let snapshot = walk(own).ok()?;
            let near = snapshot.sizes.range(23_456..23_500);
            let count: u64 = near.map(|(_, count)| count.blocks).sum();
            (count >= 300).then_some(count)
        });
        drop(blocks);
        assert!(found.is_some(), "the blocks were not found");
    }
}
