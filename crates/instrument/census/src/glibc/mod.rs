//! The heap of glibc's malloc, walked from outside. Chunks lie in three kinds of memory:
//!
//! - the main arena: the `[heap]` mapping, from its first byte to the top chunk;
//! - other arenas: mappings that begin at a multiple of 64 MiB with a `heap_info`; the first mapping of an arena also
//!   contains its `malloc_state`;
//! - large chunks with mappings of their own, flagged `IS_MMAPPED`.
//!
//! The process keeps running, so a walk that does not end exactly at the end of its heap is repeated.
//!
//! The process controls the contents of its memory and may be hostile. A size read from there therefore only affects
//! counts; it never decides how much is read or allocated here.

mod free_lists;
mod heap;

use std::ops::Range;
use std::time::Duration;

use dormouse_measure::limits;

use self::free_lists::FreeLists;
use self::heap::{ALIGN, CHUNK_HEAD, FLAGS, Heap, may_begin};
use crate::process::{HEAP_ALIGN, ProcessMemory, Region, regions};
use crate::snapshot::Snapshot;

const IS_MMAPPED: u64 = 2;
/// Maximum bytes of `heap_info` and `malloc_state` before the first chunk of a non-main heap.
const HEAD_MAX: u64 = 4096;
/// A larger mapping is the program's own and not a large chunk of malloc.
const MAPPED_MAX: u64 = 1 << 32;
/// Bytes of a free chunk that `malloc_trim` keeps before the pages that it returns.
const TRIM_KEEPS: u64 = 48;
const TRIES: usize = 4;
/// Time until heaps of which one has changed while it was copied are copied again.
const CHANGE_PAUSE: Duration = Duration::from_millis(2);
/// Maximum bytes of heaps that are copied; half of the free memory if that is less.
const COPIED_MAX: u64 = 8 << 30;

/// Why a walk failed.
enum Failure {
    /// It may succeed the next time: the heap has changed meanwhile.
    Passing(String),
    /// The heaps are larger than the room for copies.
    Large,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Passing(why)
    }
}

/// Walks all heaps of a process.
pub(super) fn walk(pid: i32) -> Result<Snapshot, String> {
    walk_within(pid, COPIED_MAX.min(limits::free_bytes() / 2))
}

/// Explains the limit of the copies.
fn may_be_copied(room: u64) -> String {
    let mib = room >> 20;
    format!(
        "the {mib} MiB that may be copied (half of the memory that is free here, and at most 8 GiB): run the audit where more is free"
    )
}

fn walk_within(pid: i32, room: u64) -> Result<Snapshot, String> {
    let mut found = walk_once(pid, room);
    for _ in 1..TRIES {
        match &found {
            Ok(snapshot) if snapshot.uncounted == 0 => break,
            Err(Failure::Large) => break,
            Ok(_) | Err(Failure::Passing(_)) => {}
        }
        std::thread::sleep(CHANGE_PAUSE);
        found = walk_once(pid, room);
    }
    found.map_err(|failure| match failure {
        Failure::Passing(why) => why,
        Failure::Large => format!("its heaps are larger than {}", may_be_copied(room)),
    })
}

/// `room`: bytes for the copies of all heaps together. A process with many threads has hundreds.
fn walk_once(pid: i32, whole_room: u64) -> Result<Snapshot, Failure> {
    let mut room = whole_room;
    let regions = regions(pid)?;
    let reader = ProcessMemory::open(pid)?;
    let mut snapshot = Snapshot::default();
    let (mut heaps, mut arenas, mut main_top) = (Vec::new(), Vec::new(), None);
    let (mut unread_bytes, mut changing_bytes) = (0, 0);
    for region in regions.iter().filter(|region| region.anonymous) {
        if region.name == "[heap]" {
            if region.len() > room {
                return Err(Failure::Large);
            }
            let heap = Heap::read(&reader, region.start, region.end)?;
            let top = heap.top().ok_or_else(|| {
                "its heap is not that of glibc's malloc, or changed during every attempt to read it"
                    .to_owned()
            })?;
            main_top = Some(region.start + top);
            room = room.saturating_sub(heap.resident_bytes());
            heaps.push(heap);
        } else if region.name.is_empty() && region.start.is_multiple_of(HEAP_ALIGN) {
            // The kernel merges full heaps with adjacent ones into one mapping.
            for start in (region.start..region.end).step_by(HEAP_ALIGN as usize) {
                let end = region.end.min(start + HEAP_ALIGN);
                match thread_heap(&reader, start..end, room)? {
                    Some(ThreadHeap::Whole(heap, arena)) => {
                        room = room.saturating_sub(heap.resident_bytes());
                        heaps.push(heap);
                        arenas.push(arena);
                    }
                    Some(ThreadHeap::Changing(bytes)) => changing_bytes += bytes,
                    None => break,
                }
            }
        } else if region.name.is_empty() && region.len() <= MAPPED_MAX {
            unread_bytes += mapped(&reader, region, room, &mut snapshot);
        }
    }
    if unread_bytes > 0 {
        let (mib, copied) = (unread_bytes >> 20, may_be_copied(whole_room));
        snapshot.refused.push(format!(
            "process {pid}: {mib} MiB in large blocks were counted but not read, because all copies together would be larger than {copied}"
        ));
    }
    if changing_bytes > 0 {
        snapshot.refused.push(format!(
            "process {pid}: {} KiB in heaps of threads were not counted, because they changed during every attempt to read them",
            changing_bytes >> 10
        ));
        snapshot.uncounted += 1;
    }
    heaps.sort_by_key(|heap| heap.start);
    arenas.sort_unstable();
    arenas.dedup();
    let mut free = FreeLists::find(&heaps, &arenas);
    if let Some(top) = main_top {
        free.add_main(&heaps, top, &reader, &regions);
    }
    for heap in &heaps {
        count(heap, &free, &mut snapshot);
    }
    Ok(snapshot)
}

/// Walks bytes that all count as resident and returns the number of blocks in use.
pub(super) fn walk_bytes(bytes: &[u8]) -> u64 {
    let heaps = [Heap::of_bytes(bytes.to_vec())];
    let free = FreeLists::find(&heaps, &[0]);
    let mut found = Snapshot::default();
    let [heap] = &heaps;
    if heap.top().is_some() {
        count(heap, &free, &mut found);
    }
    found.sizes.values().map(|count| count.blocks).sum()
}

/// Counts the chunks of one heap.
fn count(heap: &Heap, free: &FreeLists, into: &mut Snapshot) {
    into.heap_bytes += heap.len();
    into.walked_bytes += heap.resident_bytes();
    let mut pages = FreeBytesOfPages(vec![0; heap.pages()]);
    // Adjacent free chunks form one run: malloc joins those of fast bins before it returns pages.
    let mut run: Option<(u64, u64)> = None;
    let is_block = |chunk: &heap::Chunk| {
        let address = heap.start + chunk.at;
        chunk.in_use && !free.of_threads.contains(&address) && !free.fast.contains(&address)
    };
    for chunk in heap.chunks() {
        let is_cached = free.of_threads.contains(&(heap.start + chunk.at));
        if is_block(&chunk) || is_cached {
            pages.add_run(heap, run.take(), into);
        }
        if is_block(&chunk) {
            let size = chunk.size;
            into.in_use_bytes += size;
            let count = into.sizes.entry(size).or_default();
            count.blocks += 1;
            count.zero_bytes += heap.zeros(chunk.at + 16, chunk.end() + 8);
            count.resident_bytes += heap.resident_in(chunk.at, chunk.end());
        } else if is_cached {
            pages.add_run(heap, Some((chunk.at, chunk.end())), into);
        } else {
            let start = run.map_or(chunk.at, |(start, _)| start);
            run = Some((start, chunk.end()));
        }
    }
    pages.add_run(heap, run.take(), into);
    for chunk in heap.chunks().filter(is_block) {
        if pages.is_mostly_free(heap, chunk.at) {
            *into.pins.entry(chunk.size).or_default() += 1;
        }
    }
}

/// Free resident bytes of each page that `malloc_trim` would not return.
struct FreeBytesOfPages(Vec<u32>);

impl FreeBytesOfPages {
    /// Counts a run of adjacent free chunks between two offsets.
    fn add_run(&mut self, heap: &Heap, run: Option<(u64, u64)>, into: &mut Snapshot) {
        let Some((from, to)) = run else { return };
        let page = heap.page();
        let whole = (from + TRIM_KEEPS).next_multiple_of(page)..to / page * page;
        for (piece, is_resident) in heap.pieces(from..to) {
            if !is_resident {
                continue;
            }
            let bytes = piece.end - piece.start;
            into.free_bytes += bytes;
            if whole.contains(&piece.start) && piece.end <= whole.end {
                into.returnable_bytes += bytes;
            } else if let Some(free) = self.0.get_mut((piece.start / page) as usize) {
                *free += bytes as u32;
            }
        }
    }

    fn is_mostly_free(&self, heap: &Heap, at: u64) -> bool {
        let free = self.0.get((at / heap.page()) as usize).copied();
        u64::from(free.unwrap_or(0)) * 2 > heap.page()
    }
}

/// A heap of an arena that is not the main one.
enum ThreadHeap {
    /// Its copy and the address of the arena's state.
    Whole(Heap, u64),
    /// Its bytes; threads changed it while it was copied.
    Changing(u64),
}

/// Reads the heap that may begin a mapping; `None` if none does.
fn thread_heap(
    reader: &ProcessMemory,
    place: Range<u64>,
    room: u64,
) -> Result<Option<ThreadHeap>, Failure> {
    let Ok(head) = Heap::read(reader, place.start, place.start + reader.page()) else {
        return Ok(None);
    };
    // `heap_info`: the arena, the arena's previous heap, and how much of this one is used.
    let (Some(arena), Some(previous), Some(size)) = (head.word(0), head.word(8), head.word(16))
    else {
        return Ok(None);
    };
    // An arena's state lies in its first heap, after `heap_info`.
    let is_first = arena - arena % HEAP_ALIGN == place.start;
    let is_arena = arena.is_multiple_of(ALIGN) && (1..HEAD_MAX).contains(&(arena % HEAP_ALIGN));
    let is_linked = is_first == (previous == 0) && previous.is_multiple_of(HEAP_ALIGN);
    let may_be_used = size.is_multiple_of(reader.page()) && (1..=HEAP_ALIGN).contains(&size);
    if !is_arena || !is_linked || !may_be_used {
        return Ok(None);
    }
    if size > place.end - place.start {
        // It has grown since the mappings were listed.
        return Ok(Some(ThreadHeap::Changing(size)));
    }
    if size > room {
        return Err(Failure::Large);
    }
    let mut heap = Heap::read(reader, place.start, place.start + size)?;
    let begins = if is_first { arena % HEAP_ALIGN } else { 32 };
    // The first chunk follows `malloc_state`, whose size depends on the version.
    for at in (begins..begins + HEAD_MAX).step_by(ALIGN as usize) {
        heap.begin_at(at);
        if may_begin(&heap, at) && heap.top().is_some() {
            return Ok(Some(ThreadHeap::Whole(heap, arena)));
        }
    }
    Ok(Some(ThreadHeap::Changing(size)))
}

/// Adds large chunks with mappings of their own; the kernel merges adjacent ones into one region. Returns the bytes of
/// chunks that were counted but not read, because each is larger than `room`: another census may have room for them, and
/// the two must be comparable.
fn mapped(reader: &ProcessMemory, region: &Region, room: u64, into: &mut Snapshot) -> u64 {
    let (mut at, mut unread) = (region.start, 0);
    while at < region.end {
        let Ok(head) = Heap::read(reader, at, at + reader.page()) else {
            return unread;
        };
        let (Some(before), Some(size)) = (head.word(0), head.word(8)) else {
            return unread;
        };
        let length = size & !FLAGS;
        let fits = length >= reader.page() && length <= region.end - at;
        if before != 0
            || size & FLAGS != IS_MMAPPED
            || !fits
            || !length.is_multiple_of(reader.page())
        {
            return unread;
        }
        let is_read = length <= room;
        let Ok((resident, zeros)) = mapped_chunk(reader, at..at + length, is_read) else {
            return unread;
        };
        if !is_read {
            unread += length;
        }
        into.heap_bytes += length;
        into.walked_bytes += resident;
        into.in_use_bytes += length;
        let count = into.sizes.entry(length).or_default();
        count.blocks += 1;
        count.zero_bytes += zeros;
        count.resident_bytes += resident;
        at += length;
    }
    unread
}

/// Counts the resident bytes of a chunk, and its zero bytes if it is to be read.
fn mapped_chunk(
    reader: &ProcessMemory,
    place: Range<u64>,
    is_read: bool,
) -> Result<(u64, u64), String> {
    if is_read {
        let chunk = Heap::read(reader, place.start, place.end)?;
        return Ok((chunk.resident_bytes(), chunk.zeros(CHUNK_HEAD, chunk.len())));
    }
    let mut resident = 0;
    reader.resident(place.start, place.end, |run| {
        resident += run.end - run.start
    })?;
    Ok((resident, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a heap of chunks with these sizes, each in use or free, and a top chunk after them.
    fn heap(chunks: &[(u64, bool)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut before_in_use = true;
        for &(size, in_use) in chunks.iter().chain(&[(64, true)]) {
            let at = bytes.len();
            bytes.resize(at + size as usize, 0);
            let field = size | u64::from(before_in_use);
            bytes[at + 8..at + 16].copy_from_slice(&field.to_ne_bytes());
            before_in_use = in_use;
        }
        bytes
    }

    fn counted(bytes: Vec<u8>) -> Snapshot {
        let heaps = [Heap::of_bytes(bytes)];
        let mut found = Snapshot::default();
        count(&heaps[0], &FreeLists::find(&heaps, &[]), &mut found);
        found
    }

    #[test]
    fn chunks_are_counted_by_size_and_use() {
        let found = counted(heap(&[
            (32, true),
            (48, false),
            (16912, true),
            (16912, true),
        ]));
        assert_eq!(found.sizes[&16912].blocks, 2);
        assert_eq!(found.sizes[&32].blocks, 1);
        assert_eq!(found.free_bytes, 48 + 64);
        assert_eq!(found.in_use_bytes, 32 + 2 * 16912);
    }

    #[test]
    fn only_whole_free_pages_are_returnable() {
        // Four free pages at whose ends a page is shared with blocks in use.
        let found = counted(heap(&[(2048, true), (4 * 4096, false), (2048, true)]));
        assert_eq!(found.returnable_bytes, 3 * 4096);
        assert_eq!(found.free_bytes, 4 * 4096 + 64);
        // Small blocks that pin their pages: one of 48 bytes in the middle of each page.
        let pinned: Vec<_> = (0..8)
            .flat_map(|_| [(2048, false), (48, true), (2000, false)])
            .collect();
        let found = counted(heap(&pinned));
        assert_eq!(found.returnable_bytes, 0);
        assert_eq!(found.pins[&48], 8);
    }

    #[test]
    fn free_chunks_of_a_thread_cache_are_not_in_use() {
        let (cache, block) = (0x290, 48);
        let mut bytes = heap(&[(cache, true), (block, true), (block, true), (block, true)]);
        let user = |index: u64| cache + block * index + 16;
        // The list of 48-byte blocks: the second block, then the third. Links are mangled.
        let first = 16 + 128 + 8 * (block / 16 - 2) as usize;
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        put(first, user(1));
        put(user(1) as usize, user(2) ^ (user(1) >> 12));
        put(user(2) as usize, user(2) >> 12);
        let found = counted(bytes.clone());
        assert_eq!(found.sizes[&block].blocks, 1);
        assert_eq!(found.free_bytes, 2 * block + 64);
        // A block of that size whose words are no valid links is an ordinary block.
        bytes[first] = 8;
        assert_eq!(counted(bytes).sizes[&block].blocks, 3);
    }

    #[test]
    fn a_damaged_heap_is_not_counted() {
        let mut broken = heap(&[(32, true), (48, true)]);
        broken[8] = 0xff;
        assert_eq!(Heap::of_bytes(broken.clone()).top(), None);
        assert_eq!(walk_bytes(&broken), 0);
        assert_eq!(walk_bytes(&[0; 64]), 0);
    }

    /// Set in a process that only holds blocks.
    #[cfg(target_env = "gnu")]
    const HOLDER: &str = "DORMOUSE_TEST_HOLDS_BLOCKS";

    /// Starts a process that runs only this test, which ends in [`hold`]. Its heaps do not change while they are
    /// walked; those of this process do, in other tests and by the walk itself.
    #[cfg(target_env = "gnu")]
    fn holder(test: &str) -> std::process::Child {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("glibc::tests::{test}"), "--nocapture"])
            .env(HOLDER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            said.map(Result::unwrap).any(|line| line.ends_with(HOLDER)),
            "the process ended early"
        );
        child
    }

    /// Keeps the blocks until the other process has seen enough.
    #[cfg(target_env = "gnu")]
    fn hold() {
        println!("{HOLDER}");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        std::process::exit(0);
    }

    #[cfg(target_env = "gnu")]
    fn walk_holder(test: &str, room: u64) -> Result<Snapshot, String> {
        let mut child = holder(test);
        let found = walk_within(i32::try_from(child.id()).unwrap(), room);
        drop(child.stdin.take());
        child.wait().unwrap();
        found
    }

    /// Each thread has an arena of its own, and each arena alone fits.
    #[test]
    #[cfg(target_env = "gnu")]
    fn all_heaps_together_are_limited() {
        const THREADS: usize = 4;
        if std::env::var_os(HOLDER).is_some() {
            let full = std::sync::Barrier::new(THREADS + 1);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let blocks: Vec<Vec<u8>> = (0..1000).map(|_| vec![0x5a; 8000]).collect();
                        full.wait();
                        full.wait();
                        drop(blocks);
                    });
                }
                full.wait();
                hold();
            });
        }
        let refused = walk_holder("all_heaps_together_are_limited", 16 << 20);
        let why = refused.map(|_| ()).expect_err("32 MB were copied");
        assert!(why.contains("are larger than the 16 MiB"), "{why}");
    }

    /// The room changes between two censuses.
    #[test]
    #[cfg(target_env = "gnu")]
    fn a_block_with_its_own_mapping_counts_whether_or_not_it_is_read() {
        // Larger than malloc's largest threshold for such a mapping.
        let mut block = vec![0_u8; 64 << 20];
        block[..1 << 20].fill(0x5a);
        let reader = ProcessMemory::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        let start = block.as_ptr() as u64 - CHUNK_HEAD;
        let end = (start + CHUNK_HEAD + block.len() as u64).next_multiple_of(reader.page());
        let line = format!("{start:x}-{end:x} rw-p 00000000 00:00 0");
        let region = crate::process::region(&line).unwrap();
        let [(unread, without), (0, read)] = [0, u64::MAX].map(|room| {
            let mut found = Snapshot::default();
            (mapped(&reader, &region, room, &mut found), found)
        }) else {
            panic!("the block was not read");
        };
        drop(block);
        assert_eq!(unread, end - start);
        assert_eq!(read.in_use_bytes, end - start);
        assert_eq!(without.in_use_bytes, read.in_use_bytes);
        assert_eq!(without.walked_bytes, read.walked_bytes);
        let resident = |of: &Snapshot| of.sizes[&(end - start)].resident_bytes;
        assert!(resident(&read) >= 1 << 20);
        assert_eq!(resident(&without), resident(&read));
    }

    /// Counts the blocks of 23,456 bytes, a size that no other code allocates.
    #[cfg(target_env = "gnu")]
    fn blocks_of_the_test(snapshot: &Snapshot) -> u64 {
        let near = snapshot.sizes.range(23_456..23_500);
        near.map(|(_, count)| count.blocks).sum()
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn blocks_of_another_process_are_found() {
        if std::env::var_os(HOLDER).is_some() {
            let blocks: Vec<Vec<u8>> = (0..300).map(|_| vec![0x5a; 23_456]).collect();
            hold();
            drop(blocks);
        }
        let snapshot = walk_holder("blocks_of_another_process_are_found", 1 << 30).unwrap();
        assert_eq!(blocks_of_the_test(&snapshot), 300);
        assert_eq!(snapshot.refused, [""; 0]);
    }

    /// Each heap of an arena has 64 MiB; full ones lie side by side in one mapping.
    #[test]
    #[cfg(target_env = "gnu")]
    fn an_arena_may_have_many_heaps() {
        const BLOCKS: usize = 9000;
        if std::env::var_os(HOLDER).is_some() {
            let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![0x5a; 23_456]).collect();
            hold();
            drop(blocks);
        }
        let snapshot = walk_holder("an_arena_may_have_many_heaps", 1 << 30).unwrap();
        assert_eq!(blocks_of_the_test(&snapshot), BLOCKS as u64);
    }

    /// A heap that changes cannot always be read; it is never left out without a word.
    #[test]
    #[cfg(target_env = "gnu")]
    fn a_heap_that_changes_is_counted_or_named() {
        if std::env::var_os(HOLDER).is_some() {
            let blocks: Vec<Vec<u8>> = (0..300).map(|_| vec![0x5a; 23_456]).collect();
            std::thread::spawn(hold);
            loop {
                let more: Vec<Vec<u8>> = (1..100).map(|nth| vec![0x5a; nth * 100]).collect();
                drop(more);
                assert_eq!(blocks.len(), 300);
            }
        }
        for _ in 0..10 {
            let snapshot = walk_holder("a_heap_that_changes_is_counted_or_named", 1 << 30).unwrap();
            let is_named = snapshot.uncounted == 1 && snapshot.refused[0].contains("changed");
            let found = blocks_of_the_test(&snapshot);
            assert!(found == 300 || is_named, "{found}: {:?}", snapshot.refused);
        }
    }
}
