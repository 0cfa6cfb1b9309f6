//! Cooling: free pages of pending memory return to the operating system after a second without use.
//!
//! A bulk stream takes a chunk of pending memory and frees it again every few turns. Returning its pages each time
//! would take a sixth of the stream's CPU time.

use dormouse_reactor::pending::Pending;

/// Interval between two checks. A page that was free during the whole interval is returned.
const INTERVAL_MS: u64 = 1000;

/// Schedule of the checks.
#[derive(Default)]
pub(crate) struct Cooling {
    due_ms: Option<u64>,
}

impl Cooling {
    /// Time of the next check; none while no page is warm.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Returns unneeded pages, if it is time.
    pub(crate) fn turn(&mut self, pending: &mut Pending, now_ms: u64) {
        if self.due_ms.is_some_and(|due_ms| due_ms <= now_ms) {
            pending.cool();
            self.due_ms = None;
        }
        if pending.is_warm() {
            self.due_ms.get_or_insert(now_ms + INTERVAL_MS);
        } else {
            self.due_ms = None;
        }
    }
}
