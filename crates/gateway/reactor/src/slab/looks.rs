//! The number of times that a slot was looked at, in debug builds: a turn of a worker looks at few slots, however many
//! there are. In release builds this module is empty.

#[cfg(debug_assertions)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    /// Returns how often this thread has looked at a slot.
    pub fn looks() -> u64 {
        LOOKS.with(Cell::get)
    }

    #[inline]
    pub(in crate::slab) fn note_look() {
        LOOKS.with(|looks| looks.set(looks.get() + 1));
    }
}

#[cfg(debug_assertions)]
pub use counted::looks;
#[cfg(debug_assertions)]
pub(super) use counted::note_look;

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(super) fn note_look() {}
