//! Bytes that could not be processed yet: partial records and blocked writes.
//!
//! They lie in a separate memory file, in chunks of 256 bytes to 256 KiB that are named by 32-bit [`Handle`]s,
//! so that they outlive the process like the slots that own them. Invariants:
//!
//! - A chunk starts with a header that names its owner and the range of waiting bytes. The set of free chunks
//!   is in the heap, and is rebuilt from the handles in live slots.
//! - A chunk is wiped when it is freed, because it may have held plaintext.
//! - Pages without a chunk are *warm*: they keep their memory, because a bulk stream takes and frees a chunk
//!   every few turns, and returning a page and taking it again costs two system calls.
//!   [`Pending::cool`] returns the pages that were not needed. The pages in use never exceed the pool's limit;
//!   warm pages exceed it by at most 64.

mod spans;

use std::io;
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::memory::{Mapping, PAGE};
use crate::step::step;
use crate::{AdoptError, Fd};
use spans::{CHUNK_MIN, CLASSES, ChunkPlace, SPAN, Spans, chunk_bytes};

/// Length of a chunk's header.
const HEADER: usize = size_of::<ChunkHeader>();
/// Capacity of the largest chunk.
pub const LARGEST: usize = SPAN - HEADER;
/// Maximum limit of a pool.
pub const BYTES_MAX: usize = 1 << 38;
/// Maximum number of warm pages while the limit has room for them: 4 MiB, as much as a dozen bulk streams take
/// and free.
const WARM_PAGES_MAX: usize = 1024;
/// Number of warm pages that are kept even if the limit is used up, so that a connection that blocks now and
/// then costs no system call.
const WARM_PAGES_MIN: usize = 64;

/// "pend" in the upper bytes; the chunk's class in the lowest byte.
const MARK: u32 = 0x7065_6e00;

/// Names a chunk. Zero means none. Plain data, stored in a slot.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Handle(u32);

impl Handle {
    /// No chunk.
    pub const NONE: Handle = Handle(0);

    /// Whether there is no chunk.
    pub fn is_none(self) -> bool {
        self == Handle::NONE
    }

    /// Whether there is a chunk.
    pub fn is_some(self) -> bool {
        self != Handle::NONE
    }

    fn at(offset: usize) -> Handle {
        Handle((offset / CHUNK_MIN) as u32 + 1)
    }

    fn offset(self) -> Option<usize> {
        Some(self.0.checked_sub(1)? as usize * CHUNK_MIN)
    }
}

/// The header of a chunk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ChunkHeader {
    mark: u32,
    owner: u32,
    /// Waiting bytes from `start` to `end`, counted from the end of the header.
    start: u32,
    end: u32,
    /// No byte at or after this one was ever written.
    high: u32,
    reserved: [u32; 3],
}

/// The pool of pending bytes.
#[derive(Debug)]
pub struct Pending {
    memory: Mapping,
    spans: Spans,
    /// Minimum number of warm pages since the last [`Pending::cool`]: as many were never needed.
    coldest: usize,
}

impl Pending {
    /// Creates a pool that never uses more than `bytes_max` bytes (rounded up to pages), plus up to 256 KiB of
    /// warm pages. The descriptor stays open over an exec.
    ///
    /// # Errors
    /// The operating system's error; `InvalidInput` for a limit of 0 or above [`BYTES_MAX`].
    pub fn create(name: &str, bytes_max: usize) -> io::Result<Pending> {
        if bytes_max == 0 || bytes_max > BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the limit for pending bytes must be 1 to {BYTES_MAX}, not {bytes_max}"),
            ));
        }
        Ok(Pending {
            memory: Mapping::create(name, mapping_len(bytes_max))?,
            spans: Spans::new(mapping_len(bytes_max) / SPAN, bytes_max.div_ceil(PAGE)),
            coldest: 0,
        })
    }

    /// Adopts the pool of a dead process. `live` are the handles in live slots, each with its owner;
    /// everything else is wiped and returned. Handles that name no chunk, or a chunk of another owner, are
    /// returned, because their slots cannot be trusted.
    ///
    /// # Errors
    /// The memory is not a pool with this limit, or the operating system's error.
    pub fn adopt(
        fd: Fd,
        bytes_max: usize,
        live: impl IntoIterator<Item = (Handle, u32)>,
    ) -> Result<(Pending, Vec<(Handle, u32)>), AdoptError> {
        AdoptError::check(
            "limit of pending bytes",
            bytes_max as u64,
            bytes_max.clamp(1, BYTES_MAX) as u64,
        )?;
        let len = mapping_len(bytes_max);
        let mut pool = Pending {
            memory: Mapping::adopt(fd, len)?,
            spans: Spans::new(len / SPAN, bytes_max.div_ceil(PAGE)),
            coldest: 0,
        };
        let mut refused = Vec::new();
        for (handle, owner) in live {
            if pool.readopt(handle, owner).is_none() {
                refused.push((handle, owner));
            }
        }
        pool.spans.finish_adoption();
        pool.sweep()
            .map_err(AdoptError::system("find used pages"))?;
        Ok((pool, refused))
    }

    /// Returns the descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.memory.fd()
    }

    /// Allocates an empty chunk for at least `len` bytes. The owner is a number of the caller by which recovery
    /// recognises the chunk: the generation of a slot, which a move of the slot keeps. Returns `None` if there is no
    /// memory left, or `len` exceeds [`LARGEST`].
    pub fn alloc(&mut self, len: usize, owner: u32) -> Option<Handle> {
        let place = self.spans.place(class_for(len)?)?;
        self.spans.take(place);
        self.coldest = self.coldest.min(self.spans.warm_pages());
        self.keep_bound();
        let offset = place.offset();
        let header =
            ChunkHeader::mut_from_bytes(self.memory.bytes_mut().get_mut(offset..offset + HEADER)?)
                .ok()?;
        *header = ChunkHeader {
            mark: MARK | place.class as u32,
            owner,
            start: 0,
            end: 0,
            high: 0,
            reserved: [0; 3],
        };
        step();
        Some(Handle::at(offset))
    }

    /// Wipes and frees a chunk. Returns false if there is no such chunk.
    pub fn free(&mut self, handle: Handle) -> bool {
        let Some(place) = self.find(handle) else {
            return false;
        };
        let high = self.header(place).map_or(0, |header| header.high as usize);
        let offset = place.offset();
        let written = HEADER + high.min(place.chunk_bytes() - HEADER);
        step();
        self.memory.wipe(offset..offset + written);
        step();
        self.spans.release(place);
        if self.spans.warm_pages() > self.warm_pages_max() {
            self.give_back(place.span, self.spans.unused_pages_of(place));
        }
        true
    }

    /// Whether a chunk for `len` bytes can be allocated now.
    pub fn can_hold(&self, len: usize) -> bool {
        class_for(len).is_some_and(|class| self.spans.has_place(class))
    }

    /// Returns the bytes of all chunks in use, as counted against the limit.
    pub fn bytes_in_use(&self) -> usize {
        self.spans.used_pages() * PAGE
    }

    /// Returns the limit for [`Pending::bytes_in_use`].
    pub fn bytes_max(&self) -> usize {
        self.spans.pages_max() * PAGE
    }

    /// Returns the number of chunks in use.
    pub fn chunks(&self) -> usize {
        self.spans.chunks()
    }

    /// Returns the bytes of memory that the pool uses.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn resident_bytes(&self) -> io::Result<usize> {
        self.memory.resident_bytes()
    }

    /// Returns the waiting bytes of a chunk, in order; empty if there is no such chunk.
    pub fn data(&self, handle: Handle) -> &[u8] {
        let range = self.find(handle).and_then(|place| self.waiting(place));
        range
            .and_then(|range| self.memory.bytes().get(range))
            .unwrap_or_default()
    }

    /// Returns the number of waiting bytes in a chunk.
    pub fn len(&self, handle: Handle) -> usize {
        self.data(handle).len()
    }

    /// Whether no bytes wait in a chunk, or there is no such chunk.
    pub fn is_empty(&self, handle: Handle) -> bool {
        self.len(handle) == 0
    }

    /// Returns the capacity of a chunk; 0 if there is no such chunk.
    pub fn capacity(&self, handle: Handle) -> usize {
        self.find(handle)
            .map_or(0, |place| place.chunk_bytes() - HEADER)
    }

    /// Returns the owner of a chunk, as [`Pending::alloc`] got it.
    pub fn owner(&self, handle: Handle) -> Option<u32> {
        Some(self.header(self.find(handle)?)?.owner)
    }

    /// Appends bytes to the waiting ones. Returns false, with nothing appended, if they do not all fit.
    #[must_use]
    pub fn append(&mut self, handle: Handle, bytes: &[u8]) -> bool {
        let room = self.room(handle, bytes.len());
        if room.len() < bytes.len() {
            return false;
        }
        room.copy_from_slice(bytes);
        self.filled(handle, bytes.len());
        true
    }

    /// Returns room for up to `len` bytes after the waiting ones, to receive into. The bytes count only after
    /// [`Pending::filled`].
    pub fn room(&mut self, handle: Handle, len: usize) -> &mut [u8] {
        self.reserve(handle, len)
            .and_then(|range| self.memory.bytes_mut().get_mut(range))
            .unwrap_or_default()
    }

    /// Records that the first `count` bytes of the last room are filled.
    pub fn filled(&mut self, handle: Handle, count: usize) {
        if let Some(header) = self.find(handle).and_then(|place| self.header_mut(place)) {
            let end = (header.end as usize).saturating_add(count);
            header.end = end.min(header.high as usize) as u32;
        }
        step();
    }

    /// Drops the first `count` waiting bytes, which were sent.
    pub fn consume(&mut self, handle: Handle, count: usize) {
        if let Some(header) = self.find(handle).and_then(|place| self.header_mut(place)) {
            let start = (header.start as usize).saturating_add(count);
            header.start = start.min(header.end as usize) as u32;
        }
        step();
    }

    /// Appends bytes to those in `handle`, in a chunk that is allocated, or replaced by a larger one, as
    /// needed. Returns the handle that holds them from now on. Returns `None`, with nothing changed, if there
    /// is no room.
    #[must_use]
    pub fn store(&mut self, handle: Handle, owner: u32, bytes: &[u8]) -> Option<Handle> {
        if self.append(handle, bytes) {
            return Some(handle);
        }
        let waiting = self.len(handle);
        let larger = self.alloc(waiting + bytes.len(), owner)?;
        if let Some(from) = self.find(handle).and_then(|place| self.waiting(place)) {
            let to = larger.offset()? + HEADER;
            self.room(larger, waiting);
            self.memory.bytes_mut().copy_within(from, to);
            self.filled(larger, waiting);
        }
        if !self.append(larger, bytes) {
            self.free(larger);
            return None;
        }
        self.free(handle);
        Some(larger)
    }

    /// Whether the pool has warm pages, so that [`Pending::cool`] should be called in a while.
    pub fn is_warm(&self) -> bool {
        self.spans.warm_pages() > 0
    }

    /// Returns as many warm pages to the operating system as were never needed since the last call.
    pub fn cool(&mut self) {
        let mut left = self.coldest;
        // Chunks are placed in the lowest spans first.
        for span in (0..self.spans.len()).rev() {
            let mut unused = self.spans.unused_pages(span);
            while unused.count_ones() as usize > left {
                // The lowest page stays.
                unused &= unused - 1;
            }
            left -= unused.count_ones() as usize;
            self.give_back(span, unused);
        }
        self.coldest = self.spans.warm_pages();
    }

    /// Returns all warm pages to the operating system.
    pub fn trim(&mut self) {
        for span in 0..self.spans.len() {
            self.give_back(span, self.spans.unused_pages(span));
        }
        self.coldest = 0;
    }

    fn warm_pages_max(&self) -> usize {
        let free = self.spans.pages_max() - self.spans.used_pages();
        free.clamp(WARM_PAGES_MIN, WARM_PAGES_MAX)
    }

    /// Called after a page that was not warm was taken: warm pages must not exceed the limit because of it.
    fn keep_bound(&mut self) {
        if self.spans.warm_pages() > self.warm_pages_max() {
            self.trim();
        }
    }

    fn find(&self, handle: Handle) -> Option<ChunkPlace> {
        self.spans.find(handle.offset()?)
    }

    fn header(&self, place: ChunkPlace) -> Option<&ChunkHeader> {
        let offset = place.offset();
        ChunkHeader::ref_from_bytes(self.memory.bytes().get(offset..offset + HEADER)?).ok()
    }

    fn header_mut(&mut self, place: ChunkPlace) -> Option<&mut ChunkHeader> {
        let offset = place.offset();
        let bytes = self.memory.bytes_mut().get_mut(offset..offset + HEADER)?;
        ChunkHeader::mut_from_bytes(bytes).ok()
    }

    /// Returns the range of a chunk's waiting bytes in the memory.
    fn waiting(&self, place: ChunkPlace) -> Option<Range<usize>> {
        let header = self.header(place)?;
        let base = place.offset() + HEADER;
        Some(base + header.start as usize..base + header.end as usize)
    }

    /// Returns the range where up to `len` bytes can be appended; moves the waiting bytes to the front if
    /// necessary.
    fn reserve(&mut self, handle: Handle, len: usize) -> Option<Range<usize>> {
        let place = self.find(handle)?;
        let base = place.offset() + HEADER;
        let capacity = place.chunk_bytes() - HEADER;
        let waiting = self.waiting(place)?;
        let header = self.header_mut(place)?;
        let end = if waiting.is_empty() || (waiting.end - base).saturating_add(len) > capacity {
            header.start = 0;
            header.end = waiting.len() as u32;
            waiting.len()
        } else {
            waiting.end - base
        };
        let len = len.min(capacity - end);
        header.high = header.high.max((end + len) as u32);
        if end == waiting.len() && waiting.start != base {
            self.memory.bytes_mut().copy_within(waiting, base);
        }
        Some(base + end..base + end + len)
    }

    /// Adopts a chunk named by a live slot, if it exists and belongs to that slot.
    fn readopt(&mut self, handle: Handle, owner: u32) -> Option<()> {
        let offset = handle.offset()?;
        let bytes = self.memory.bytes().get(offset..offset + HEADER)?;
        let header = ChunkHeader::ref_from_bytes(bytes).ok()?;
        let class = (header.mark ^ MARK) as usize;
        if class >= CLASSES || header.owner != owner {
            return None;
        }
        let capacity = (chunk_bytes(class) - HEADER) as u32;
        if header.start > header.end || header.end > header.high || header.high > capacity {
            return None;
        }
        self.spans.readopt(offset, class)
    }

    /// After an adoption: wipes and returns everything that is in no chunk.
    fn sweep(&mut self) -> io::Result<()> {
        for data in self.memory.data()? {
            for page in data.start / PAGE..data.end / PAGE {
                let (span, bit) = (page * PAGE / SPAN, page % (SPAN / PAGE));
                self.spans.touch(span, 1 << bit);
            }
        }
        self.trim();
        for unused in self.spans.unused_chunks_in_used_pages() {
            self.memory.wipe(unused);
        }
        Ok(())
    }

    /// Returns pages of a span (one bit each) to the operating system, in runs.
    fn give_back(&mut self, span: usize, mut pages: u64) {
        self.spans.untouch(span, pages);
        while pages != 0 {
            let first = pages.trailing_zeros() as usize;
            let count = (!(pages >> first)).trailing_zeros() as usize;
            let start = span * SPAN + first * PAGE;
            // A failure only costs memory; free chunks are already zero.
            let _ = self.memory.punch(start..start + count * PAGE);
            pages &= !(u64::MAX >> (64 - count) << first);
        }
    }
}

fn class_for(len: usize) -> Option<usize> {
    (0..CLASSES).find(|&class| chunk_bytes(class) - HEADER >= len)
}

/// Address space is cheap, and a span belongs to one class at a time: twice the limit and a little more.
fn mapping_len(bytes_max: usize) -> usize {
    (2 * bytes_max).next_multiple_of(SPAN) + (CLASSES + 1) * SPAN
}

#[cfg(test)]
mod tests;
