//! The points at which a simulated process may die.
//!
//! Everything that outlives a process changes through calls of this crate: bytes pass through sockets, chunks
//! and slots are allocated and freed, marks are set. In debug builds each such call is a step, at which a
//! simulation can kill its worker. In release builds this module is empty.

/// The action at each step of this thread.
pub type Act = Box<dyn FnMut()>;

#[cfg(debug_assertions)]
mod simulated {
    use super::Act;
    use std::cell::RefCell;

    thread_local! {
        static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    /// Calls `act` at each step of this thread from now on. It may unwind.
    pub fn at_each(act: Option<Act>) {
        ACT.with(|place| *place.borrow_mut() = act);
    }

    pub(crate) fn step() {
        ACT.with(|place| {
            // Steps within the action itself do not call it again.
            if let Ok(mut act) = place.try_borrow_mut()
                && let Some(act) = act.as_mut()
            {
                act();
            }
        });
    }
}

#[cfg(debug_assertions)]
pub use simulated::at_each;
#[cfg(debug_assertions)]
pub(crate) use simulated::step;

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn step() {}

/// Does nothing, because there are no steps.
#[cfg(not(debug_assertions))]
pub fn at_each(_: Option<Act>) {}
