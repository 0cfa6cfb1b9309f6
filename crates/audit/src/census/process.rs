//! Reads another process's memory: its mappings, and only those pages that are resident, so that
//! the reading itself makes nothing resident.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Pages read in one call.
const PAGES_AT_ONCE: usize = 256;

/// A mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Private, writable and of no file.
    pub(super) anonymous: bool,
    /// What follows the addresses: `[heap]`, a path, or nothing.
    pub(super) name: String,
}

impl Region {
    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// The mappings of a process.
pub(super) fn regions(pid: i32) -> Result<Vec<Region>, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))
        .map_err(|error| words(pid, "maps", &error))?;
    let mut regions: Vec<Region> = Vec::new();
    for found in text.lines().filter_map(region) {
        match regions.last_mut() {
            // What a child adds to the heap that it inherited is a mapping of its own, side by side.
            Some(last)
                if last.end == found.start && found.name == "[heap]" && last.name == "[heap]" =>
            {
                last.end = found.end;
            }
            _ => regions.push(found),
        }
    }
    Ok(regions)
}

fn region(line: &str) -> Option<Region> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let inode = words.nth(2)?;
    let name = words.next().unwrap_or_default().to_owned();
    Some(Region {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        anonymous: inode == "0" && rights.starts_with("rw") && rights.ends_with('p'),
        name,
    })
}

/// A process whose memory is read.
pub(super) struct ProcessMemory {
    pid: i32,
    memory: File,
    pagemap: File,
    page: u64,
}

impl ProcessMemory {
    pub(super) fn open(pid: i32) -> Result<Self, String> {
        let open = |name: &str| {
            File::open(format!("/proc/{pid}/{name}")).map_err(|error| words(pid, name, &error))
        };
        Ok(Self {
            pid,
            memory: open("mem")?,
            pagemap: open("pagemap")?,
            page: dormouse_measure::page_bytes(),
        })
    }

    /// Which pages of a range are resident (or swapped out): one flag per page.
    pub(super) fn resident(&self, start: u64, end: u64) -> Result<Vec<bool>, String> {
        let pages = usize::try_from((end - start) / self.page).unwrap_or(0);
        let mut entries = vec![0; pages * 8];
        self.pagemap
            .read_exact_at(&mut entries, start / self.page * 8)
            .map_err(|error| words(self.pid, "pagemap", &error))?;
        let flag = |entry: &[u8]| {
            let entry = entry.first_chunk().copied().unwrap_or_default();
            u64::from_ne_bytes(entry) & (PRESENT | SWAPPED) != 0
        };
        Ok(entries.chunks_exact(8).map(flag).collect())
    }

    /// The bytes of a page-aligned range; pages that are not resident are zeros and stay so.
    pub(super) fn bytes(&self, start: u64, resident: &[bool]) -> Result<Vec<u8>, String> {
        let page = self.page as usize;
        let mut bytes = vec![0; resident.len() * page];
        let mut at = 0;
        while at < resident.len() {
            let here = resident.get(at).copied().unwrap_or(false);
            let rest = resident.get(at..).unwrap_or_default();
            let run = rest.iter().take(PAGES_AT_ONCE).take_while(|r| **r == here);
            let run = run.count().max(1);
            if here {
                let (from, to) = (at * page, (at + run) * page);
                if let Some(room) = bytes.get_mut(from..to) {
                    self.memory
                        .read_exact_at(room, start + from as u64)
                        .map_err(|error| words(self.pid, "mem", &error))?;
                }
            }
            at += run;
        }
        Ok(bytes)
    }

    /// Some bytes of a page that is resident.
    pub(super) fn read(&self, at: u64, room: &mut [u8]) -> Result<(), String> {
        let read = self.memory.read_exact_at(room, at);
        read.map_err(|error| words(self.pid, "mem", &error))
    }

    pub(super) fn page(&self) -> u64 {
        self.page
    }
}

/// Why it may not be read, and what would help.
fn words(pid: i32, name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "/proc/{pid}/{name} may not be read: be its owner with kernel.yama.ptrace_scope=0, or root; \
             or the process forbids it (PR_SET_DUMPABLE)"
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

    #[test]
    fn this_process_can_be_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        let block = std::hint::black_box(vec![0xa5_u8; 1 << 20]);
        let reader = ProcessMemory::open(own).unwrap();
        let start = (block.as_ptr() as u64).next_multiple_of(reader.page());
        let resident = reader.resident(start, start + 4 * reader.page()).unwrap();
        assert_eq!(resident, [true; 4]);
        let bytes = reader.bytes(start, &resident).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0xa5));
    }
}
