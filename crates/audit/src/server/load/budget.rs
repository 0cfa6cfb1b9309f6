//! Time and memory limits of an audit, and the numbers of connections that fit them.

use std::time::{Duration, Instant};

use crate::server::spec::{ServerSpec, Sizes};
use dormouse_measure::Machine;

/// Minimum number of connections for figures per connection.
pub(super) const CONNECTIONS_MIN: u64 = 20;
/// Share of the remaining time that is planned; the rest is a reserve in case the server slows down.
const PLANNED: f64 = 0.7;
/// Number of memory readings while connections are held, each after memory has settled.
const MOMENTS: u32 = 7;

/// Limits of the load.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Budget {
    /// Time by which the last connection must be closed; `None`: no limit.
    pub(in crate::server) until: Option<Instant>,
    /// Maximum growth of the server in bytes.
    pub(in crate::server) memory_bytes: u64,
}

/// Time reserved for the steps after the load: closing connections and offering an aged ticket.
const AFTER_LOAD: Duration = Duration::from_secs(4);

impl Budget {
    /// Returns the limits of an audit that began at this time.
    pub(in crate::server) fn of(spec: &ServerSpec, began: Instant) -> Self {
        let time_max = spec.time_max.or(spec.effort.time_max());
        let memory_bytes = spec.memory_max_bytes;
        Self {
            until: time_max.map(|time_max| began + time_max.saturating_sub(AFTER_LOAD)),
            memory_bytes: memory_bytes.unwrap_or_else(|| Machine::available_bytes() / 2),
        }
    }

    /// Returns the sizes that fit into the remaining time, at `each` per connection. `versions` is the number of
    /// versions that resume.
    pub(super) fn fit(&self, sizes: Sizes, each: Duration, versions: u32) -> Sizes {
        let Some(until) = self.until else {
            return sizes;
        };
        let left = until.saturating_duration_since(Instant::now());
        let waits = sizes.settle * (sizes.rounds * 2 + MOMENTS) + sizes.quiet * 2 + sizes.after * 2;
        let room = left.mul_f64(PLANNED).saturating_sub(waits);
        let planned = u64::from(sizes.rounds) * sizes.per_round
            + 4 * sizes.n
            + u64::from(versions) * sizes.resumed;
        let needed = each.as_secs_f64() * planned as f64;
        let share = room.as_secs_f64() / needed.max(1e-9);
        if share >= 1.0 {
            return sizes;
        }
        let part = |count: u64| ((count as f64 * share) as u64).max(CONNECTIONS_MIN.min(count));
        Sizes {
            n: part(sizes.n),
            per_round: part(sizes.per_round),
            resumed: part(sizes.resumed),
            ..sizes
        }
    }

    /// Returns the end of a part that may use this share of the remaining time.
    pub(super) fn part(&self, share: f64) -> Option<Instant> {
        let now = Instant::now();
        let left = self.until?.saturating_duration_since(now);
        Some(now + left.mul_f64(share))
    }

    /// Whether twice the connections that grew the server by `grown` bytes would exceed the memory limit.
    pub(super) fn is_exceeded_by_twice(&self, grown: f64) -> bool {
        2.0 * grown > self.memory_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::spec::Effort;

    fn budget(seconds: u64) -> Budget {
        Budget {
            until: Some(Instant::now() + Duration::from_secs(seconds)),
            memory_bytes: 1 << 30,
        }
    }

    #[test]
    fn a_slow_server_gets_fewer_connections() {
        let sizes = Effort::Normal.sizes();
        let fast = budget(170).fit(sizes, Duration::from_micros(500), 2);
        assert_eq!((fast.n, fast.per_round), (sizes.n, sizes.per_round));
        let slow = budget(170).fit(sizes, Duration::from_millis(20), 2);
        assert!(
            slow.n < sizes.n / 2 && slow.n >= CONNECTIONS_MIN,
            "{slow:?}"
        );
        let dead = budget(1).fit(sizes, Duration::from_secs(1), 2);
        assert_eq!((dead.n, dead.per_round), (CONNECTIONS_MIN, CONNECTIONS_MIN));
    }

    #[test]
    fn parts_share_the_time() {
        let half = budget(100).part(0.5).unwrap();
        let left = half.saturating_duration_since(Instant::now());
        assert!((45..=50).contains(&left.as_secs()), "{left:?}");
    }

    #[test]
    fn without_a_limit_nothing_changes() {
        let sizes = Effort::Thorough.sizes();
        let endless = Budget {
            until: None,
            ..budget(0)
        };
        assert_eq!(endless.fit(sizes, Duration::from_secs(1), 2).n, sizes.n);
    }
}
