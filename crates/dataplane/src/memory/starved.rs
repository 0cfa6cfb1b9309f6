//! Starved connections: not read because pending memory or kernel memory is short.
//!
//! No event reports free memory: other connections free pending memory, and send queues drain in the
//! kernel. So the worker polls starved connections, first after a millisecond, then at growing
//! intervals, which also grow with their number. A check costs one system call; the connection's
//! interest changes only if the check finds space.

use crate::token::Id;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time until the first check of a connection whose queue may drain at once.
pub(crate) const SOON_MS: u64 = 1;

/// Longest time between two checks of a connection, unless there are too many connections.
pub(crate) const LATE_MS: u64 = 64;

/// Maximum checks per millisecond of all starved connections, about 2 % of the worker's time.
const CHECKS_PER_MS: u64 = 16;

/// Maximum checks per turn.
const CHECKS: usize = 256;

/// The wait of a starved connection, ordered by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StarvedWait {
    check_ms: u64,
    pub(crate) id: Id,
    /// The interval after the check.
    pub(crate) wait_ms: u64,
}

/// The starved connections.
#[derive(Default)]
pub(crate) struct Starved {
    waiting: BinaryHeap<Reverse<StarvedWait>>,
}

impl Starved {
    pub(crate) fn push(&mut self, id: Id, now_ms: u64, wait_ms: u64) {
        let next = (wait_ms * 2).min(LATE_MS);
        let wait_ms = wait_ms.max(self.waiting.len() as u64 / CHECKS_PER_MS);
        self.waiting.push(Reverse(StarvedWait {
            check_ms: now_ms + wait_ms,
            id,
            wait_ms: next,
        }));
    }

    /// Takes the connections whose check is due, at most [`CHECKS`].
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<StarvedWait> {
        let mut due = Vec::new();
        while due.len() < CHECKS
            && let Some(&Reverse(waiting)) = self.waiting.peek()
            && waiting.check_ms <= now_ms
        {
            self.waiting.pop();
            due.push(waiting);
        }
        due
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.check_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_between_checks_grow() {
        let mut starved = Starved::default();
        starved.push((7, 1), 0, SOON_MS);
        let (mut now_ms, mut checks) = (0, Vec::new());
        while now_ms < 300 {
            now_ms = starved.next_deadline_ms().expect("a waiting connection");
            for due in starved.due(now_ms) {
                checks.push(now_ms);
                starved.push(due.id, now_ms, due.wait_ms);
            }
        }
        assert_eq!(checks, [1, 3, 7, 15, 31, 63, 127, 191, 255, 319]);
        assert!(starved.due(300).is_empty());
    }

    /// Checks take at most their share of the time, however many connections wait.
    #[test]
    fn checks_of_many_connections_are_bounded() {
        for many in [100, 5_000, 50_000] {
            let mut starved = Starved::default();
            (0..many).for_each(|index| starved.push((index, 1), 0, SOON_MS));
            let mut checks = 0;
            let seconds = 10;
            for now_ms in 0..seconds * 1000 {
                for due in starved.due(now_ms) {
                    checks += 1;
                    starved.push(due.id, now_ms, due.wait_ms);
                }
            }
            assert!(checks >= u64::from(many), "each connection is checked");
            let most = seconds * 1000 * CHECKS_PER_MS + 2 * u64::from(many);
            assert!(checks <= most, "{checks} checks of {many}");
        }
    }
}
