//! The moments between which a process may die.
//!
//! Everything that outlives a process changes by the calls of this crate: bytes leave and enter
//! sockets, chunks and slots are taken and freed, marks are set. In debug builds each of them is a
//! step, at which a simulation can let its worker die. In release builds there is nothing here.

/// What is done at each step of this thread.
pub type Act = Box<dyn FnMut()>;

#[cfg(debug_assertions)]
mod simulated {
    use super::Act;
    use std::cell::RefCell;

    thread_local! {
        static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    /// From now on `act` is called at each step of this thread. It may unwind.
    pub fn at_each(act: Option<Act>) {
        ACT.with(|place| *place.borrow_mut() = act);
    }

    pub(crate) fn step() {
        ACT.with(|place| {
            // An act which makes steps itself is not called for them.
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

/// Does nothing: there are no steps.
#[cfg(not(debug_assertions))]
pub fn at_each(_: Option<Act>) {}
