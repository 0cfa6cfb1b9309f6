//! What is counted of a case, and what is only there to make it happen.

use std::hint::black_box;

/// The function in which instructions are counted: callgrind is told its name.
pub const COUNTED_IN: &str = "*watch*every_instruction_in_here*";

/// One round of a case.
pub(crate) type Once = Box<dyn FnMut(Watch)>;

/// Whether the work at hand counts, or only warms up what a process finds cold but once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    counts: bool,
}

impl Watch {
    /// Nothing is counted.
    pub const WARMING_UP: Watch = Watch { counts: false };
    /// What [`Watch::count`] is given is counted.
    pub const COUNTING: Watch = Watch { counts: true };

    /// Does `work`, and counts it if this is the time to.
    pub fn count<R>(self, work: impl FnOnce() -> R) -> R {
        if self.counts {
            every_instruction_in_here(work)
        } else {
            work()
        }
    }
}

/// A function of its own in the binary, which is entered and left, whatever the optimiser thinks of it.
#[inline(never)]
fn every_instruction_in_here<R>(work: impl FnOnce() -> R) -> R {
    black_box(work())
}
