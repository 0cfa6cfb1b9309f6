//! A sample of a process's anonymous pages: how much of them is zero, how much repeats itself.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::process::{ProcessMemory, regions};

/// Most pages in a sample.
const PAGES_MAX: usize = 4096;

/// Result of a sample.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PageSample {
    /// Connections open then.
    pub connections: u64,
    /// Resident anonymous pages altogether.
    pub resident_pages: u64,
    /// Pages that were looked at.
    pub looked_at: u64,
    /// Share of pages with nothing but zeros.
    pub zero_share: f64,
    /// Share of bytes that are zero, in words of eight.
    pub zero_bytes_share: f64,
    /// Share of pages whose content another one has too, zeros not counted.
    pub repeated_share: f64,
}

pub(super) fn sample(pids: &[i32], connections: u64) -> Result<PageSample, String> {
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let (mut resident_pages, mut looked_at, mut zero_pages, mut zero_words, mut words) =
        (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    let mut places = Vec::new();
    for &pid in pids {
        let reader = ProcessMemory::open(pid)?;
        for region in regions(pid)?.iter().filter(|region| region.anonymous) {
            let Ok(resident) = reader.resident(region.start, region.end) else {
                continue;
            };
            let here = resident.iter().enumerate().filter(|(_, here)| **here);
            places
                .extend(here.map(|(index, _)| (pid, region.start + index as u64 * reader.page())));
        }
    }
    resident_pages += places.len() as u64;
    let step = places.len().div_ceil(PAGES_MAX).max(1);
    let mut reader: Option<(i32, ProcessMemory)> = None;
    for (pid, at) in places.into_iter().step_by(step) {
        if reader.as_ref().is_none_or(|(of, _)| *of != pid) {
            reader = Some((pid, ProcessMemory::open(pid)?));
        }
        let Some((_, open)) = &reader else { continue };
        // A page may go while the sample is taken.
        let Ok(page) = open.bytes(at, &[true]) else {
            continue;
        };
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
        return Err("there is no page that can be read".into());
    }
    let repeated: u64 = seen.values().filter(|count| **count > 1).sum();
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    Ok(PageSample {
        connections,
        resident_pages,
        looked_at,
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
        let zeros = std::hint::black_box(vec![0_u8; 1 << 22]);
        let mut touched = zeros.clone();
        touched.fill(7);
        touched.fill(std::hint::black_box(0));
        let same = std::hint::black_box([3_u8; 4096].repeat(1024));
        let own = i32::try_from(std::process::id()).unwrap();
        let sample = sample(&[own], 0).unwrap();
        drop((touched, same));
        assert!(sample.zero_share > 0.05, "{sample:?}");
        assert!(sample.repeated_share > 0.05, "{sample:?}");
        assert!(sample.looked_at <= 2 * PAGES_MAX as u64);
    }
}
