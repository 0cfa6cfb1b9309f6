//! The points at which a simulated process may die.
//!
//! Everything that outlives a process changes through calls of this crate: bytes pass through sockets, chunks
//! and slots are allocated and freed, marks are set. In debug builds each such call is a step, at which a
//! simulation can kill its worker. In release builds it does nothing.

use std::cell::RefCell;

/// The action at each step of this thread.
pub type Act = Box<dyn FnMut()>;

thread_local! {
    static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

/// Calls `act` at each step of this thread from now on. It may unwind. Does nothing in a release build.
pub fn at_each(act: Option<Act>) {
    if cfg!(debug_assertions) {
        ACT.with(|place| *place.borrow_mut() = act);
    }
}

#[inline(always)]
pub(crate) fn step() {
    if cfg!(debug_assertions) {
        act();
    }
}

fn act() {
    ACT.with(|place| {
        // Steps within the action itself do not call it again.
        if let Ok(mut act) = place.try_borrow_mut()
            && let Some(act) = act.as_mut()
        {
            act();
        }
    });
}
