//! Places on this machine's cores: audits that compete for a core judge another machine than a user's.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::available_parallelism;

/// Audits of the small servers at a time on one core. They mostly wait, and judge memory, ratios and what is offered.
const PER_CORE: usize = 3;

static TAKEN: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// A place that an audit has until it is dropped.
pub(super) struct Place {
    share: usize,
}

impl Place {
    /// Waits for a core that this audit does not share: the audit's verdict is that of a user, who runs one.
    pub(super) fn whole_core() -> Self {
        Self::take(PER_CORE)
    }

    /// Waits for a part of a core.
    pub(super) fn shared() -> Self {
        Self::take(1)
    }

    fn take(share: usize) -> Self {
        let most = PER_CORE * available_parallelism().map_or(1, usize::from);
        let (taken, freed) = &TAKEN;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken + share > most {
            taken = freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += share;
        Self { share }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (taken, freed) = &TAKEN;
        *taken.lock().unwrap_or_else(PoisonError::into_inner) -= self.share;
        freed.notify_all();
    }
}
