//! Tables in shared memory, which all processes of a gateway see.
//!
//! | table | written by | read by |
//! |---|---|---|
//! | [`counters`], [`latency`] | workers, main | control |
//! | [`clients`], with [`pace`] | workers | workers |
//! | [`backends`] | workers, main | workers, control |
//! | [`traffic`], with [`ages`] | workers | control |
//! | [`client_sessions`] | workers, main | workers, main |
//!
//! Each table has a fixed size and no locks: a process that dies during a write blocks no other process.
#![forbid(unsafe_code)]

use dormouse_reactor::shared;
use std::collections::BTreeMap;

pub mod ages;
pub mod backends;
pub mod client_sessions;
pub mod clients;
pub mod counters;
pub mod hash;
pub mod latency;
pub mod pace;
pub mod retired_places;
pub mod traffic;

/// Dimensions of a table, by its name.
pub type Dimensions = BTreeMap<String, Vec<u64>>;

/// The dimensions of all tables in this build. Two builds with equal dimensions expect the same length and the same
/// places in each table, for equal numbers of workers and connections.
pub fn dimensions() -> Dimensions {
    let counters = [shared::COMMON, shared::WORDS];
    let all: [(&str, &[usize]); 5] = [
        ("backends", &backends::DIMENSIONS),
        ("clients", &clients::DIMENSIONS),
        ("counters", &counters),
        ("sessions", &client_sessions::DIMENSIONS),
        ("traffic", &traffic::DIMENSIONS),
    ];
    let numbers = |dimensions: &[usize]| dimensions.iter().map(|&n| n as u64).collect();
    all.into_iter()
        .map(|(name, dimensions)| (name.to_owned(), numbers(dimensions)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::Backends;
    use crate::traffic::Traffic;

    /// Every worker has its own part of a table. A process that expects another number of workers would count in
    /// the parts of others.
    #[test]
    fn tables_for_another_number_of_workers_are_refused() {
        for workers in 1..=20 {
            let backends = Backends::create(workers).expect("memory");
            let traffic = Traffic::create(workers).expect("memory");
            let counters = shared::Shared::create("test", workers as usize).expect("memory");
            for other in 1..=40 {
                let adopted = [
                    Backends::adopt(backends.fds(), other, 0).is_ok(),
                    Traffic::adopt(traffic.fd(), other, 0).is_ok(),
                    shared::Shared::adopt(counters.fd(), other as usize).is_ok(),
                ];
                assert_eq!(adopted, [workers == other; 3], "{workers} as {other}");
            }
            backends.fds().close();
            traffic.fd().close();
            counters.fd().close();
        }
    }

    #[test]
    fn dimensions_name_every_table() {
        let names: Vec<String> = dimensions().into_keys().collect();
        let expected = ["backends", "clients", "counters", "sessions", "traffic"];
        assert_eq!(names, expected);
    }
}
