//! Random mutations of seeds, for `make test` and for machines where libFuzzer can't be built.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::Target;

/// Length limit of an input.
const LEN_MAX: usize = 4096;

/// A random number generator (SplitMix64); the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, or 0 if `end` is 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Runs a target on mutations of its seeds for a duration. Returns the number of runs.
pub fn run(target: Target, seeds: &[Vec<u8>], time: Duration) -> u64 {
    let until = Instant::now() + time;
    let mut runs = 0;
    while Instant::now() < until {
        once(target, seeds, runs);
        runs += 1;
    }
    runs
}

/// Runs a target on the mutation with this number.
///
/// # Panics
/// When the target panics; the message contains the input.
pub fn once(target: Target, seeds: &[Vec<u8>], number: u64) {
    let input = mutation(seeds, &mut Random::new(number));
    check(target, &input);
}

/// Runs a target on an input.
///
/// # Panics
/// When the target panics; the message contains the input.
pub fn check(target: Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        let bytes: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{} fails on {bytes}", target.name);
    }
}

fn mutation(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random| seeds.get(random.below(seeds.len())).cloned();
    let mut bytes = pick(random).unwrap_or_default();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        let len = random.below(bytes.len() - at + 1).min(1 + random.below(64));
        match random.below(8) {
            // Flips a bit, sets a random byte, or sets bytes to a value that parsers treat specially.
            0 => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << (len % 8)),
            1 => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte = random.next() as u8),
            2 => {
                let number = [0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', b'"'];
                let number = number[random.below(number.len())];
                bytes
                    .iter_mut()
                    .skip(at)
                    .take(1 + len % 4)
                    .for_each(|byte| *byte = number);
            }
            // Removes, truncates, inserts, repeats, or splices in a piece of another seed.
            3 => drop(bytes.drain(at..at + len)),
            4 => bytes.truncate(at),
            5 => {
                let more: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
                bytes.splice(at..at, more);
            }
            6 => {
                let again = bytes[at..at + len].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let other = pick(random).unwrap_or_default();
                let from = random.below(other.len() + 1);
                bytes.splice(at..at + len, other[from..].iter().copied().take(256));
            }
        }
    }
    bytes.truncate(LEN_MAX);
    bytes
}
