//! Time and memory limits of an audit, and the numbers of connections that fit them.

use std::time::{Duration, Instant};

use crate::server::deadline::Deadline;
use crate::server::spec::{ServerSpec, Sizes};
use dormouse_measure::{Error, Machine, ProcessTree, limits};

/// Minimum number of connections for figures per connection.
pub(super) const CONNECTIONS_MIN: u64 = 20;
/// Number of held connections, and of connections in a round, that a server gets even if either takes this share of the
/// remaining time.
const FEW: u64 = 100;
const FEW_SHARE: f64 = 0.15;
/// Share of the remaining time that is planned; the rest is a reserve in case the server slows down.
const PLANNED: f64 = 0.7;
/// Number of memory readings while connections are held, each after memory has settled.
const MOMENTS: u32 = 7;
/// Number of censuses while connections are held: before, at N and 2N, after being idle, after closing.
pub(super) const CENSUSES_HELD: u32 = 5;
/// Number of collections that the audit asks for while connections are held: before, after opening, after being idle.
pub(super) const COLLECTIONS_HELD: u32 = 3;
/// Shares of the time left that censuses may take, and collections that the audit asks for: only these show a leak.
const CENSUS_SHARE: f64 = 0.35;
const COLLECTION_SHARE: f64 = 0.5;

/// Maximum number of concurrent handshakes while connections are opened, and how much slower each may become on a busy
/// machine.
const IN_FLIGHT: u32 = 32;
const SLOWER: f64 = 10.0;
/// Minimum time without a new connection after which a server is at its limit.
const STALL: Duration = Duration::from_secs(3);

/// Returns how many handshakes may be in flight, if one takes this long. A server may begin all of them before it answers
/// the first, so that each takes as long as all together: on a slow server, fewer fit into the timeout.
pub(super) fn in_flight_max(handshake_took: Option<Duration>, timeout: Duration) -> u32 {
    let Some(took) = handshake_took else {
        return IN_FLIGHT;
    };
    let fit = timeout.as_secs_f64() / (SLOWER * took.as_secs_f64().max(1e-6));
    (fit as u32).clamp(1, IN_FLIGHT)
}

/// Time without a new connection after which a server is at its limit, if one handshake takes this long: so long that
/// a slow one could have made as many as are in flight.
pub(super) fn stall(handshake_took: Option<Duration>, timeout: Duration) -> Duration {
    let took = handshake_took.unwrap_or_default();
    let in_flight = f64::from(in_flight_max(handshake_took, timeout));
    took.mul_f64(SLOWER * in_flight).max(STALL).min(timeout)
}

/// Limits of the load.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Budget {
    /// Time by which the last connection must be closed.
    pub(in crate::server) deadline: Deadline,
    /// Maximum growth of the server in bytes.
    pub(in crate::server) memory_bytes: u64,
}

/// Memory that a server may still take: of the machine's, and of its control groups'.
fn available_bytes(server: &ProcessTree) -> u64 {
    let pids = server.pids().unwrap_or_default();
    let left = pids.into_iter().filter_map(limits::memory_left_bytes);
    left.fold(Machine::available_bytes(), u64::min)
}

/// Time reserved for the steps after the load: closing connections and offering an aged ticket.
const AFTER_LOAD: Duration = Duration::from_secs(3);

impl Budget {
    /// Returns the limits of an audit of this server with this deadline.
    pub(in crate::server) fn of(
        spec: &ServerSpec,
        server: &ProcessTree,
        deadline: Deadline,
    ) -> Self {
        let memory_bytes = spec.memory_max_bytes;
        Self {
            deadline: deadline.earlier(AFTER_LOAD),
            memory_bytes: memory_bytes.unwrap_or_else(|| available_bytes(server) / 2),
        }
    }

    /// The error of a part in which the server grew too large.
    pub(super) fn too_large(&self) -> Error {
        Error::target(format!(
            "the server grew by more than {} MB; --memory raises this limit",
            self.memory_bytes / 1_000_000
        ))
    }

    /// Returns the sizes that fit into the time left at `now`, where a connection takes `each` and a census `census`.
    /// `versions` is the number of versions that resume.
    pub(super) fn fit(
        &self,
        now: Instant,
        sizes: Sizes,
        (each, census): (Duration, Duration),
        versions: u32,
    ) -> Sizes {
        let Some(left) = self.deadline.left(now) else {
            return sizes;
        };
        let waits = sizes.settle * (sizes.rounds * 2 + MOMENTS)
            + sizes.quiet * 2
            + sizes.after * 2
            + census * (sizes.rounds + CENSUSES_HELD);
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
        // With fewer connections, a server's own pools hide what one takes, and noise hides what one leaves behind.
        let at_least = |count: u64, times: f64| {
            let few = FEW.min(count);
            let is_fast = each.as_secs_f64() * times * few as f64 <= FEW_SHARE * left.as_secs_f64();
            part(count).max(if is_fast { few } else { 0 })
        };
        Sizes {
            n: at_least(sizes.n, 4.0),
            per_round: at_least(sizes.per_round, f64::from(sizes.rounds)),
            resumed: part(sizes.resumed),
            ..sizes
        }
    }

    /// Whether this many censuses leave enough of the time for everything else.
    pub(super) fn affords_censuses(&self, now: Instant, took: Duration, count: u32) -> bool {
        self.affords(now, took * count, CENSUS_SHARE)
    }

    /// The same for collections that the audit asks for.
    pub(super) fn affords_collections(&self, now: Instant, took: Duration, count: u32) -> bool {
        self.affords(now, took * count, COLLECTION_SHARE)
    }

    fn affords(&self, now: Instant, time: Duration, share: f64) -> bool {
        let left = self.deadline.left(now);
        left.is_none_or(|left| time <= left.mul_f64(share))
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

    const NONE: Duration = Duration::ZERO;

    fn budget(now: Instant, seconds: Option<u64>) -> Budget {
        Budget {
            deadline: Deadline::after(now, seconds.map(Duration::from_secs)),
            memory_bytes: 1 << 30,
        }
    }

    /// Time that the planned connections, waits and censuses take.
    fn planned(sizes: Sizes, each: Duration, census: Duration) -> Duration {
        let connections =
            u64::from(sizes.rounds) * sizes.per_round + 4 * sizes.n + 2 * sizes.resumed;
        each * u32::try_from(connections).unwrap()
            + sizes.settle * (2 * sizes.rounds + MOMENTS)
            + (sizes.quiet + sizes.after) * 2
            + census * (sizes.rounds + CENSUSES_HELD)
    }

    #[test]
    fn a_slow_server_gets_fewer_connections() {
        let (now, sizes) = (Instant::now(), Effort::Normal.sizes());
        let fit = |seconds, each| budget(now, Some(seconds)).fit(now, sizes, (each, NONE), 2);
        let fast = fit(170, Duration::from_micros(500));
        assert_eq!((fast.n, fast.per_round), (sizes.n, sizes.per_round));
        let slow = fit(170, Duration::from_millis(20));
        assert!(
            slow.n < sizes.n / 2 && slow.n >= CONNECTIONS_MIN,
            "{slow:?}"
        );
        let dead = fit(1, Duration::from_secs(1));
        assert_eq!((dead.n, dead.per_round), (CONNECTIONS_MIN, CONNECTIONS_MIN));
    }

    /// A JVM that had just started took 5 ms for a connection, and 0.7 s for a collection and a census: 20 connections in a
    /// round leave less behind than its heap varies.
    #[test]
    fn a_round_has_enough_connections_to_show_a_leak() {
        let (now, sizes) = (Instant::now(), Effort::Quick.sizes());
        let times = (Duration::from_millis(5), Duration::from_millis(700));
        let fitted = budget(now, Some(20)).fit(now, sizes, times, 2);
        assert_eq!((fitted.n, fitted.per_round), (FEW, FEW));
    }

    #[test]
    fn the_plan_of_any_server_fits_the_time() {
        let now = Instant::now();
        for (effort, seconds) in [(Effort::Quick, 22), (Effort::Normal, 150)] {
            for each_us in [200, 2_000, 10_000, 30_000] {
                for census_ms in [1, 50, 300] {
                    let each = Duration::from_micros(each_us);
                    let census = Duration::from_millis(census_ms);
                    let sizes = effort.sizes();
                    let fitted = budget(now, Some(seconds)).fit(now, sizes, (each, census), 2);
                    let is_least = fitted.n == CONNECTIONS_MIN;
                    let planned = planned(fitted, each, census);
                    assert!(
                        is_least || planned <= Duration::from_secs(seconds),
                        "{effort:?}, {each:?}, {census:?}: {planned:?} for {fitted:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn censuses_of_a_large_heap_are_too_long() {
        let (now, s) = (Instant::now(), Duration::from_secs);
        assert!(budget(now, Some(22)).affords_censuses(now, s(1), 7));
        assert!(!budget(now, Some(22)).affords_censuses(now, s(3), 5));
        assert!(budget(now, Some(22)).affords_collections(now, s(1), 8));
        assert!(budget(now, None).affords_censuses(now, s(60), 10));
    }

    /// A server that parsed a trust store for each connection, on a busy machine: 32 handshakes at a time, of 64 ms each
    /// while it was alone, all reached the timeout of 5 s, and nothing was measured.
    #[test]
    fn a_slow_server_gets_fewer_handshakes_at_a_time() {
        let of =
            |took_ms| in_flight_max(Some(Duration::from_millis(took_ms)), Duration::from_secs(5));
        assert_eq!((of(1), of(64), of(3_000)), (32, 7, 1));
        assert_eq!(in_flight_max(None, Duration::from_secs(5)), 32);
    }

    /// Postfix leaves clients beyond its hundredth process without an answer: the audit awaited their timeouts for 75 s.
    #[test]
    fn a_server_at_its_limit_is_not_awaited() {
        let of = |took_ms, timeout_s| {
            let took = Duration::from_millis(took_ms);
            stall(Some(took), Duration::from_secs(timeout_s)).as_secs_f64()
        };
        assert_eq!((of(1, 15), of(30, 15), of(3_000, 15)), (3.0, 9.6, 15.0));
        assert_eq!(of(1, 2), 2.0);
    }

    #[test]
    fn without_a_limit_nothing_changes() {
        let (now, sizes) = (Instant::now(), Effort::Thorough.sizes());
        let times = (Duration::from_secs(1), NONE);
        assert_eq!(budget(now, None).fit(now, sizes, times, 2).n, sizes.n);
    }
}
