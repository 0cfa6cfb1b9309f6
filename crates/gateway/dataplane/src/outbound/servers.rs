//! Health of TLS servers.

use crate::bursts::QUIET_MS;
use crate::numbers::Numbers;
use std::collections::HashMap;

/// The shortest and the longest time for which a failed server is skipped.
const SKIP_MS: std::ops::Range<u64> = 1_000..60_000;

/// Id of a server: its route, and its index in the route's list.
type ServerId = (u16, usize);

#[derive(Clone, Copy, Default)]
struct Health {
    skip_until_ms: u64,
    streak: u32,
}

/// Recent failures of servers.
#[derive(Default)]
pub(crate) struct Servers {
    health: HashMap<ServerId, Health>,
    /// Time of the last log line about a server, and the number of failures since.
    logged: HashMap<ServerId, (u64, u64)>,
}

impl Servers {
    /// Chooses the server to try next: the first in order that is not skipped, else the one whose skip
    /// time ends first.
    pub(crate) fn choose(
        &self,
        route: u16,
        targets: usize,
        tried: &[usize],
        now_ms: u64,
    ) -> Option<usize> {
        (0..targets)
            .filter(|target| !tried.contains(target))
            .min_by_key(|&target| {
                let health = self.health.get(&(route, target));
                health
                    .map_or(0, |health| health.skip_until_ms.max(now_ms))
                    .saturating_sub(now_ms)
            })
    }

    /// Skips a failed server for a while, longer with each failure.
    pub(crate) fn note_failure(&mut self, route: u16, target: usize, now_ms: u64) {
        let health = self.health.entry((route, target)).or_default();
        let doubled = SKIP_MS.start << health.streak.min(6);
        health.streak = health.streak.saturating_add(1);
        health.skip_until_ms = now_ms + doubled.min(SKIP_MS.end);
    }

    /// Forgets a server's failures.
    pub(crate) fn note_success(&mut self, route: u16, target: usize) {
        self.health.remove(&(route, target));
    }

    /// Limits log lines to one per server and burst, so that one server's failures do not hide
    /// another's. `Some`: the line must be written, with the number of failures since the last one.
    pub(crate) fn note_for_log(&mut self, route: u16, target: usize, now_ms: u64) -> Option<u64> {
        let (logged_ms, more) = self.logged.entry((route, target)).or_default();
        if *logged_ms != 0 && now_ms < *logged_ms + QUIET_MS {
            *more += 1;
            return None;
        }
        *logged_ms = now_ms.max(1);
        Some(std::mem::take(more))
    }

    /// Forgets the servers of these routes, because a reload has changed them.
    pub(crate) fn forget(&mut self, changed: &Numbers) {
        self.health
            .retain(|(route, _), _| !changed.contains(*route));
        self.logged
            .retain(|(route, _), _| !changed.contains(*route));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_servers_in_order_and_skips_failed_ones_for_a_while() {
        let mut all = Servers::default();
        assert_eq!(all.choose(0, 3, &[], 5_000), Some(0));
        all.note_failure(0, 0, 5_000);
        assert_eq!(all.choose(0, 3, &[], 5_000), Some(1));
        assert_eq!(all.choose(0, 3, &[1], 5_000), Some(2));
        assert_eq!(
            all.choose(0, 3, &[1, 2], 5_000),
            Some(0),
            "better than none"
        );
        assert_eq!(all.choose(0, 3, &[0, 1, 2], 5_000), None);
        assert_eq!(all.choose(1, 3, &[], 5_000), Some(0), "another route");
        assert_eq!(all.choose(0, 3, &[], 6_000), Some(0), "forgotten");
        all.note_failure(0, 0, 6_000);
        assert_eq!(all.choose(0, 3, &[], 7_999), Some(1), "longer this time");
        all.note_success(0, 0);
        assert_eq!(all.choose(0, 3, &[], 7_999), Some(0));
        for _ in 0..100 {
            all.note_failure(0, 0, 8_000);
        }
        assert_eq!(all.choose(0, 1, &[], 8_000), Some(0), "the only one");
        assert_eq!(all.choose(0, 2, &[], 68_000), Some(0), "a minute at most");
    }
}
