//! Free chunks that malloc still marks as in use: those of its per-thread caches and of its fast bins.
//!
//! After a burst they can be tens of thousands. Counted as in use, they would look like memory of connections.
//!
//! - A per-thread cache is a block of its own, with one list for each size. Its address stands in thread-local
//!   storage, so it is recognised by its size and by its lists, all of which must lead to blocks of their size.
//! - Fast bins stand in the state of an arena. That of the main arena is a variable of the C library, found by the
//!   address of the top chunk, which it holds.
//!
//! Since glibc 2.32 a link is stored as `(address of the link >> 12) ^ link`.

use std::collections::HashSet;

use super::heap::{ALIGN, CHUNK_HEAD, FLAGS, Heap};
use crate::process::{ProcessMemory, Region};

/// Layouts of a per-thread cache: chunk size, offset of the lists. glibc 2.30 to 2.41, 2.26 to 2.29, from 2.42.
const THREAD_CACHES: [(u64, u64); 3] = [(0x290, 128), (0x250, 64), (0x310, 152)];
/// Lists of a per-thread cache that hold blocks of one size.
const CACHE_LISTS: u64 = 64;
/// Fast bins of an arena, their offset in its state, and that of the top chunk's address behind them.
const FAST_BINS: u64 = 10;
const FAST_BINS_AT: u64 = 0x10;
const TOP_AT: u64 = 0x60;
/// Longest list that is followed.
const LENGTH_MAX: usize = 1 << 20;
/// Most bytes of a library's variables that are searched.
const VARIABLES_MAX: u64 = 4 << 20;

/// Addresses of chunks that are free although malloc marks them as in use.
#[derive(Default)]
pub(super) struct FreeLists {
    pub(super) of_threads: HashSet<u64>,
    pub(super) fast: HashSet<u64>,
}

/// All heaps of a process, in the order of their addresses.
pub(super) struct Heaps<'a>(pub(super) &'a [Heap]);

impl Heaps<'_> {
    fn of(&self, address: u64) -> Option<&Heap> {
        let after = self.0.partition_point(|heap| heap.start <= address);
        let heap = self.0.get(after.checked_sub(1)?)?;
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

    /// The chunks of a list of chunks of one size, the first given; `None` when it leads elsewhere.
    fn list(&self, first: u64, size: u64) -> Option<Vec<u64>> {
        let (mut chunks, mut next) = (Vec::new(), first);
        while next != 0 {
            if !self.is_chunk(next, size) || chunks.len() >= LENGTH_MAX {
                return None;
            }
            chunks.push(next);
            let place = next + CHUNK_HEAD;
            let stored = self.word(place)?;
            let plain = stored ^ (place >> 12);
            next = match plain {
                0 => 0,
                // In a per-thread cache links lead to blocks, in a fast bin to chunks.
                _ if self.is_chunk(plain.wrapping_sub(CHUNK_HEAD), size) => plain - CHUNK_HEAD,
                _ if self.is_chunk(plain, size) => plain,
                // Before 2.32 links were stored as they are.
                _ if stored == 0 => 0,
                _ if self.is_chunk(stored.wrapping_sub(CHUNK_HEAD), size) => stored - CHUNK_HEAD,
                _ => stored,
            };
        }
        Some(chunks)
    }
}

impl FreeLists {
    /// Finds the lists of a process. Lists that are not found count as blocks in use, as malloc marks them.
    pub(super) fn find(heaps: &[Heap], arenas: &[u64]) -> Self {
        let heaps = Heaps(heaps);
        let mut found = Self::default();
        for heap in heaps.0 {
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
            let bins = |index: u64| heaps.word(arena + FAST_BINS_AT + 8 * index);
            found.fast.extend(fast_bins(&heaps, bins));
        }
        found
    }

    /// Adds the fast bins of the main arena, whose state lies in the C library's variables.
    pub(super) fn add_main(
        &mut self,
        heaps: &[Heap],
        top: u64,
        reader: &ProcessMemory,
        regions: &[Region],
    ) {
        let variables = regions.iter().filter(|region| region.is_variables());
        for region in variables.filter(|region| region.len() <= VARIABLES_MAX) {
            let Ok(copy) = Heap::read(reader, region.start, region.end) else {
                continue;
            };
            let places = (TOP_AT..copy.len()).step_by(8);
            for place in places.filter(|place| copy.word(*place) == Some(top)) {
                let bins = |index: u64| copy.word(place - TOP_AT + FAST_BINS_AT + 8 * index);
                self.fast.extend(fast_bins(&Heaps(heaps), bins));
            }
        }
    }
}

/// The chunks of a per-thread cache whose lists lie at this address; `None` when it is none.
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

/// The chunks of fast bins; of none of them if one leads elsewhere.
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
