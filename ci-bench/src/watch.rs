//! Separation of a case's counted work from its uncounted preparation.

use std::hint::black_box;

/// The name pattern of the function in which callgrind counts instructions.
pub const COUNTED_IN: &str = "*watch*every_instruction_in_here*";

/// One round of a case.
pub(crate) type Once = Box<dyn FnMut(Watch)>;

/// Whether instructions are counted now, or the round only fills caches, tables and sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    counts: bool,
}

impl Watch {
    /// Counts nothing.
    pub const WARMING_UP: Watch = Watch { counts: false };
    /// Counts the work passed to [`Watch::count`].
    pub const COUNTING: Watch = Watch { counts: true };

    /// Does `work`; counts its instructions unless this is a warm-up.
    pub fn count<R>(self, work: impl FnOnce() -> R) -> R {
        if self.counts {
            every_instruction_in_here(work)
        } else {
            work()
        }
    }
}

/// A function that the optimiser must not inline: callgrind counts between its entry and its return.
#[inline(never)]
fn every_instruction_in_here<R>(work: impl FnOnce() -> R) -> R {
    black_box(work())
}
