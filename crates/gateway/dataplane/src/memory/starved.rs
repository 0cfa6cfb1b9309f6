//! Starved connections: not read because pending memory or kernel memory is short.
//!
//! An event reports that the destination of a connection has drained (if it is a TCP socket), and that
//! more of a record has arrived; no event reports free memory. So the worker checks starved
//! connections, first after a millisecond, then at doubled intervals: a connection is noticed at most
//! as long after its time as it has waited before, and one whose peer takes nothing soon costs nothing.
//! A check applies the rule of the step itself, so a connection is only woken if it will be read.

use crate::memory::waits::Waits;
use crate::token::Id;

/// Time until the first check of a connection whose queue may drain at once.
pub(crate) const SOON_MS: u64 = 1;

/// Time until the first check of a connection whose event an event reports: the check only finds that
/// there is memory again without it.
pub(crate) const LATER_MS: u64 = 64;

/// Longest time between two checks of a connection, unless there are too many connections.
const LATE_MS: u64 = 1_000;

/// Maximum checks per millisecond of all starved connections, about 2 % of the worker's time. As many first checks
/// are not delayed by the others.
const CHECKS_PER_MS: u64 = 16;

/// Maximum checks per turn.
const CHECKS: usize = 256;

/// A starved connection whose check is due.
pub(crate) struct StarvedWait {
    pub(crate) id: Id,
    /// The interval after the check.
    pub(crate) wait_ms: u64,
}

/// The starved connections.
#[derive(Default)]
pub(crate) struct Starved {
    waits: Waits<u64>,
    /// The time of the last connections, and how many of them asked for a check soon.
    soon: (u64, u64),
}

impl Starved {
    /// Adds a connection, or replaces its wait.
    pub(crate) fn push(&mut self, id: Id, now_ms: u64, wait_ms: u64) {
        let next = (wait_ms * 2).min(LATE_MS);
        let wait_ms = match wait_ms {
            ..=SOON_MS if self.is_prompt(now_ms) => wait_ms,
            _ => wait_ms.max(self.waits.len() as u64 / CHECKS_PER_MS),
        };
        self.waits.push(id, now_ms + wait_ms, next);
    }

    /// Whether a first check need not wait for those of the other connections: if its peer reads, it finds that the
    /// connection's own bytes have left.
    fn is_prompt(&mut self, now_ms: u64) -> bool {
        if self.soon.0 != now_ms {
            self.soon = (now_ms, 0);
        }
        self.soon.1 += 1;
        self.soon.1 <= CHECKS_PER_MS
    }

    /// Removes a connection that is closed or read again.
    pub(crate) fn forget(&mut self, id: Id) {
        self.waits.forget(id);
    }

    /// Updates the index of a moved slot.
    pub(crate) fn moved(&mut self, from: u32, to: u32, generation: u32) {
        self.waits.moved(from, to, generation);
    }

    /// Takes the connections whose check is due, at most [`CHECKS`].
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<StarvedWait> {
        let next = || self.waits.next_due(now_ms);
        let due = std::iter::from_fn(next).map(|(id, wait_ms)| StarvedWait { id, wait_ms });
        due.take(CHECKS).collect()
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.waits.next_deadline_ms()
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
        while now_ms < 5_000 {
            now_ms = starved.next_deadline_ms().expect("a waiting connection");
            for due in starved.due(now_ms) {
                checks.push(now_ms);
                starved.push(due.id, now_ms, due.wait_ms);
            }
        }
        let doubled = [1, 3, 7, 15, 31, 63, 127, 255, 511, 1_023];
        assert_eq!(checks[..10], doubled);
        assert_eq!(checks[10..], [2_023, 3_023, 4_023, 5_023]);
        assert!(starved.due(now_ms).is_empty());
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

    /// Nor if each check finds memory and the step after it finds none.
    #[test]
    fn checks_of_connections_that_starve_again_are_bounded() {
        for many in [10, 5_000, 50_000] {
            let mut starved = Starved::default();
            (0..many).for_each(|index| starved.push((index, 1), 0, SOON_MS));
            let mut checks = 0;
            let seconds = 10;
            for now_ms in 0..seconds * 1000 {
                for due in starved.due(now_ms) {
                    checks += 1;
                    starved.push(due.id, now_ms, SOON_MS);
                }
            }
            let most = seconds * 1000 * 2 * CHECKS_PER_MS + u64::from(many);
            assert!(checks <= most, "{checks} checks of {many}");
        }
    }

    /// A connection whose peer reads does not wait for thousands whose peers do not.
    #[test]
    fn the_first_check_of_one_among_many_is_prompt() {
        let mut starved = Starved::default();
        (0..5_000).for_each(|index| starved.push((index, 1), 0, LATER_MS));
        starved.push((9_999, 1), 5, SOON_MS);
        assert_eq!(starved.next_deadline_ms(), Some(5 + SOON_MS));
    }
}
