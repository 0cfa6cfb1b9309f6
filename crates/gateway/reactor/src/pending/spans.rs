//! Bookkeeping of the pool's chunks, in the heap.
//!
//! The memory is divided into spans of 256 KiB (64 pages). A span belongs to one class of chunks at a time, or
//! to none. A span has one bit per chunk, and one bit per page that uses memory.

use std::ops::Range;

use crate::memory::PAGE;

/// Length of a span, and of the largest chunk.
pub(super) const SPAN: usize = 256 * 1024;
/// Length of the smallest chunk.
pub(super) const CHUNK_MIN: usize = 256;
/// Number of classes. A chunk has CHUNK_MIN << class bytes.
pub(super) const CLASSES: usize = 11;

const PAGES: usize = SPAN / PAGE;
const BITMAP: usize = SPAN / CHUNK_MIN / 64;
const NO_CLASS: u8 = u8::MAX;
const NIL: u32 = u32::MAX;

const _: () = assert!(PAGES == 64 && CHUNK_MIN << (CLASSES - 1) == SPAN);

pub(super) const fn chunk_bytes(class: usize) -> usize {
    CHUNK_MIN << class
}

/// The place of a chunk, used or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkPlace {
    pub(super) span: usize,
    pub(super) class: usize,
    chunk: usize,
}

impl ChunkPlace {
    pub(super) fn offset(self) -> usize {
        self.span * SPAN + self.chunk * chunk_bytes(self.class)
    }

    pub(super) fn chunk_bytes(self) -> usize {
        chunk_bytes(self.class)
    }

    /// Returns the pages of its span that it covers.
    fn pages(self) -> u64 {
        let first = self.chunk * chunk_bytes(self.class) / PAGE;
        let count = chunk_bytes(self.class).div_ceil(PAGE);
        (u64::MAX >> (PAGES - count)) << first
    }
}

#[derive(Debug)]
struct Span {
    class: u8,
    taken_count: u16,
    /// Neighbours in the list of spans of the same class with free chunks.
    next: u32,
    previous: u32,
    /// Pages that use memory.
    touched: u64,
    taken: [u64; BITMAP],
}

impl Span {
    const EMPTY: Span = Span {
        class: NO_CLASS,
        taken_count: 0,
        next: NIL,
        previous: NIL,
        touched: 0,
        taken: [0; BITMAP],
    };

    fn chunks(&self) -> usize {
        SPAN / chunk_bytes(self.class as usize)
    }

    fn is_taken(&self, chunk: usize) -> bool {
        self.taken[chunk / 64] >> (chunk % 64) & 1 == 1
    }

    fn is_full(&self) -> bool {
        self.taken_count as usize == self.chunks()
    }

    fn first_free(&self) -> Option<usize> {
        let word = self.taken.iter().position(|&word| word != !0)?;
        let chunk = word * 64 + self.taken[word].trailing_ones() as usize;
        (chunk < self.chunks()).then_some(chunk)
    }

    /// Returns the pages with a used chunk.
    fn used(&self) -> u64 {
        if self.taken_count == 0 {
            return 0;
        }
        let bytes = chunk_bytes(self.class as usize);
        if bytes < PAGE {
            let per_page = PAGE / bytes;
            let mask = (1u64 << per_page) - 1;
            let is_used = |page: &usize| {
                let chunk = page * per_page;
                self.taken[chunk / 64] >> (chunk % 64) & mask != 0
            };
            return (0..PAGES)
                .filter(is_used)
                .fold(0, |bits, page| bits | 1 << page);
        }
        let per_chunk = bytes / PAGE;
        (0..self.chunks())
            .filter(|&chunk| self.is_taken(chunk))
            .fold(0, |bits, chunk| {
                bits | (u64::MAX >> (PAGES - per_chunk)) << (chunk * per_chunk)
            })
    }

    /// Whether another used chunk shares its pages.
    fn shares_pages(&self, place: ChunkPlace) -> bool {
        let bytes = chunk_bytes(place.class);
        if bytes >= PAGE {
            return false;
        }
        let per_page = PAGE / bytes;
        let first = place.chunk / per_page * per_page;
        let page = self.taken[first / 64] >> (first % 64) & ((1 << per_page) - 1);
        page & !(1 << (place.chunk - first)) != 0
    }
}

/// All spans of a pool. They are created as needed, lowest first.
#[derive(Debug)]
pub(super) struct Spans {
    spans: Vec<Span>,
    spans_max: usize,
    /// Spans without a class.
    free: Vec<u32>,
    /// Per class: the first span with a free chunk.
    open: [u32; CLASSES],
    pages_max: usize,
    used_pages: usize,
    touched_pages: usize,
    chunks: usize,
}

impl Spans {
    pub(super) fn new(spans_max: usize, pages_max: usize) -> Spans {
        Spans {
            spans: Vec::new(),
            spans_max,
            free: Vec::new(),
            open: [NIL; CLASSES],
            pages_max,
            used_pages: 0,
            touched_pages: 0,
            chunks: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn pages_max(&self) -> usize {
        self.pages_max
    }

    pub(super) fn used_pages(&self) -> usize {
        self.used_pages
    }

    pub(super) fn warm_pages(&self) -> usize {
        self.touched_pages - self.used_pages
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Returns a free chunk of the class, or of a larger class if no span is left; within the limit.
    pub(super) fn place(&self, class: usize) -> Option<ChunkPlace> {
        let own = self.open_place(class).or_else(|| self.fresh_place(class));
        let larger = || (class + 1..CLASSES).find_map(|class| self.open_place(class));
        let place = own.or_else(larger)?;
        let new_pages = match self.spans.get(place.span) {
            Some(span) if span.shares_pages(place) => 0,
            _ => place.pages().count_ones() as usize,
        };
        (self.used_pages + new_pages <= self.pages_max).then_some(place)
    }

    /// Whether [`Spans::place`] has a chunk. Asked at every receive, and nearly always there is an unused span.
    pub(super) fn has_place(&self, class: usize) -> bool {
        let has_span = !self.free.is_empty() || self.spans.len() < self.spans_max;
        let is_roomy = has_span && self.used_pages + PAGES <= self.pages_max;
        is_roomy || self.place(class).is_some()
    }

    fn open_place(&self, class: usize) -> Option<ChunkPlace> {
        let span = self.open[class] as usize;
        let chunk = self.spans.get(span)?.first_free()?;
        Some(ChunkPlace { span, class, chunk })
    }

    fn fresh_place(&self, class: usize) -> Option<ChunkPlace> {
        let span = match self.free.last() {
            Some(&span) => span as usize,
            None if self.spans.len() < self.spans_max => self.spans.len(),
            None => return None,
        };
        Some(ChunkPlace {
            span,
            class,
            chunk: 0,
        })
    }

    /// Marks the chunk from [`Spans::place`] as used.
    pub(super) fn take(&mut self, place: ChunkPlace) {
        if place.span == self.spans.len() {
            self.spans.push(Span::EMPTY);
            self.free.push(place.span as u32);
        }
        if self.spans[place.span].class == NO_CLASS {
            debug_assert_eq!(self.free.last(), Some(&(place.span as u32)));
            self.free.pop();
            self.spans[place.span].class = place.class as u8;
            self.link(place.span);
        }
        self.set_taken(place);
        if self.spans[place.span].is_full() {
            self.unlink(place.span);
        }
        self.touch(place.span, place.pages());
    }

    fn set_taken(&mut self, place: ChunkPlace) {
        let span = &mut self.spans[place.span];
        if !span.shares_pages(place) {
            self.used_pages += place.pages().count_ones() as usize;
        }
        span.taken[place.chunk / 64] |= 1 << (place.chunk % 64);
        span.taken_count += 1;
        self.chunks += 1;
    }

    /// Frees a chunk. Its pages keep their memory until [`Spans::untouch`].
    pub(super) fn release(&mut self, place: ChunkPlace) {
        let span = &mut self.spans[place.span];
        let was_full = span.is_full();
        span.taken[place.chunk / 64] &= !(1 << (place.chunk % 64));
        span.taken_count -= 1;
        self.chunks -= 1;
        let is_empty = span.taken_count == 0;
        if !span.shares_pages(place) {
            self.used_pages -= place.pages().count_ones() as usize;
        }
        if was_full {
            self.link(place.span);
        }
        if is_empty {
            self.unlink(place.span);
            self.spans[place.span].class = NO_CLASS;
            self.free.push(place.span as u32);
        }
    }

    /// Returns the used chunk that starts at `offset`.
    pub(super) fn find(&self, offset: usize) -> Option<ChunkPlace> {
        let index = offset / SPAN;
        let span = self
            .spans
            .get(index)
            .filter(|span| span.class != NO_CLASS)?;
        let class = span.class as usize;
        let within = offset % SPAN;
        let chunk = within / chunk_bytes(class);
        let is_start = within.is_multiple_of(chunk_bytes(class));
        (is_start && span.is_taken(chunk)).then_some(ChunkPlace {
            span: index,
            class,
            chunk,
        })
    }

    /// Returns the pages of a released chunk that use memory without holding a chunk.
    pub(super) fn unused_pages_of(&self, place: ChunkPlace) -> u64 {
        self.unused_pages(place.span) & place.pages()
    }

    /// Returns the pages of a span that use memory without holding a chunk.
    pub(super) fn unused_pages(&self, span: usize) -> u64 {
        self.spans
            .get(span)
            .map_or(0, |span| span.touched & !span.used())
    }

    pub(super) fn touch(&mut self, span: usize, pages: u64) {
        while self.spans.len() <= span && span < self.spans_max {
            // Only an adoption gets here, for spans without live chunks.
            self.free.push(self.spans.len() as u32);
            self.spans.push(Span::EMPTY);
        }
        if let Some(span) = self.spans.get_mut(span) {
            self.touched_pages += (pages & !span.touched).count_ones() as usize;
            span.touched |= pages;
        }
    }

    pub(super) fn untouch(&mut self, span: usize, pages: u64) {
        if let Some(span) = self.spans.get_mut(span) {
            self.touched_pages -= (pages & span.touched).count_ones() as usize;
            span.touched &= !pages;
        }
    }

    /// Marks a chunk found in memory as used. [`Spans::finish_adoption`] rebuilds the lists.
    pub(super) fn readopt(&mut self, offset: usize, class: usize) -> Option<()> {
        let index = offset / SPAN;
        if index >= self.spans_max || !offset.is_multiple_of(chunk_bytes(class)) {
            return None;
        }
        while self.spans.len() <= index {
            self.spans.push(Span::EMPTY);
        }
        let span = &mut self.spans[index];
        if span.class == NO_CLASS {
            span.class = class as u8;
        }
        let chunk = offset % SPAN / chunk_bytes(class);
        if span.class as usize != class || span.is_taken(chunk) {
            return None;
        }
        let place = ChunkPlace {
            span: index,
            class,
            chunk,
        };
        self.set_taken(place);
        self.touch(index, place.pages());
        Some(())
    }

    pub(super) fn finish_adoption(&mut self) {
        for index in (0..self.spans.len()).rev() {
            if self.spans[index].class == NO_CLASS {
                self.free.push(index as u32);
            } else if !self.spans[index].is_full() {
                self.link(index);
            }
        }
    }

    /// Returns the free ranges on pages that also hold live chunks.
    pub(super) fn unused_chunks_in_used_pages(&self) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        for (index, span) in self.spans.iter().enumerate() {
            if span.class == NO_CLASS || chunk_bytes(span.class as usize) >= PAGE {
                continue;
            }
            let bytes = chunk_bytes(span.class as usize);
            let used = span.used();
            let beside = (0..span.chunks())
                .filter(|&chunk| !span.is_taken(chunk) && used >> (chunk * bytes / PAGE) & 1 == 1)
                .map(|chunk| index * SPAN + chunk * bytes)
                .map(|start| start..start + bytes);
            ranges.extend(beside);
        }
        ranges
    }

    fn link(&mut self, index: usize) {
        let class = self.spans[index].class as usize;
        let head = self.open[class];
        self.spans[index].next = head;
        self.spans[index].previous = NIL;
        if let Some(span) = self.spans.get_mut(head as usize) {
            span.previous = index as u32;
        }
        self.open[class] = index as u32;
    }

    fn unlink(&mut self, index: usize) {
        let Span {
            class,
            next,
            previous,
            ..
        } = self.spans[index];
        if let Some(span) = self.spans.get_mut(next as usize) {
            span.previous = previous;
        }
        match self.spans.get_mut(previous as usize) {
            Some(span) => span.next = next,
            None => self.open[class as usize] = next,
        }
    }
}
