//! How much an audit does.

use std::time::Duration;

/// How thorough an audit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Some ten seconds.
    Quick,
    /// A couple of minutes.
    Normal,
    /// As long as it takes to be sure.
    Thorough,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Sizes {
    pub(in super::super) n: u64,
    pub(in super::super) rounds: u32,
    pub(in super::super) per_round: u64,
    pub(in super::super) lanes: u32,
    pub(in super::super) tries: usize,
    pub(in super::super) resumed: u64,
    pub(in super::super) quiet: Duration,
    pub(in super::super) settle: Duration,
    pub(in super::super) after: Duration,
    pub(in super::super) bulk_bytes: u64,
}

impl Effort {
    /// What it comes to.
    pub(super) fn sizes(self) -> Sizes {
        let s = Duration::from_secs;
        match self {
            Self::Quick => Sizes {
                n: 250,
                rounds: 5,
                per_round: 250,
                lanes: 16,
                tries: 16,
                resumed: 200,
                quiet: s(1),
                settle: Duration::from_millis(250),
                after: Duration::from_millis(500),
                bulk_bytes: 2_000_000,
            },
            Self::Normal => Sizes {
                n: 2000,
                rounds: 5,
                per_round: 3000,
                lanes: 50,
                tries: 40,
                resumed: 1500,
                quiet: s(10),
                settle: s(1),
                after: s(5),
                bulk_bytes: 32_000_000,
            },
            Self::Thorough => Sizes {
                n: 4700,
                rounds: 6,
                per_round: 20_000,
                lanes: 500,
                tries: 200,
                resumed: 10_000,
                quiet: s(60),
                settle: s(2),
                after: s(30),
                bulk_bytes: 128_000_000,
            },
        }
    }
}
