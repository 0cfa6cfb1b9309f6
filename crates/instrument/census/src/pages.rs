//! A sample of a process's anonymous pages: how many bytes are zero and how many pages are duplicates.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::process::{ProcessMemory, regions, smallest_first};

/// Maximum number of pages in a sample.
const PAGES_MAX: usize = 4096;

/// Result of a sample.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PageSample {
    /// Open connections at that time.
    pub connections: u64,
    /// Total number of resident anonymous pages.
    pub resident_pages: u64,
    /// Number of pages in the sample.
    pub looked_at: u64,
    /// Share of pages that contain only zeros.
    pub zero_share: f64,
    /// Address space in bytes that was not looked at because the process maps too much.
    #[serde(default)]
    pub unread_bytes: u64,
    /// Share of zero bytes, counted in words of eight.
    pub zero_bytes_share: f64,
    /// Share of pages whose content occurs more than once; pages of zeros are not counted.
    pub repeated_share: f64,
}

/// A bounded number of pages, evenly spread over all pages seen.
struct Thinned {
    places: Vec<(i32, u64)>,
    seen: u64,
    /// One page in this many is kept.
    step: u64,
}

impl Thinned {
    fn new() -> Self {
        Self {
            places: Vec::new(),
            seen: 0,
            step: 1,
        }
    }

    fn see(&mut self, pid: i32, at: u64) {
        if self.seen.is_multiple_of(self.step) {
            self.places.push((pid, at));
        }
        self.seen += 1;
        if self.places.len() > PAGES_MAX {
            let mut number = 0;
            self.places.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.step *= 2;
        }
    }
}

/// Returns a thinned list of the resident anonymous pages of these processes, and the bytes not looked at.
fn resident_pages(pids: &[i32]) -> Result<(Thinned, u64), String> {
    let (mut pages, mut unread_bytes) = (Thinned::new(), 0);
    for &pid in pids {
        let reader = ProcessMemory::open(pid)?;
        for region in smallest_first(regions(pid)?) {
            let looked = reader.resident(region.start, region.end, |run| {
                for at in run.step_by(reader.page() as usize) {
                    pages.see(pid, at);
                }
            });
            if looked.is_err() {
                unread_bytes += region.len();
            }
        }
    }
    Ok((pages, unread_bytes))
}

pub(super) fn sample(pids: &[i32], connections: u64) -> Result<PageSample, String> {
    let (pages, unread_bytes) = resident_pages(pids)?;
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let (mut looked_at, mut zero_pages, mut zero_words, mut words) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut reader: Option<(i32, ProcessMemory)> = None;
    for (pid, at) in pages.places {
        if reader.as_ref().is_none_or(|(of, _)| *of != pid) {
            reader = Some((pid, ProcessMemory::open(pid)?));
        }
        let Some((_, open)) = &reader else { continue };
        let mut page = vec![0; open.page() as usize];
        // A page may be unmapped while the sample is taken.
        if open.read(at, &mut page).is_err() {
            continue;
        }
        looked_at += 1;
        let zeros = page.chunks_exact(8).filter(|word| **word == [0; 8]).count() as u64;
        let all = page.len() as u64 / 8;
        zero_words += zeros;
        words += all;
        if zeros == all {
            zero_pages += 1;
        } else {
            let mut hasher = DefaultHasher::new();
            page.hash(&mut hasher);
            *seen.entry(hasher.finish()).or_default() += 1;
        }
    }
    if looked_at == 0 {
        return Err("no page is readable".into());
    }
    let repeated: u64 = seen.values().filter(|count| **count > 1).sum();
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    Ok(PageSample {
        connections,
        resident_pages: pages.seen,
        looked_at,
        unread_bytes,
        zero_share: share(zero_pages, looked_at),
        zero_bytes_share: share(zero_words, words),
        repeated_share: share(repeated, looked_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_repetition_are_seen() {
        // So much that it is seen beside the memory of other tests.
        let zeros = std::hint::black_box(vec![0_u8; 1 << 24]);
        let mut touched = zeros.clone();
        touched.fill(7);
        touched.fill(std::hint::black_box(0));
        let same = std::hint::black_box([3_u8; 4096].repeat(1 << 12));
        let own = i32::try_from(std::process::id()).unwrap();
        let sample = sample(&[own], 0).unwrap();
        drop((touched, same));
        assert!(sample.zero_share > 0.05, "{sample:?}");
        assert!(sample.repeated_share > 0.05, "{sample:?}");
        assert!(sample.looked_at <= PAGES_MAX as u64);
    }

    #[test]
    fn few_pages_of_many_are_kept_evenly() {
        let mut pages = Thinned::new();
        (0..100_000).for_each(|at| pages.see(1, at));
        assert_eq!(pages.seen, 100_000);
        assert!((PAGES_MAX / 2..=PAGES_MAX).contains(&pages.places.len()));
        let steps = pages.places.windows(2).map(|two| two[1].1 - two[0].1);
        assert!(
            steps.clone().all(|step| step == pages.step),
            "{}",
            pages.step
        );
    }
}
