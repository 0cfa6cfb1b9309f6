//! The bodies of the fuzz targets, on a stable toolchain, with seeded input for a bounded time.

#[path = "../../../fuzz/body/open.rs"]
#[allow(unreachable_pub)] // a module of the fuzz target too
mod open_body;

use dormouse_sim::{Random, seeds};

#[test]
fn open() {
    for seed in seeds(20_000) {
        let mut random = Random::new(seed);
        let len = random.below(600);
        let mut data = random.bytes(len);
        shape(&mut random, &mut data);
        let shown = data.clone();
        if std::panic::catch_unwind(move || open_body::run(&data)).is_err() {
            panic!("SEED={seed} input {shown:02x?}");
        }
    }
}

/// Random bytes alone never get past a header: now and then put there what has a meaning.
fn shape(random: &mut Random, data: &mut [u8]) {
    const WORDS: [&[u8]; 12] = [
        &[23, 3, 3, 0],
        &[21, 3, 3, 0],
        &[2, 0, 5, 24, 0, 0, 1, 0],
        &[2, 3, 5, 24, 0, 0, 1, 1],
        &[2, 0, 2, 24, 0],
        &[2, 0, 3, 0, 1, 0],
        &[2, 0, 8, 4, 0, 0, 4, 1, 2, 3, 4],
        &[2, 0, 4, 0, 0, 0, 0],
        &[2, 0, 6, 1, 0, 0, 2, 9, 9],
        &[1, 0, 2, 1, 0],
        &[1, 0, 2, 1, 90],
        &[3, 9, 1, 7],
    ];
    // From the first byte behind the choice, so that the words stand one behind the other.
    let mut at = 1;
    while at < data.len() && !random.once_in(30) {
        let word = WORDS[random.below(WORDS.len())];
        let len = word.len().min(data.len() - at);
        data[at..at + len].copy_from_slice(&word[..len]);
        at += len;
    }
}
