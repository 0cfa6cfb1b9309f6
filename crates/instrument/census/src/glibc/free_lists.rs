//! Free chunks that malloc still marks as in use: those in its per-thread caches and its fast bins.
//!
//! After a burst there can be tens of thousands of them, which would otherwise count as memory of connections.
//!
//! - A per-thread cache is a block of its own with one list per size. Its address is in thread-local storage, so the
//!   census recognises it by its size and its lists, all of which must lead to blocks of their size.
//! - Fast bins are in an arena's state. The main arena's state is a variable of the C library, found by the address of
//!   the top chunk that it contains.
//!
//! Since glibc 2.32 a link is stored as `(address of the link >> 12) ^ link`.

use std::cell::Cell;
use std::collections::HashSet;

use super::heap::{ALIGN, CHUNK_HEAD, CHUNK_MIN, FLAGS, Heap};
use crate::process::{ProcessMemory, Region};

/// Layouts of a per-thread cache: chunk size and offset of the lists. glibc 2.30 to 2.41, 2.26 to 2.29, from 2.42.
const THREAD_CACHES: [(u64, u64); 3] = [(0x290, 128), (0x250, 64), (0x310, 152)];
/// Number of lists in a per-thread cache that hold blocks of one size.
const CACHE_LISTS: u64 = 64;
/// Number of fast bins in an arena, their offset in its state, and the offset of the top chunk's address after them.
const FAST_BINS: u64 = 10;
const FAST_BINS_AT: u64 = 0x10;
const TOP_AT: u64 = 0x60;
/// Maximum length of a list that is followed.
const LENGTH_MAX: usize = 1 << 20;
/// Number of links that are followed, as a multiple of the number of chunks in all heaps: each chunk is in one list at
/// most. A hostile process may have any number of lists of the same chunks.
const LINKS_TIMES: u64 = 2;
/// Maximum bytes of a library's variables that are searched, and of those of all libraries.
const VARIABLES_MAX: u64 = 4 << 20;
const ALL_VARIABLES_MAX: u64 = 256 << 20;

/// Addresses of free chunks that malloc marks as in use.
#[derive(Default)]
pub(super) struct FreeLists {
    pub(super) of_threads: HashSet<u64>,
    pub(super) fast: HashSet<u64>,
}

/// All heaps of a process by ascending address.
struct Heaps<'a> {
    heaps: &'a [Heap],
    links_left: Cell<u64>,
}

impl<'a> Heaps<'a> {
    fn new(heaps: &'a [Heap]) -> Self {
        let chunks: u64 = heaps.iter().map(|heap| heap.len() / CHUNK_MIN).sum();
        Self {
            heaps,
            links_left: Cell::new(LINKS_TIMES * chunks),
        }
    }

    fn of(&self, address: u64) -> Option<&Heap> {
        let after = self.heaps.partition_point(|heap| heap.start <= address);
        let heap = self.heaps.get(after.checked_sub(1)?)?;
        heap.contains(address).then_some(heap)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let heap = self.of(address)?;
        heap.word(address - heap.start)
    }

    /// Whether a chunk of this size begins at this address.
    fn is_chunk(&self, address: u64, size: u64) -> bool {
        address.is_multiple_of(ALIGN)
            && address
                .checked_add(8)
                .and_then(|at| self.word(at))
                .is_some_and(|word| word & !FLAGS == size)
    }

    /// Follows a list of chunks of one size from its first chunk; `None` if a link leads elsewhere.
    fn list(&self, first: u64, size: u64) -> Option<Vec<u64>> {
        let (mut chunks, mut next) = (Vec::new(), first);
        while next != 0 {
            if !self.is_chunk(next, size) || chunks.len() >= LENGTH_MAX {
                return None;
            }
            self.links_left.set(self.links_left.get().checked_sub(1)?);
            chunks.push(next);
            let place = next + CHUNK_HEAD;
            let stored = self.word(place)?;
            let plain = stored ^ (place >> 12);
            next = match plain {
                0 => 0,
                // Links of a per-thread cache point to blocks, links of a fast bin to chunks.
                _ if self.is_chunk(plain.wrapping_sub(CHUNK_HEAD), size) => plain - CHUNK_HEAD,
                _ if self.is_chunk(plain, size) => plain,
                // Before glibc 2.32, links were stored unmangled.
                _ if stored == 0 => 0,
                _ if self.is_chunk(stored.wrapping_sub(CHUNK_HEAD), size) => stored - CHUNK_HEAD,
                _ => stored,
            };
        }
        Some(chunks)
    }
}

impl FreeLists {
    /// Finds the lists of a process. Chunks of a list that is not found count as in use, as malloc marks them.
    pub(super) fn find(heaps: &[Heap], arenas: &[u64]) -> Self {
        let heaps = Heaps::new(heaps);
        let mut found = Self::default();
        for heap in heaps.heaps {
            for chunk in heap.chunks().filter(|chunk| chunk.in_use) {
                let layout = THREAD_CACHES.iter().find(|(size, _)| *size == chunk.size);
                if let Some((_, lists)) = layout {
                    let lists = heap.start + chunk.at + CHUNK_HEAD + lists;
                    found
                        .of_threads
                        .extend(thread_cache(&heaps, lists).unwrap_or_default());
                }
            }
        }
        for arena in arenas {
            // An address in the memory of another process: any number.
            let bins = |index: u64| heaps.word(arena.checked_add(FAST_BINS_AT + 8 * index)?);
            found.fast.extend(fast_bins(&heaps, bins));
        }
        found
    }

    /// Adds the fast bins of the main arena, whose state is in the C library's variables.
    pub(super) fn add_main(
        &mut self,
        heaps: &[Heap],
        top: u64,
        reader: &ProcessMemory,
        regions: &[Region],
    ) {
        let (heaps, mut left) = (Heaps::new(heaps), ALL_VARIABLES_MAX);
        let variables = regions.iter().filter(|region| region.is_variables());
        for region in variables.filter(|region| region.len() <= VARIABLES_MAX) {
            let Some(rest) = left.checked_sub(region.len()) else {
                break;
            };
            left = rest;
            let Ok(copy) = Heap::read(reader, region.start, region.end) else {
                continue;
            };
            let places = (TOP_AT..copy.len()).step_by(8);
            for place in places.filter(|place| copy.word(*place) == Some(top)) {
                let bins = |index: u64| copy.word(place - TOP_AT + FAST_BINS_AT + 8 * index);
                self.fast.extend(fast_bins(&heaps, bins));
            }
        }
    }
}

/// Returns the chunks of the per-thread cache whose lists are at this address; `None` if there is no such cache.
fn thread_cache(heaps: &Heaps<'_>, lists: u64) -> Option<Vec<u64>> {
    let mut chunks = Vec::new();
    for index in 0..CACHE_LISTS {
        let first = heaps.word(lists + 8 * index)?;
        if first != 0 {
            let first = first.checked_sub(CHUNK_HEAD)?;
            chunks.extend(heaps.list(first, (index + 2) * ALIGN)?);
        }
    }
    Some(chunks)
}

/// Returns the chunks of the fast bins, or none if any link leads elsewhere.
fn fast_bins(heaps: &Heaps<'_>, bins: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
    let mut chunks = Vec::new();
    for index in 0..FAST_BINS {
        let list = bins(index).and_then(|first| heaps.list(first, (index + 2) * ALIGN));
        match list {
            Some(list) => chunks.extend(list),
            None => return Vec::new(),
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_at_any_address_is_looked_for() {
        let found = FreeLists::find(&[], &[u64::MAX - (ALIGN - 1)]);
        assert!(found.fast.is_empty());
    }

    /// Ten thousand forged caches with the same list of a million chunks took hours.
    #[test]
    fn no_chunk_is_followed_again_and_again() {
        const CHUNKS: u64 = 100;
        let (first, mut bytes) = (CHUNK_MIN, vec![0; CHUNK_MIN as usize]);
        for number in 0..CHUNKS {
            let next = first + (number + 1) * CHUNK_MIN;
            let link = if number + 1 < CHUNKS {
                next + CHUNK_HEAD
            } else {
                0
            };
            for word in [0, CHUNK_MIN | 1, link, 0] {
                bytes.extend_from_slice(&word.to_ne_bytes());
            }
        }
        let heaps = [Heap::of_bytes(bytes)];
        let heaps = Heaps::new(&heaps);
        let followed = || heaps.list(first, CHUNK_MIN).map(|list| list.len() as u64);
        assert_eq!((followed(), followed()), (Some(CHUNKS), Some(CHUNKS)));
        assert_eq!(followed(), None);
    }
}
