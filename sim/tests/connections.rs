//! Whole connections through the data path, by seed.
//!
//! `SEED=n` replays one seed with a trace of every call; `SIM_SEEDS=n` runs so many.

use dormouse_sim::{Scenario, World};

/// Seeds that one run of the tests takes.
const SEEDS: u64 = 400;

#[test]
fn connections_keep_their_bytes_and_their_ends() {
    let replayed = std::env::var("SEED").ok();
    if let Some(seed) = replayed {
        let seed = seed.parse().expect("SEED is a number");
        let done = World::run(Scenario::of(seed), None, true);
        println!("{done:?}");
        done.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        return;
    }
    let count = std::env::var("SIM_SEEDS").ok();
    let count = count.map_or(SEEDS, |count| count.parse().expect("SIM_SEEDS is a number"));
    let mut lives = 0;
    let begun = std::time::Instant::now();
    for seed in 1..=count {
        match World::run(Scenario::of(seed), None, false) {
            Ok(report) => lives += report.lives,
            Err(violation) => println!("seed {seed}: {violation}"),
        }
    }
    println!("{lives} lives in {:?}", begun.elapsed());
}
