//! Whole connections through the data path, by seed; and the proof that the checks find what is
//! wrong.
//!
//! `SEED=n` replays one seed with a trace of every call. `SIM_SEEDS=n` runs so many seeds, from
//! `SIM_FIRST` on.

use dormouse_sim::{Command, Faults, Sabotage, Scenario, Violation, World};
use std::time::Instant;

/// Seeds that one run of the tests takes.
const SEEDS: u64 = 120;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

#[test]
fn connections_keep_their_bytes_and_their_ends() {
    if let Some(seed) = number("SEED") {
        let report = World::run(Scenario::of(seed), None, true);
        return println!("{report:?}");
    }
    let first = number("SIM_FIRST").unwrap_or(1);
    let seeds = first..first + number("SIM_SEEDS").unwrap_or(SEEDS);
    let begun = Instant::now();
    let (mut lives, mut deaths, mut failed) = (0, 0, Vec::new());
    for seed in seeds {
        match World::run(Scenario::of(seed), None, false) {
            Ok(report) => {
                lives += report.lives;
                deaths += report.deaths;
            }
            Err(violation) => {
                println!("seed {seed}: {violation}");
                println!(
                    "  SEED={seed} cargo test -p dormouse-sim --test connections connections_keep -- --nocapture"
                );
                failed.push(seed);
            }
        }
    }
    println!(
        "{lives} connections, {deaths} deaths of workers in {:?}",
        begun.elapsed()
    );
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// A quiet scenario in which only what is broken can be seen.
fn calm(seed: u64) -> Scenario {
    Scenario {
        faults: Faults::default(),
        command: (Command::None, 0),
        kills: [u64::MAX; 2],
        short_timeouts: false,
        low_limits: false,
        ..Scenario::of(seed)
    }
}

/// The first violation that a broken kernel leads to.
fn found(sabotage: Sabotage, change: impl Fn(&mut Scenario)) -> Option<Violation> {
    (1..=60).find_map(|seed| {
        let mut scenario = calm(seed);
        change(&mut scenario);
        World::run(scenario, Some(sabotage), false).err()
    })
}

#[test]
fn a_byte_that_is_lost_changed_or_repeated_is_found() {
    for sabotage in [
        Sabotage::LoseByte,
        Sabotage::ChangeByte,
        Sabotage::RepeatBytes,
    ] {
        let violation = found(sabotage, |_| {});
        println!("{sabotage:?}: {violation:?}");
        assert!(violation.is_some(), "{sabotage:?}");
    }
}

#[test]
fn an_end_that_is_forgotten_or_false_is_found() {
    let forgotten = found(Sabotage::ForgetEnd, |_| {}).expect("found");
    println!("{forgotten}");
    let is_false = found(Sabotage::EndForReset, |scenario| scenario.aborts = 2).expect("found");
    assert!(
        is_false.what.contains("the speaker has aborted"),
        "{is_false}"
    );
}

#[test]
fn a_worker_that_leaks_or_waits_for_nothing_is_found() {
    let leak = found(Sabotage::KeepDescriptor, |_| {}).expect("found");
    println!("{leak}");
    let stuck = found(Sabotage::NeverWritable, |_| {}).expect("found");
    println!("{stuck}");
}

#[test]
fn a_successor_that_goes_on_with_a_busy_connection_is_found() {
    let violation = (1..=40).find_map(|n| {
        found(Sabotage::ForgetBusy, |scenario| {
            scenario.kills = [n * 37, u64::MAX];
            scenario.clients = scenario.clients.min(2);
        })
    });
    println!("{violation:?}");
    assert!(violation.is_some());
}
