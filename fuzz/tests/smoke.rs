//! Runs every target on its seeds and on some mutations, within seconds. `FUZZ_SMOKE=100000` runs more mutations.

use dormouse_fuzz::{TARGETS, mutate};

/// Mutations per target.
const RUNS: u64 = 400;

#[test]
fn every_target_passes_on_seeds_and_mutations() {
    let runs = std::env::var("FUZZ_SMOKE").ok();
    let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    for &target in TARGETS {
        let seeds = target.seeds();
        let seeds = seeds.unwrap_or_else(|error| panic!("seeds of {}: {error}", target.name));
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| mutate::check(target, seed));
        mutate::check(target, &[]);
        (0..runs).for_each(|number| mutate::once(target, &seeds, number));
    }
}

#[test]
fn every_folder_of_seeds_has_a_target() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
    for entry in std::fs::read_dir(folder).expect("the seeds") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        assert!(dormouse_fuzz::Target::named(&name).is_some(), "{name}");
    }
}
