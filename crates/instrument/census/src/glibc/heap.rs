//! One stretch of memory that glibc's malloc divides into chunks.
//!
//! A chunk begins with two words: the size of the previous chunk (if that is free), and its own size with three flags
//! in the lowest bits. Chunks are adjacent, so the size leads to the next chunk, whose `PREV_INUSE` flag tells whether
//! this one is in use.

use std::ops::Range;

use crate::process::ProcessMemory;

pub(super) const FLAGS: u64 = 7;
pub(super) const ALIGN: u64 = 16;
/// Bytes between the start of a chunk and the block that the program received.
pub(super) const CHUNK_HEAD: u64 = 16;
const PREV_INUSE: u64 = 1;
pub(super) const CHUNK_MIN: u64 = 32;

/// A copy of a heap in another process.
pub(super) struct Heap {
    /// Address in the process.
    pub(super) start: u64,
    bytes: Vec<u8>,
    resident: Vec<bool>,
    page: u64,
    /// Offset of the first chunk.
    first: u64,
}

/// One chunk of a heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    /// Offset in the heap.
    pub(super) at: u64,
    pub(super) size: u64,
    pub(super) in_use: bool,
    /// Whether this is the last chunk, which is free and mostly untouched.
    pub(super) is_top: bool,
}

impl Chunk {
    pub(super) fn end(&self) -> u64 {
        self.at + self.size
    }
}

impl Heap {
    /// Copies a page-aligned range, which the caller limits. The first chunk begins at its start unless [`Heap::begin_at`] changes that.
    pub(super) fn read(reader: &ProcessMemory, start: u64, end: u64) -> Result<Self, String> {
        let (page, len) = (reader.page(), end - start);
        let mut heap = Self {
            start,
            bytes: vec![0; usize::try_from(len).unwrap_or(0)],
            resident: vec![false; usize::try_from(len / page).unwrap_or(0)],
            page,
            first: 0,
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

    /// Creates a heap from bytes whose pages all count as resident.
    pub(super) fn of_bytes(bytes: Vec<u8>) -> Self {
        const PAGE: u64 = 4096;
        Self {
            start: 0,
            resident: vec![true; bytes.len().div_ceil(PAGE as usize)],
            bytes,
            page: PAGE,
            first: 0,
        }
    }

    pub(super) fn begin_at(&mut self, first: u64) {
        self.first = first;
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn page(&self) -> u64 {
        self.page
    }

    pub(super) fn pages(&self) -> usize {
        self.resident.len()
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.start + self.len()).contains(&address)
    }

    /// Returns the word at an offset.
    pub(super) fn word(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(*bytes.first_chunk()?))
    }

    /// Returns the offset of the top chunk; `None` if the chunks do not end at the heap's end.
    pub(super) fn top(&self) -> Option<u64> {
        let mut chunks = self.chunks();
        let last = chunks.by_ref().last()?;
        chunks.is_whole.then_some(last.at)
    }

    /// Iterates over the chunks in order, up to the first invalid one.
    pub(super) fn chunks(&self) -> Chunks<'_> {
        Chunks {
            heap: self,
            at: Some(self.first),
            is_whole: false,
        }
    }

    /// Counts the zero bytes of a range, in whole words.
    pub(super) fn zeros(&self, from: u64, to: u64) -> u64 {
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

    /// Counts the resident bytes of a range.
    pub(super) fn resident_in(&self, from: u64, to: u64) -> u64 {
        let resident = self.pieces(from..to).filter(|(_, here)| *here);
        resident.map(|(piece, _)| piece.end - piece.start).sum()
    }

    /// Counts the resident bytes of the heap.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.resident.iter().filter(|here| **here).count() as u64 * self.page
    }

    /// Splits a range by page and tells for each piece whether its page is resident.
    pub(super) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, bool)> {
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

/// Iterator over a heap's chunks.
pub(super) struct Chunks<'a> {
    heap: &'a Heap,
    at: Option<u64>,
    /// Whether the chunks ended exactly at the heap's end.
    is_whole: bool,
}

impl Iterator for Chunks<'_> {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let at = self.at.take()?;
        let size = self.heap.word(at.checked_add(8)?)? & !FLAGS;
        let next = at.checked_add(size)?;
        if size < CHUNK_MIN || !size.is_multiple_of(ALIGN) || next > self.heap.len() {
            return None;
        }
        let mut chunk = Chunk {
            at,
            size,
            in_use: false,
            is_top: next == self.heap.len(),
        };
        if chunk.is_top {
            self.is_whole = true;
            return Some(chunk);
        }
        let next_size = self.heap.word(next.checked_add(8)?)?;
        chunk.in_use = next_size & PREV_INUSE != 0;
        if next_size & !FLAGS < CHUNK_MIN {
            // Two fence posts of 16 bytes end an arena's heap, and a main heap with a hole.
            self.is_whole = true;
        } else {
            self.at = Some(next);
        }
        Some(chunk)
    }
}

/// Whether an arena's first chunk may begin here: its predecessor must be marked as in use.
pub(super) fn may_begin(heap: &Heap, at: u64) -> bool {
    heap.word(at + 8).is_some_and(|size| size & PREV_INUSE != 0)
}
