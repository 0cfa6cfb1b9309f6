//! Tests that a batch leaves neither scalars nor results behind, once the caller has wiped its own.
//!
//! Reads the process's own memory through /proc. One test in this file, so that no other test runs in the process.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use aws_lc_rs::rand;
use dormouse_x25519::{BASE_POINTS, Batch, EightLanes, LANES};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Sixteen bytes are enough to recognise a secret, and too much to leave behind.
type Needle = [u8; 16];

#[test]
fn secrets_are_wiped() {
    let Some(lanes) = EightLanes::detect() else {
        return eprintln!("not tested: this CPU has no AVX-512 IFMA");
    };
    let mut scalars = Box::new([[0; 32]; LANES]);
    let mut results = Box::new([[0; 32]; LANES]);
    rand::fill(scalars.as_flattened_mut()).expect("random bytes");
    lanes.x25519(&scalars, &BASE_POINTS, &mut results);
    let needles: Vec<Needle> = [needles(&scalars), needles(&results)].concat();
    let in_use = search(&needles);
    scalars.as_flattened_mut().fill(0);
    results.as_flattened_mut().fill(0);
    std::hint::black_box((&scalars, &results));
    let left = search(&needles);
    assert!(in_use.len() >= 4 * LANES, "the search finds what is there");
    assert!(left.is_empty(), "{left:?}");
}

/// Parts of each lane's bytes, and of vectors that hold the same word of all lanes; inverted.
fn needles(batch: &Batch) -> Vec<Needle> {
    let inverted = |bytes: &[u8]| std::array::from_fn(|at| !bytes[at]);
    let rows = batch
        .iter()
        .flat_map(|row| [inverted(&row[..16]), inverted(&row[16..])]);
    let columns = (8..24)
        .step_by(8)
        .map(|at| inverted(&[&batch[0][at..at + 8], &batch[1][at..at + 8]].concat()));
    rows.chain(columns).collect()
}

/// Returns which needle lies in which mapping. The search has its own thread, so that it does not overwrite what is left
/// on this thread's stack.
#[inline(never)]
fn search(needles: &[Needle]) -> Vec<(usize, String)> {
    std::thread::scope(|scope| scope.spawn(|| search_memory(needles)).join()).expect("a search")
}

fn search_memory(needles: &[Needle]) -> Vec<(usize, String)> {
    let memory = File::open("/proc/self/mem").expect("our memory");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
    let pair = |bytes: &[u8]| usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
    // Most places are no place of a needle by their first two bytes.
    let mut begins = vec![false; 1 << 16];
    for needle in needles {
        begins[pair(&[!needle[0], !needle[1]])] = true;
    }
    let mut found = Vec::new();
    for map in maps.lines().filter(|map| map.contains(" rw")) {
        let range = map
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let address = |text| u64::from_str_radix(text, 16).expect("an address");
        let (from, to) = range.map_or((0, 0), |(from, to)| (address(from), address(to)));
        // Pages overlap, so that the search also finds needles across a boundary.
        let mut page = [0; 4096 + 16];
        for at in (from..to).step_by(4096) {
            let len = page.len().min((to - at) as usize);
            if memory.read_exact_at(&mut page[..len], at).is_err() {
                continue;
            }
            for window in page[..len]
                .windows(16)
                .filter(|window| begins[pair(window)])
            {
                let is_there =
                    |needle: &Needle| window.iter().zip(needle).all(|(byte, of)| *byte == !of);
                let nth = needles.iter().position(is_there);
                found.extend(nth.map(|nth| (nth, map.to_owned())));
            }
        }
        // The next search must not find it here.
        page.fill(0);
        std::hint::black_box(&page);
    }
    found
}
