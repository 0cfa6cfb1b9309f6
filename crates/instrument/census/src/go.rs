//! The heap of Go: spans of objects of one size, and stacks.
//!
//! Go's runtime keeps a slice of all its spans in the global variable `mheap_`, after the number of the current sweep.
//! The census finds the slice without symbols by searching the program's variables for dozens of pointers to spans,
//! whose fields are consistent with each other. The layout is that of Go 1.22 to 1.26; spans with another layout do
//! not match and are refused.
//!
//! ```text
//! 24 start   32 pages   50 u16 objects   64 bits of objects that outlived the last collection
//! 88 u32 sweep   96 u16 allocated   98 u8 class   99 u8 state   104 size of an object   112 end
//! ```
//!
//! An object counts if it survived the last collection; objects allocated since then may be garbage. The figures are
//! therefore as of that collection, and a census waits for one ([`collections`]).

use std::io::Read as _;
use std::ops::Range;

use dormouse_measure::proc_files;

use crate::process::{ProcessMemory, Region, regions};
use crate::snapshot::Snapshot;

/// Go maps its heap in pieces of this size, aligned to it. Since Go 1.26 their addresses are random.
const PIECE: u64 = 4 << 20;
const PAGE: u64 = 8192;
const SPAN_BYTES: usize = 120;
/// Maximum number of spans read in a process.
const SPANS_MAX: u64 = 1 << 22;
/// Minimum number of matching spans before a slice counts as the slice of all spans.
const SPANS_MIN: u64 = 8;
/// Maximum bytes of a process's variables that are searched, and number of slices in them that are looked at.
const VARIABLES_MAX: u64 = 512 << 20;
const SLICES_MAX: u32 = 1 << 18;
/// Maximum number of objects in one span: more than the 1,024 objects of 8 bytes in 8 kB, and enough for the longest
/// spans of small objects.
const OBJECTS_MAX: u64 = 8192;

/// Maximum bytes of a program that are searched for Go's mark, and the size of a block.
const PROGRAM_MAX: usize = 64 << 20;
const BLOCK: usize = 1 << 20;

const DEAD: u8 = 0;
const IN_USE: u8 = 1;
const MANUAL: u8 = 2;

/// Adds the spans of a process if it contains Go's runtime. Returns the mappings of Go's heap, in which the stacks of its
/// threads lie, too.
pub(super) fn walk(pid: i32, into: &mut Snapshot) -> Result<Vec<Range<u64>>, String> {
    let regions = regions(pid)?;
    let arenas = Arenas::of(&regions);
    if arenas.0.is_empty() || !is_go(pid) {
        return Ok(Vec::new());
    }
    let reader = ProcessMemory::open(pid)?;
    let Some(spans) = AllSpans::find(&reader, &regions, &arenas) else {
        into.refused.push(format!(
            "process {pid}: the spans of Go's heap were not found; Go 1.22 to 1.26 are supported"
        ));
        into.unread.insert("Go".into());
        return Ok(arenas.0);
    };
    into.go_collections = Some(spans.collections());
    for at in spans.addresses(&reader)? {
        let Some(span) = Span::read(&reader, at, &arenas) else {
            continue;
        };
        span.add(&reader, spans.sweep, into);
    }
    for arena in &arenas.0 {
        reader.resident(arena.start, arena.end, |run| {
            into.heap_bytes += run.end - run.start;
            into.walked_bytes += run.end - run.start;
        })?;
    }
    Ok(arenas.0)
}

/// Returns the number of collections that Go's runtime has finished; `None` if the process has no Go runtime.
pub(super) fn collections(pid: i32) -> Option<u64> {
    let regions = regions(pid).ok()?;
    let arenas = Arenas::of(&regions);
    if arenas.0.is_empty() || !is_go(pid) {
        return None;
    }
    let reader = ProcessMemory::open(pid).ok()?;
    Some(AllSpans::find(&reader, &regions, &arenas)?.collections())
}

/// Mappings that may belong to Go's heap.
struct Arenas(Vec<Range<u64>>);

impl Arenas {
    fn of(regions: &[Region]) -> Self {
        let anonymous = regions.iter().filter(|region| region.anonymous);
        let whole = anonymous.filter(|region| {
            region.start.is_multiple_of(PIECE) && region.len().is_multiple_of(PIECE)
        });
        Self(whole.map(|region| region.start..region.end).collect())
    }

    fn contain(&self, start: u64) -> bool {
        self.0.iter().any(|arena| arena.contains(&start))
    }
}

/// Whether the program was built by Go, which writes a mark at the beginning of its data.
fn is_go(pid: i32) -> bool {
    // The mark is in two pieces so that this program does not contain it.
    let mark = [" Go build", "inf:"].concat();
    let Ok(mut file) = proc_files::open_program(pid) else {
        return false;
    };
    let mut block = vec![0; BLOCK];
    let mut read = 0;
    while read < PROGRAM_MAX
        && let Ok(count @ 1..) = file.read(&mut block)
    {
        read += count;
        let text = block.get(..count).unwrap_or_default();
        // The mark is aligned to 16 bytes, so it never crosses the end of a block.
        if text.chunks(16).any(|piece| {
            piece
                .get(1..)
                .is_some_and(|rest| rest.starts_with(mark.as_bytes()))
        }) {
            return true;
        }
    }
    false
}

/// The slice of all spans.
struct AllSpans {
    at: u64,
    count: u64,
    /// Number of the current sweep; each collection increases it by two.
    sweep: u32,
}

impl AllSpans {
    /// Searches the program's variables: the initialised ones, and after them the zero-initialised ones.
    fn find(reader: &ProcessMemory, regions: &[Region], arenas: &Arenas) -> Option<Self> {
        let mut before_end = None;
        let (mut bytes_left, mut slices_left) = (VARIABLES_MAX, SLICES_MAX);
        for region in regions {
            let follows = before_end == Some(region.start) && region.anonymous;
            if region.is_variables() || follows {
                before_end = Some(region.end);
                let Some(left) = bytes_left.checked_sub(region.len()) else {
                    continue;
                };
                bytes_left = left;
                let found = Self::find_in(reader, region, arenas, &mut slices_left);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    fn find_in(
        reader: &ProcessMemory,
        region: &Region,
        arenas: &Arenas,
        slices_left: &mut u32,
    ) -> Option<Self> {
        let mut bytes = vec![0; usize::try_from(region.len()).ok()?];
        reader
            .resident(region.start, region.end, |run| {
                let place = (run.start - region.start) as usize..(run.end - region.start) as usize;
                if let Some(room) = bytes.get_mut(place) {
                    let _ = reader.read_pages(run.start, room);
                }
            })
            .ok()?;
        bytes.windows(32).step_by(8).find_map(|four| {
            let mut words = pointers(four);
            let mut word = || words.next();
            let (sweep, at, count, capacity) = (word()?, word()?, word()?, word()?);
            // The sweep number is even and four bytes long.
            let plausible = sweep < u64::from(u32::MAX)
                && sweep.is_multiple_of(2)
                && at.is_multiple_of(8)
                && (SPANS_MIN..=SPANS_MAX).contains(&count)
                && count <= capacity
                && capacity <= 2 * SPANS_MAX;
            if !plausible {
                return None;
            }
            *slices_left = slices_left.checked_sub(1)?;
            let found = Self {
                at,
                count,
                sweep: sweep as u32,
            };
            found.fits(reader, arenas).then_some(found)
        })
    }

    /// Whether the slice's first entries point to spans, some of them in use.
    fn fits(&self, reader: &ProcessMemory, arenas: &Arenas) -> bool {
        let mut first = [0; 8 * SPANS_MIN as usize];
        if reader.read(self.at, &mut first).is_err() {
            return false;
        }
        let spans = pointers(&first).map(|at| Span::read(reader, at, arenas));
        let spans: Option<Vec<Span>> = spans.collect();
        spans.is_some_and(|spans| spans.iter().any(|span| span.state == IN_USE))
    }

    fn collections(&self) -> u64 {
        u64::from(self.sweep) / 2
    }

    fn addresses(&self, reader: &ProcessMemory) -> Result<Vec<u64>, String> {
        let mut bytes = vec![0; 8 * self.count as usize];
        reader.read(self.at, &mut bytes)?;
        Ok(pointers(&bytes).collect())
    }
}

fn pointers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.chunks_exact(8).filter_map(|word| word.first_chunk());
    words.map(|word| u64::from_ne_bytes(*word))
}

/// A run of pages that holds objects of one size, or stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    pages: u64,
    objects: u64,
    alloc_bits: u64,
    mark_bits: u64,
    sweep: u32,
    allocated: u64,
    state: u8,
    object_bytes: u64,
}

impl Span {
    fn read(reader: &ProcessMemory, at: u64, arenas: &Arenas) -> Option<Self> {
        let mut bytes = [0; SPAN_BYTES];
        at.is_multiple_of(8).then_some(())?;
        reader.read(at, &mut bytes).ok()?;
        Self::parse(&bytes, arenas)
    }

    /// Parses a span; `None` if its fields contradict each other.
    fn parse(bytes: &[u8; SPAN_BYTES], arenas: &Arenas) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..at + 8)?.first_chunk()?));
        let half = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..at + 4)?.first_chunk()?));
        let short = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..at + 2)?.first_chunk()?));
        let (start, pages, end) = (word(24)?, word(32)?, word(112)?);
        let span = Self {
            pages,
            objects: u64::from(short(50)?),
            alloc_bits: word(64)?,
            mark_bits: word(72)?,
            sweep: half(88)?,
            allocated: u64::from(short(96)?),
            state: *bytes.get(99)?,
            object_bytes: word(104)?,
        };
        if span.state == DEAD {
            return Some(span);
        }
        let bytes = pages.checked_mul(PAGE).filter(|bytes| *bytes <= 1 << 40)?;
        let in_arena = start.is_multiple_of(PAGE) && arenas.contain(start);
        let fits = match span.state {
            IN_USE => {
                let used = span.objects.checked_mul(span.object_bytes)?;
                span.objects >= 1
                    && span.objects <= OBJECTS_MAX
                    && span.allocated <= span.objects
                    && used <= bytes
                    && end > start
                    && end <= start + bytes
            }
            MANUAL => true,
            _ => false,
        };
        (in_arena && pages > 0 && fits).then_some(span)
    }

    fn add(&self, reader: &ProcessMemory, sweep: u32, into: &mut Snapshot) {
        match self.state {
            IN_USE => {
                let Some(living) = self.living(reader, sweep) else {
                    return;
                };
                let bytes = living * self.object_bytes;
                into.in_use_bytes = into.in_use_bytes.saturating_add(bytes);
                let count = into.go.entry(self.object_bytes).or_default();
                count.blocks += living;
                count.resident_bytes = count.resident_bytes.saturating_add(bytes);
            }
            // A span of small stacks is divided into several stacks; a large stack has its own span.
            MANUAL if self.object_bytes > 0 && self.object_bytes < self.pages * PAGE => {
                into.go_stack_bytes += (self.allocated * self.object_bytes).min(self.pages * PAGE);
            }
            MANUAL => into.go_stack_bytes += self.pages * PAGE,
            _ => {}
        }
    }

    /// Number of objects that survived the last collection. Until a span is swept, that collection's mark bits tell
    /// which.
    fn living(&self, reader: &ProcessMemory, sweep: u32) -> Option<u64> {
        let is_swept = self.sweep == sweep || self.sweep == sweep.wrapping_add(3);
        let bits = if is_swept {
            self.alloc_bits
        } else {
            self.mark_bits
        };
        let mut bytes = vec![0; (self.objects as usize).div_ceil(8)];
        reader.read(bits, &mut bytes).ok()?;
        let bits = bytes
            .iter()
            .map(|byte| u64::from(byte.count_ones()))
            .sum::<u64>();
        Some(bits.min(self.objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARENA: u64 = 0xc0_0000_0000;

    fn arenas() -> Arenas {
        Arenas(std::iter::once(ARENA..ARENA + PIECE).collect())
    }

    fn span(state: u8, objects: u16, allocated: u16, object_bytes: u64) -> [u8; SPAN_BYTES] {
        let mut bytes = [0; SPAN_BYTES];
        let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
        put(24, &(ARENA + PAGE).to_ne_bytes());
        put(32, &1_u64.to_ne_bytes());
        put(50, &objects.to_ne_bytes());
        put(96, &allocated.to_ne_bytes());
        put(99, &[state]);
        put(104, &object_bytes.to_ne_bytes());
        put(112, &(ARENA + 2 * PAGE).to_ne_bytes());
        bytes
    }

    #[test]
    fn the_fields_of_a_span_bind_each_other() {
        let parsed = Span::parse(&span(IN_USE, 8, 5, 1024), &arenas()).unwrap();
        assert_eq!(
            (parsed.objects, parsed.allocated, parsed.object_bytes),
            (8, 5, 1024)
        );
        assert!(Span::parse(&span(IN_USE, 8, 9, 1024), &arenas()).is_none());
        assert!(Span::parse(&span(IN_USE, 9, 5, 1024), &arenas()).is_none());
        assert!(Span::parse(&span(7, 8, 5, 1024), &arenas()).is_none());
        assert!(Span::parse(&span(MANUAL, 0, 3, 2048), &arenas()).is_some());
    }

    #[test]
    fn stacks_are_those_in_use() {
        let own = i32::try_from(std::process::id()).unwrap();
        let reader = ProcessMemory::open(own).unwrap();
        let mut found = Snapshot::default();
        Span::parse(&span(MANUAL, 0, 3, 2048), &arenas())
            .unwrap()
            .add(&reader, 2, &mut found);
        Span::parse(&span(MANUAL, 0, 0, 0), &arenas())
            .unwrap()
            .add(&reader, 2, &mut found);
        assert_eq!(found.go_stack_bytes, 3 * 2048 + PAGE);
    }
}
