//! Reads another process's memory: its mappings, and only resident pages, so that reading makes no page resident.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use dormouse_measure::proc_files;

use crate::time_limit;

/// Alignment of the heaps of malloc's other arenas.
pub(crate) const HEAP_ALIGN: u64 = 64 << 20;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Pages read per call.
const PAGES_AT_ONCE: usize = 256;
/// Entries of the page map read per call.
const ENTRIES_AT_ONCE: usize = 8192;
/// Maximum number of pages looked up in the page map of one process: 1 TiB, which takes some seconds. A process can
/// map a hundred times as much without touching it.
const PAGES_MAX: u64 = 1 << 28;

/// A memory mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether it is private, writable and without a file.
    pub(crate) anonymous: bool,
    /// Whether it is private, writable and of a file.
    of_file: bool,
    /// Text after the addresses: `[heap]`, a path, or nothing.
    pub(crate) name: String,
}

impl Region {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the adjacent mapping may be a part of the same heap: of the main arena, or of a nameless one, which begins at
    /// a multiple of [`HEAP_ALIGN`].
    fn continues_in(&self, next: &Self) -> bool {
        let is_heap = match &*next.name {
            "[heap]" => true,
            "" => {
                let begins = self.start.is_multiple_of(HEAP_ALIGN);
                let other_begins = next.start.is_multiple_of(HEAP_ALIGN);
                self.anonymous && next.anonymous && begins && !other_begins
            }
            _ => false,
        };
        is_heap && self.end == next.start && self.name == next.name
    }

    /// Whether the mapping holds variables of a program or library.
    pub(crate) fn is_variables(&self) -> bool {
        self.of_file
    }
}

/// Returns the mappings of a process.
pub(crate) fn regions(pid: i32) -> Result<Vec<Region>, String> {
    let text = proc_files::maps(pid).map_err(|error| words(pid, "maps", &error))?;
    Ok(joined(text.lines().filter_map(region)))
}

/// Joins mappings that are one heap. After a fork, memory that the child adds to an inherited heap is a separate, adjacent
/// mapping.
fn joined(found: impl Iterator<Item = Region>) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for next in found {
        match regions.last_mut() {
            Some(last) if last.continues_in(&next) => last.end = next.end,
            _ => regions.push(next),
        }
    }
    regions
}

/// Returns the anonymous regions, the smallest first: a huge, mostly untouched region must not keep the others from
/// being read.
pub(crate) fn smallest_first(mut regions: Vec<Region>) -> Vec<Region> {
    regions.retain(|region| region.anonymous);
    regions.sort_by_key(Region::len);
    regions
}

/// Describes how much of a process was not looked at.
pub(crate) fn unread(pid: i32, bytes: u64) -> String {
    let gib = bytes >> 30;
    format!(
        "process {pid}: {gib} GiB of its address space were not examined, because it maps too much"
    )
}

pub(crate) fn region(line: &str) -> Option<Region> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let inode = words.nth(2)?;
    let name = words.next().unwrap_or_default().to_owned();
    let is_private = rights.starts_with("rw") && rights.ends_with('p');
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    (start <= end).then_some(())?;
    Some(Region {
        start,
        end,
        anonymous: inode == "0" && is_private,
        of_file: inode != "0" && is_private,
        name,
    })
}

/// Access to the memory of a process.
pub(crate) struct ProcessMemory {
    pid: i32,
    memory: File,
    pagemap: File,
    page: u64,
    /// Remaining number of pages that may be looked up in the page map.
    pages_left: Cell<u64>,
}

impl ProcessMemory {
    pub(crate) fn open(pid: i32) -> Result<Self, String> {
        let open =
            |name: &str| proc_files::open(pid, name).map_err(|error| words(pid, name, &error));
        Ok(Self {
            pid,
            memory: open("mem")?,
            pagemap: open("pagemap")?,
            page: dormouse_measure::page_bytes(),
            pages_left: Cell::new(PAGES_MAX),
        })
    }

    /// Calls `each` with every run of resident (or swapped) pages of a range, in ascending order.
    pub(crate) fn resident(
        &self,
        start: u64,
        end: u64,
        mut each: impl FnMut(Range<u64>),
    ) -> Result<(), String> {
        let pages = (end - start) / self.page;
        let end = start + pages * self.page;
        let Some(left) = self.pages_left.get().checked_sub(pages) else {
            return Err(unread(self.pid, end - start));
        };
        self.pages_left.set(left);
        let mut entries = vec![0; pages.min(ENTRIES_AT_ONCE as u64) as usize * 8];
        let mut run: Option<Range<u64>> = None;
        let mut at = start;
        while at < end {
            time_limit::check()?;
            let count = ((end - at) / self.page).min(ENTRIES_AT_ONCE as u64);
            let room = entries.get_mut(..count as usize * 8).unwrap_or_default();
            self.pagemap
                .read_exact_at(room, at / self.page * 8)
                .map_err(|error| words(self.pid, "pagemap", &error))?;
            for entry in room.chunks_exact(8) {
                let entry = u64::from_ne_bytes(entry.first_chunk().copied().unwrap_or_default());
                let next = at + self.page;
                match &mut run {
                    _ if entry & (PRESENT | SWAPPED) == 0 => {
                        run.take().into_iter().for_each(&mut each)
                    }
                    Some(run) => run.end = next,
                    None => run = Some(at..next),
                }
                at = next;
            }
        }
        run.into_iter().for_each(each);
        Ok(())
    }

    /// Reads a page-aligned range of resident pages into `room`. Pages of zeros are not written, so they take no
    /// memory here if `room` is fresh memory.
    pub(crate) fn read_pages(&self, start: u64, room: &mut [u8]) -> Result<(), String> {
        let page = self.page as usize;
        let mut piece = vec![0; room.len().min(PAGES_AT_ONCE * page)];
        for (number, place) in room.chunks_mut(piece.len().max(1)).enumerate() {
            time_limit::check()?;
            let at = start + (number * PAGES_AT_ONCE * page) as u64;
            let piece = piece.get_mut(..place.len()).unwrap_or_default();
            self.memory
                .read_exact_at(piece, at)
                .map_err(|error| words(self.pid, "mem", &error))?;
            let pages = place.chunks_mut(page).zip(piece.chunks(page));
            for (place, content) in
                pages.filter(|(_, content)| content.iter().any(|byte| *byte != 0))
            {
                place.copy_from_slice(content);
            }
        }
        Ok(())
    }

    /// Reads bytes of a resident page.
    pub(crate) fn read(&self, at: u64, room: &mut [u8]) -> Result<(), String> {
        time_limit::check()?;
        let read = self.memory.read_exact_at(room, at);
        read.map_err(|error| words(self.pid, "mem", &error))
    }

    pub(crate) fn page(&self) -> u64 {
        self.page
    }
}

/// Explains why a file of the process cannot be read, and what would help.
fn words(pid: i32, name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "this user cannot read /proc/{pid}/{name}: run as root, or as the process's user with kernel.yama.ptrace_scope=0; \
             a process can also forbid it (PR_SET_DUMPABLE)"
        ),
        io::ErrorKind::NotFound => format!("process {pid} is gone"),
        _ => format!("/proc/{pid}/{name} cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let heap = region("5581a000-5583b000 rw-p 00000000 00:00 0        [heap]").unwrap();
        assert_eq!((heap.start, heap.len()), (0x5581_a000, 0x21000));
        assert!(heap.anonymous && heap.name == "[heap]");
        let file = region("7f00-7f10 rw-p 00000000 08:01 1234 /lib/libc.so.6").unwrap();
        assert!(!file.anonymous);
        assert!(!region("7f00-7f10 r--p 00000000 00:00 0").unwrap().anonymous);
        assert_eq!(region("nonsense"), None);
    }

    /// Recorded: an arena of HAProxy's worker, which is a child of its master. Half of its connections were not counted.
    #[test]
    fn a_heap_that_a_fork_divided_is_one() {
        let maps = "55d91a16e000-55d91a3ee000 rw-p 00000000 00:00 0 [heap]\n\
                    55d91a3ee000-55d91a7f4000 rw-p 00000000 00:00 0 [heap]\n\
                    7fe6dc000000-7fe6e0000000 rw-p 00000000 00:00 0\n\
                    7fe6e0000000-7fe6e0021000 rw-p 00000000 00:00 0\n\
                    7fe6e0021000-7fe6e043b000 rw-p 00000000 00:00 0\n\
                    7fe6e043b000-7fe6e4000000 ---p 00000000 00:00 0\n\
                    7fe6e5133000-7fe6e5443000 rw-p 00000000 00:00 0\n\
                    7fe6e5443000-7fe6e5445000 rw-p 00000000 00:00 0";
        let found = joined(maps.lines().filter_map(region));
        let sizes: Vec<u64> = found.iter().map(Region::len).collect();
        let arena = 0x43_b000;
        assert_eq!(
            sizes,
            [
                0x68_6000,
                64 << 20,
                arena,
                (64 << 20) - arena,
                0x31_0000,
                0x2000
            ]
        );
    }

    #[test]
    fn this_process_can_be_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        let block = std::hint::black_box(vec![0xa5_u8; 1 << 20]);
        let reader = ProcessMemory::open(own).unwrap();
        let start = (block.as_ptr() as u64).next_multiple_of(reader.page());
        let end = start + 4 * reader.page();
        let mut runs = Vec::new();
        reader.resident(start, end, |run| runs.push(run)).unwrap();
        assert_eq!((runs.len(), runs.first()), (1, Some(&(start..end))));
        let mut bytes = vec![0; (end - start) as usize];
        reader.read_pages(start, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0xa5));
    }
}
