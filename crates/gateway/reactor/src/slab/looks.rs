//! The number of times that a slot was looked at, in debug builds: a turn of a worker looks at few slots, however many
//! there are. In release builds nothing is counted.

use std::cell::Cell;

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// Returns how often this thread has looked at a slot; 0 in a release build.
pub fn looks() -> u64 {
    LOOKS.with(Cell::get)
}

#[inline(always)]
pub(super) fn note_look() {
    if cfg!(debug_assertions) {
        LOOKS.with(|looks| looks.set(looks.get() + 1));
    }
}
