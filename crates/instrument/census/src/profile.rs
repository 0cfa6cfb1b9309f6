//! CPU profile of a process: sampled instructions by program, library and function.
//!
//! The files that a process has mapped are opened through the kernel's own links (`map_files`), never through a name
//! that the process chose. Reading their symbols is bounded; symbols may be missing because distributions strip them.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;

use dormouse_measure::proc_files;
use dormouse_reactor::process::CpuSample;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use serde::{Deserialize, Serialize};

use crate::time_limit::{PATIENCE, limited};

/// Maximum bytes read of a program or library.
const FILE_MAX: u64 = 256 << 20;
/// Maximum number of files whose symbols are read; those with the most samples come first.
const FILES_MAX: usize = 8;
/// Maximum length of a stored function name.
const NAME_MAX: usize = 120;
/// Maximum number of segments and of symbols of a file that are looked at: real programs have a dozen segments and up to
/// a million symbols. Each symbol is looked up among all segments.
const SEGMENTS_MAX: usize = 64;
const SYMBOLS_MAX: usize = 2 << 20;
/// Maximum bytes of names read from a file, as they are in it: one name may fill the file.
const NAMES_MAX: usize = 16 << 20;
/// Maximum number of entries in a profile.
const SPOTS_MAX: usize = 40;

/// A part of a program that uses CPU time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HotSpot {
    /// Program or library, for example `libcrypto.so.3`; `kernel`; `code made at run time`.
    pub object: String,
    /// Function, if the file names it.
    pub function: Option<String>,
    /// Share of the samples, from 0 to 1.
    pub share: f64,
}

/// An executable mapping.
struct Code {
    start: u64,
    end: u64,
    offset: u64,
    /// Address range as in the name of the kernel's link: `7f00-7f10`.
    range: String,
    name: String,
}

impl Code {
    fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns the offset in the file of an address within the mapping.
    fn offset_of(&self, address: u64) -> u64 {
        (address - self.start).wrapping_add(self.offset)
    }
}

/// Groups the samples of these processes by the code that ran, the most frequent first.
///
/// # Errors
/// If a file that a process has mapped cannot be read in time.
pub fn hot_spots(samples: &[CpuSample], pids: &[i32]) -> Result<Vec<HotSpot>, String> {
    let (samples, pids) = (samples.to_vec(), pids.to_vec());
    limited(PATIENCE, move || hot_spots_now(&samples, &pids))
}

fn hot_spots_now(samples: &[CpuSample], pids: &[i32]) -> Vec<HotSpot> {
    let mut counts: BTreeMap<(String, Option<String>), u64> = BTreeMap::new();
    let mut all = 0;
    for &pid in pids {
        let own: Vec<_> = samples.iter().filter(|sample| sample.pid == pid).collect();
        all += own.len();
        if own.is_empty() {
            continue;
        }
        let codes = codes(&proc_files::maps(pid).unwrap_or_default());
        let symbols = symbols_of(pid, &codes, &own);
        for sample in own {
            *counts.entry(place(sample, &codes, &symbols)).or_default() += 1;
        }
    }
    let mut spots: Vec<_> = counts
        .into_iter()
        .map(|((object, function), count)| HotSpot {
            object,
            function,
            share: count as f64 / all.max(1) as f64,
        })
        .collect();
    spots.sort_by(|a, b| b.share.total_cmp(&a.share));
    spots.truncate(SPOTS_MAX);
    spots
}

fn place(
    sample: &CpuSample,
    codes: &[Code],
    symbols: &HashMap<String, Symbols>,
) -> (String, Option<String>) {
    if sample.in_kernel {
        return ("kernel".into(), None);
    }
    let code = codes.iter().find(|code| code.contains(sample.address));
    let Some(code) = code.filter(|code| !code.name.is_empty()) else {
        return ("code made at run time".into(), None);
    };
    let offset = code.offset_of(sample.address);
    let function = symbols.get(&code.name).and_then(|of| of.0.get(&offset));
    (code.name.clone(), function.cloned())
}

/// Returns the executable mappings of a process.
fn codes(maps: &str) -> Vec<Code> {
    let code = |line: &str| {
        let mut words = line.split_whitespace();
        let range = words.next()?;
        let (start, end) = range.split_once('-')?;
        words.next()?.contains('x').then_some(())?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let name = words.nth(2).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        Some(Code {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            offset,
            range: range.to_owned(),
            name: dormouse_printable::line_up_to(name, NAME_MAX).to_string(),
        })
    };
    maps.lines().filter_map(code).collect()
}

/// Reads the symbols of the files with the most samples.
fn symbols_of(pid: i32, codes: &[Code], samples: &[&CpuSample]) -> HashMap<String, Symbols> {
    let offsets_in = |code: &Code| -> Vec<u64> {
        let inside = samples
            .iter()
            .filter(|sample| !sample.in_kernel && code.contains(sample.address));
        inside
            .map(|sample| code.offset_of(sample.address))
            .collect()
    };
    let mut hot: Vec<_> = codes
        .iter()
        .map(|code| (offsets_in(code), code))
        .filter(|(offsets, code)| !offsets.is_empty() && !code.name.is_empty())
        .collect();
    hot.sort_by_key(|(offsets, _)| std::cmp::Reverse(offsets.len()));
    hot.truncate(FILES_MAX);
    let mut all: HashMap<String, Symbols> = HashMap::new();
    for (offsets, code) in hot {
        // A file may be mapped in several parts.
        if let Some(read) = Symbols::read(pid, &code.range, &offsets) {
            all.entry(code.name.clone()).or_default().0.extend(read.0);
        }
    }
    all
}

/// Names of the functions at some offsets of a file.
#[derive(Default)]
struct Symbols(HashMap<u64, String>);

impl Symbols {
    fn read(pid: i32, range: &str, offsets: &[u64]) -> Option<Self> {
        let file = proc_files::open_mapped(pid, range).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
        Self::parse(&bytes, offsets)
    }

    /// Only functions that were sampled are named: a file may have millions of others, and names of any length.
    fn parse(bytes: &[u8], offsets: &[u64]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let segments: Vec<_> = file
            .segments()
            .take(SEGMENTS_MAX)
            .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
            .collect();
        let offset_of = |address: u64| {
            let (start, _, offset) = segments
                .iter()
                .find(|(start, size, _)| address >= *start && address - start < *size)?;
            (address - start).checked_add(*offset)
        };
        let all = file.symbols().chain(file.dynamic_symbols());
        let all = all.take(SYMBOLS_MAX);
        let functions = all.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let mut functions: Vec<_> = functions
            .filter_map(|symbol| Some((offset_of(symbol.address())?, symbol)))
            .collect();
        functions.sort_by_key(|(start, _)| *start);
        let mut names: HashMap<u64, Option<String>> = HashMap::new();
        let mut left = NAMES_MAX;
        let mut at = |offset: u64| {
            let after = functions.partition_point(|(start, _)| *start <= offset);
            let (start, symbol) = functions.get(after.checked_sub(1)?)?;
            (offset - start < symbol.size()).then_some(())?;
            let of_symbol = || {
                (left > 0).then_some(())?;
                let bytes = symbol.name_bytes().ok();
                // Without an end, it was searched for to the end of the file.
                left = left.saturating_sub(bytes.map_or(NAMES_MAX, <[u8]>::len));
                Some(name(std::str::from_utf8(bytes?).ok()?))
            };
            names.entry(*start).or_insert_with(of_symbol).clone()
        };
        let named = offsets.iter().map(|offset| (*offset, at(*offset)));
        let named = named.filter_map(|(offset, name)| Some((offset, name?)));
        Some(Self(named.collect()))
    }
}

/// Returns the names of the functions at these offsets of a program.
pub(crate) fn names(bytes: &[u8], offsets: &[u64]) -> Vec<String> {
    let symbols = Symbols::parse(bytes, offsets).unwrap_or_default();
    symbols.0.into_values().collect()
}

fn name(mangled: &str) -> String {
    let plain = format!("{:#}", rustc_demangle::demangle(mangled));
    dormouse_printable::line_up_to(&plain, NAME_MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_of_this_test() -> u64 {
        std::hint::black_box((0..100_u64).sum())
    }

    #[test]
    fn an_address_becomes_a_function() {
        assert_eq!(a_function_of_this_test(), 4950);
        let pid = i32::try_from(std::process::id()).unwrap();
        let sample = CpuSample {
            pid,
            address: a_function_of_this_test as fn() -> u64 as usize as u64,
            in_kernel: false,
        };
        let kernel = CpuSample {
            in_kernel: true,
            ..sample
        };
        let spots = hot_spots(&[sample, sample, kernel], &[pid]).unwrap();
        assert_eq!(spots[1].object, "kernel");
        assert!((spots[0].share - 2.0 / 3.0).abs() < 1e-9, "{spots:?}");
        let function = spots[0].function.as_deref().unwrap();
        assert!(function.contains("a_function_of_this_test"), "{spots:?}");
    }

    #[test]
    fn only_sampled_functions_are_named_in_all_parts_of_a_file() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let sample = |address: usize| CpuSample {
            pid,
            address: address as u64,
            in_kernel: false,
        };
        let own = sample(a_function_of_this_test as fn() -> u64 as usize);
        let other = sample(an_address_becomes_a_function as fn() as usize);
        let maps = proc_files::maps(pid).unwrap();
        let whole = |sample: &CpuSample| {
            let mut codes = codes(&maps).into_iter();
            codes.find(|code| code.contains(sample.address)).unwrap()
        };
        // The mapping as two, with one sample in each.
        let middle = own.address.max(other.address);
        let (mut first, mut second) = (whole(&own), whole(&own));
        assert_eq!(first.range, whole(&other).range);
        first.end = middle;
        second.offset = second.offset_of(middle);
        second.start = middle;
        let codes = [first, second];
        let symbols = symbols_of(pid, &codes, &[&own, &other]);
        assert_eq!(symbols.values().map(|of| of.0.len()).sum::<usize>(), 2);
        for sample in [own, other] {
            assert!(place(&sample, &codes, &symbols).1.is_some());
        }
    }

    /// An ELF file of 64 bits: so many empty segments and a whole one, and functions with these names of 16 bytes each,
    /// at the offsets 0, 16, ….
    fn elf(empty_segments: u16, names: &[&str]) -> Vec<u8> {
        let (mut symbols, mut strings) = (vec![0; 24], vec![0]);
        for (number, name) in names.iter().enumerate() {
            symbols.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
            symbols.extend([0x12, 0, 1, 0]);
            symbols.extend((0x1000 + 16 * number as u64).to_le_bytes());
            symbols.extend(16_u64.to_le_bytes());
            strings.extend(name.bytes());
            strings.push(0);
        }
        // The parser expects everything at multiples of 8.
        strings.resize(strings.len().next_multiple_of(8), 0);
        let segments = usize::from(empty_segments) + 1;
        let symbols_at = 64 + 56 * segments;
        let strings_at = symbols_at + symbols.len();
        let sections_at = strings_at + strings.len();
        let words = |words: &[usize]| -> Vec<u8> {
            let bytes = words.iter().flat_map(|word| (*word as u64).to_le_bytes());
            bytes.collect()
        };
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        file.extend(words(&[0, 64, sections_at]));
        file.extend([0, 0, 0, 0, 64, 0, 56, 0]);
        file.extend((empty_segments + 1).to_le_bytes());
        file.extend([64, 0, 3, 0, 2, 0]);
        for number in 1..=segments {
            let size = if number == segments { 1 << 20 } else { 0 };
            file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
            file.extend(words(&[0, 0x1000, 0x1000, size, size, 0x1000]));
        }
        file.extend([symbols, strings].concat());
        file.extend([0; 64]);
        for (kind, at, end, link, of) in [
            (2, symbols_at, strings_at, 2, 24),
            (3, strings_at, sections_at, 0, 0),
        ] {
            file.extend([0, 0, 0, 0, kind, 0, 0, 0]);
            file.extend(words(&[0, 0, at, end - at, link, 0, of]));
        }
        file
    }

    #[test]
    fn a_function_is_looked_up_among_few_segments() {
        assert_eq!(names(&elf(0, &["first", "second"]), &[20]), ["second"]);
        let few = u16::try_from(SEGMENTS_MAX).unwrap() - 1;
        assert_eq!(names(&elf(few, &["first"]), &[0]), ["first"]);
        assert!(names(&elf(few + 1, &["first"]), &[0]).is_empty());
    }

    #[test]
    fn few_bytes_of_names_are_read() {
        let long = "x".repeat(NAMES_MAX / 2);
        let functions = [&*long, &*long, "third"];
        assert_eq!(names(&elf(0, &functions), &[0, 16, 32]).len(), 2);
        assert_eq!(names(&elf(0, &functions), &[0, 32]).len(), 2);
    }

    #[test]
    fn bytes_that_are_not_a_program_have_no_symbols() {
        assert!(Symbols::parse(b"\x7fELF\x02\x01\x01", &[0]).is_none());
        assert!(Symbols::parse(&[0; 4096], &[0]).is_none());
        assert!(codes("nonsense\n7f00-7f10 r-xp zz 0 0 /x").is_empty());
    }
}
