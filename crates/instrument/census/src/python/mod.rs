//! The small objects of CPython, whose allocator (`obmalloc`) never uses malloc for up to 512 bytes. CPython has no
//! interface for other processes, but its pools can be read like malloc's chunks.
//!
//! A pool is one page, or four since 3.10, aligned to its size, with blocks of one size class. It begins with a header
//! whose fields depend on each other so closely that nothing else is mistaken for one:
//!
//! ```text
//! u32 count of blocks in use · u32 –   pointer to the first free block
//! pointer to the next pool             pointer to the one before
//! u32 arena · u32 class                u32 offset of the next fresh block · u32 the last such offset
//! ```

mod generations;

use std::collections::BTreeMap;

use dormouse_measure::proc_files;

pub use self::generations::Generations;
use crate::process::{ProcessMemory, regions, smallest_first, unread};
use crate::snapshot::{SizeCount, Snapshot};

const HEADER: usize = 48;
const POOLS: [u64; 2] = [16_384, 4_096];
const ALIGN: u64 = 16;
const CLASSES: u64 = 32;
const ARENAS_MAX: u64 = 1 << 20;

/// Adds the pools of a process if it is CPython.
pub(super) fn walk(pid: i32, into: &mut Snapshot) -> Result<(), String> {
    if !is_python(pid) {
        return Ok(());
    }
    let reader = ProcessMemory::open(pid)?;
    let mut unread_bytes = 0;
    let all = smallest_first(regions(pid)?);
    for region in all.iter().filter(|region| region.name.is_empty()) {
        let mut next = region.start;
        let looked = reader.resident(region.start, region.end, |run| {
            // A pool may extend beyond the run of pages in which it begins.
            next = next.max(run.start);
            while next < run.end {
                next += add_pool(&reader, next, into).unwrap_or(reader.page());
            }
        });
        if looked.is_err() {
            unread_bytes += region.len();
        }
    }
    if unread_bytes > 0 {
        into.refused.push(unread(pid, unread_bytes));
    }
    into.freed_old_objects = collector(pid).map(|generations| generations.freed_old);
    Ok(())
}

/// Adds the pool that begins at this address, if there is one, and returns its size in bytes.
fn add_pool(reader: &ProcessMemory, at: u64, into: &mut Snapshot) -> Option<u64> {
    let mut header = [0; HEADER];
    reader.read(at, &mut header).ok()?;
    let pool = Pool::parse(at, &header)?;
    pool.add(into);
    Some(pool.bytes)
}

/// Returns the progress of the garbage collector if the process is CPython 3.8 to 3.13.
pub(super) fn collector(pid: i32) -> Option<Generations> {
    if is_python(pid) {
        generations::progress(pid)
    } else {
        None
    }
}

fn is_python(pid: i32) -> bool {
    let maps = proc_files::maps(pid).unwrap_or_default();
    let program = |line: &str| {
        let path = line
            .find('/')
            .and_then(|at| line.get(at..))
            .unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with("python") || name.starts_with("libpython")
    };
    maps.lines().any(program)
}

/// Number of blocks in use in the pools that begin in these bytes.
pub(super) fn blocks_of(bytes: &[u8]) -> u64 {
    let headers = bytes
        .windows(HEADER)
        .filter_map(|bytes| bytes.first_chunk());
    let pools = headers.filter_map(|header| Pool::parse(0, header));
    pools.map(|pool| pool.in_use).sum()
}

/// Whether these bytes, at this address, hold the state of a garbage collector.
pub(super) fn has_collector(bytes: &[u8], start: u64) -> bool {
    generations::find(bytes, start).is_some()
}

struct Pool {
    bytes: u64,
    block: u64,
    in_use: u64,
}

impl Pool {
    fn parse(at: u64, header: &[u8; HEADER]) -> Option<Self> {
        let word = |place: usize| {
            let four = header.get(place..place + 4)?.first_chunk()?;
            Some(u64::from(u32::from_ne_bytes(*four)))
        };
        let (in_use, arena, class) = (word(0)?, word(32)?, word(36)?);
        let (next, last) = (word(40)?, word(44)?);
        if class >= CLASSES || arena >= ARENAS_MAX {
            return None;
        }
        let block = (class + 1) * ALIGN;
        let bytes = POOLS
            .into_iter()
            .find(|bytes| at.is_multiple_of(*bytes) && last == bytes - block)?;
        let head = HEADER as u64;
        let fits = in_use >= 1
            && in_use <= (bytes - head) / block
            && next >= head + block
            && next <= bytes
            && (next - head).is_multiple_of(block);
        fits.then_some(Self {
            bytes,
            block,
            in_use,
        })
    }

    fn add(&self, into: &mut Snapshot) {
        let used = self.in_use * self.block;
        into.in_use_bytes += used;
        into.heap_bytes += self.bytes;
        into.walked_bytes += self.bytes;
        let of: &mut BTreeMap<u64, SizeCount> = &mut into.small;
        let count = of.entry(self.block).or_default();
        count.blocks += self.in_use;
        count.resident_bytes += used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(words: [(usize, u32); 5]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        for (at, word) in words {
            header[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        header
    }

    #[test]
    fn a_pool_is_known_by_its_header() {
        // Class 3: blocks of 64 bytes, 200 in use, at most 255.
        let words = [
            (0, 200),
            (32, 7),
            (36, 3),
            (40, 48 + 64 * 250),
            (44, 16_384 - 64),
        ];
        let pool = Pool::parse(0x7f00_0000_4000, &header(words)).unwrap();
        assert_eq!((pool.bytes, pool.block, pool.in_use), (16_384, 64, 200));
        assert!(Pool::parse(0x7f00_0000_1000, &header(words)).is_none());
        let mut snapshot = Snapshot::default();
        pool.add(&mut snapshot);
        assert_eq!(snapshot.small[&64].blocks, 200);
        for (index, wrong) in [(0, 256), (1, u32::MAX), (2, 32), (3, 17), (4, 16_384)] {
            let mut words = words;
            words[index].1 = wrong;
            assert!(
                Pool::parse(0x7f00_0000_4000, &header(words)).is_none(),
                "{index}"
            );
        }
    }
}
