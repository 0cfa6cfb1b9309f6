//! The generations of CPython's garbage collector. CPython frees most objects when their last reference goes; the
//! collector frees those in cycles of references, which asyncio makes for each connection.
//!
//! The collector's state lies in the interpreter's variables, or on the heap in 3.9 and 3.10. CPython exports no address
//! of it, but one of its fields is a pointer to the state's own beginning. The layout is that of 3.8 to 3.13:
//!
//! ```text
//! three generations: 0 next   8 previous   16 u32 threshold   20 u32 count
//! 72 pointer to the first generation   80 permanent generation   104 three times: collections, collected, uncollectable
//! ```

use std::ops::Range;

use crate::process::{ProcessMemory, Region, regions};

const GENERATION: usize = 24;
const GENERATIONS: usize = 3;
const FIRST_POINTER: usize = GENERATION * GENERATIONS;
const STATISTICS: usize = FIRST_POINTER + 8 + GENERATION;
const STATE_BYTES: usize = STATISTICS + GENERATION * GENERATIONS;
const THRESHOLD_MAX: u32 = 10_000_000;
/// Maximum bytes of variables, and of the beginning of the heap, that are searched; and of all of them.
const SEARCHED_MAX: u64 = 16 << 20;
const ALL_SEARCHED_MAX: u64 = 512 << 20;

/// Progress of the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generations {
    /// Collections of the youngest objects.
    pub collections: u64,
    /// Objects that were made and not freed since the last one.
    pub young: u64,
    /// Collections of the oldest objects, which free all garbage.
    pub full_collections: u64,
    /// Objects of garbage that collections of the older two generations have freed.
    pub freed_old: u64,
}

impl Generations {
    /// The sum over two processes.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            collections: self.collections.saturating_add(other.collections),
            young: self.young.saturating_add(other.young),
            full_collections: self.full_collections.saturating_add(other.full_collections),
            freed_old: self.freed_old.saturating_add(other.freed_old),
        }
    }

    /// Whether the process has made so many objects since then that each of these connections may have left one.
    pub fn may_have_garbage_of(&self, connections: u64, since: &Self) -> bool {
        self.collections > since.collections
            || self.young.saturating_sub(since.young) > connections / 2
    }
}

/// Finds the state of a process and reads the collector's progress.
pub(in crate::python) fn progress(pid: i32) -> Option<Generations> {
    let regions = regions(pid).ok()?;
    let reader = ProcessMemory::open(pid).ok()?;
    let places = places(&regions);
    let mut left = ALL_SEARCHED_MAX;
    places.into_iter().find_map(|place| {
        left = left.checked_sub(place.end - place.start)?;
        let bytes = copied(&reader, place.clone())?;
        find(&bytes, place.start)
    })
}

/// Memory that may hold the state: variables of programs and libraries, with the zero-initialised ones that follow, and
/// the beginning of the heap.
fn places(regions: &[Region]) -> Vec<Range<u64>> {
    let mut places = Vec::new();
    let mut variables_end = None;
    for region in regions {
        let follows = variables_end == Some(region.start) && region.anonymous;
        if region.is_variables() || follows {
            variables_end = Some(region.end);
        }
        if region.is_variables() || follows || region.name == "[heap]" {
            places.push(region.start..region.end.min(region.start + SEARCHED_MAX));
        }
    }
    places
}

/// Copies a range; pages that are not resident stay zero.
fn copied(reader: &ProcessMemory, place: Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(place.end - place.start).ok()?];
    let copy = |run: Range<u64>| {
        let of_run = (run.start - place.start) as usize..(run.end - place.start) as usize;
        if let Some(room) = bytes.get_mut(of_run) {
            let _ = reader.read_pages(run.start, room);
        }
    };
    reader.resident(place.start, place.end, copy).ok()?;
    Some(bytes)
}

/// Searches bytes that begin at an address.
pub(super) fn find(bytes: &[u8], start: u64) -> Option<Generations> {
    let states = bytes
        .windows(STATE_BYTES)
        .step_by(8)
        .zip((start..).step_by(8));
    states.into_iter().find_map(|(state, at)| parse(state, at))
}

fn parse(state: &[u8], at: u64) -> Option<Generations> {
    let word = |place: usize| {
        let eight = state.get(place..place + 8)?.first_chunk()?;
        Some(u64::from_ne_bytes(*eight))
    };
    if at == 0 || word(FIRST_POINTER)? != at {
        return None;
    }
    let half = |place: usize| {
        let four = state.get(place..place + 4)?.first_chunk()?;
        Some(u32::from_ne_bytes(*four))
    };
    let is_pointer = |word: u64| word != 0 && word.is_multiple_of(8);
    let generations = (0..GENERATIONS).map(|number| number * GENERATION);
    let statistic = |field: usize| {
        let places = generations.clone();
        let values = places.map(|place| word(STATISTICS + place + field));
        values.collect::<Option<Vec<_>>>()
    };
    let are_lists = generations.clone().all(|place| {
        let ends = word(place).zip(word(place + 8));
        ends.is_some_and(|(next, previous)| is_pointer(next) && is_pointer(previous))
            && half(place + 16).is_some_and(|threshold| threshold <= THRESHOLD_MAX)
    });
    let (collections, freed) = (statistic(0)?, statistic(8)?);
    // Older generations are collected less often.
    if !are_lists || !collections.is_sorted_by(|younger, older| younger >= older) {
        return None;
    }
    Some(Generations {
        collections: *collections.first()?,
        young: u64::from(half(20)?),
        full_collections: *collections.last()?,
        freed_old: freed.iter().skip(1).copied().fold(0, u64::saturating_add),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x5580_0000_1000;

    /// The state of an interpreter that has collected 120, 11 and 2 times, with 345 young objects, and freed
    /// 900, 80 and 10.
    fn state() -> Vec<u8> {
        let mut words = Vec::new();
        for (generation, (threshold, count)) in
            [(700_u64, 345), (10, 4), (10, 1)].iter().enumerate()
        {
            let list = AT + (generation * GENERATION) as u64;
            words.extend([list, list, threshold | (count << 32)]);
        }
        words.extend([AT, AT + 80, AT + 80, 0]);
        words.extend([120, 900, 0, 11, 80, 0, 2, 10, 0]);
        words
            .iter()
            .flat_map(|word: &u64| word.to_ne_bytes())
            .collect()
    }

    #[test]
    fn the_state_points_to_itself() {
        let expected = Generations {
            collections: 120,
            young: 345,
            full_collections: 2,
            freed_old: 90,
        };
        assert_eq!(parse(&state(), AT), Some(expected));
        let within = [vec![0; 64], state(), vec![1; 100]].concat();
        assert_eq!(find(&within, AT - 64), Some(expected));
        assert_eq!(find(&within, AT), None);
    }

    #[test]
    fn a_connection_without_an_object_in_a_cycle_leaves_no_garbage() {
        let before = parse(&state(), AT).unwrap();
        let young = |more| Generations {
            young: before.young + more,
            ..before
        };
        assert!(!young(40).may_have_garbage_of(250, &before));
        assert!(young(250).may_have_garbage_of(250, &before));
        let collected = Generations {
            collections: before.collections + 1,
            ..young(0)
        };
        assert!(collected.may_have_garbage_of(250, &before));
    }

    /// They come from the memory of another process.
    #[test]
    fn counts_of_any_size_are_added() {
        let most = Generations {
            collections: u64::MAX,
            young: u64::MAX,
            full_collections: u64::MAX,
            freed_old: u64::MAX,
        };
        assert_eq!(most.with(most), most);
        assert!(!most.may_have_garbage_of(u64::MAX, &most));
    }

    #[test]
    fn other_bytes_are_no_state() {
        let broken = |place: usize, byte: u8| {
            let mut state = state();
            state[place] = byte;
            parse(&state, AT)
        };
        // The pointer; a threshold; more collections of the oldest generation than of the youngest.
        assert!(broken(72, 1).is_none() && broken(19, 0xff).is_none());
        assert!(broken(STATISTICS + 2 * GENERATION, 200).is_none());
        assert_eq!(parse(&[0; STATE_BYTES], 0), None);
        assert_eq!(find(&[], AT), None);
    }
}
