//! Work of a generator, and its pace.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::orders::{Cycle, Messages, Tally};

/// Failures in a row after which a cycle gives up: the server has died, or refuses all connections.
pub(super) const FAILURES_IN_ROW_MAX: u64 = 100;

/// Due times at a steady rate.
#[derive(Clone, Debug)]
pub struct Pacer {
    interval: Option<Duration>,
    next: Instant,
}

impl Pacer {
    /// Longest delay that is caught up; older due times are dropped.
    const ARREARS_MAX: Duration = Duration::from_millis(200);

    /// Returns a pacer of `per_s` actions per second; 0: no limit.
    pub fn new(per_s: f64, now: Instant) -> Self {
        let interval = (per_s > 0.0).then(|| Duration::from_secs_f64((1.0 / per_s).min(86_400.0)));
        Self {
            interval,
            next: now,
        }
    }

    /// Takes a due action, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval else {
            return true;
        };
        if now < self.next {
            return false;
        }
        self.next = (self.next + interval).max(now.checked_sub(Self::ARREARS_MAX).unwrap_or(now));
        true
    }

    /// Returns the time until the next due action.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.interval
            .map_or(Duration::ZERO, |_| self.next.saturating_duration_since(now))
    }
}

/// Work of a generator.
#[derive(Debug)]
pub(super) enum Job {
    Open(OpenJob),
    Cycle(CycleJob),
    Messages(MessagesJob),
    Close,
}

/// See [`super::orders::Order::Open`].
#[derive(Debug)]
pub(super) struct OpenJob {
    pub(super) alive: u64,
    pub(super) pacer: Pacer,
    pub(super) in_flight_max: u32,
    /// More failures than this end it.
    pub(super) failures_max: u64,
}

#[derive(Debug)]
pub(super) struct CycleJob {
    pub(super) spec: Cycle,
    pub(super) ends: Option<Instant>,
    /// Lanes without a connection. The one that has waited longest is used next.
    free: VecDeque<u32>,
    pub(super) exchanges_begun: u64,
    pub(super) stopped: bool,
}

impl CycleJob {
    pub(super) fn new(spec: Cycle, now: Instant) -> Self {
        Self {
            ends: end(spec.for_ms, now),
            free: (0..spec.lanes).collect(),
            spec,
            exchanges_begun: 0,
            stopped: false,
        }
    }

    /// Whether no more connections are opened.
    pub(super) fn is_over(&self, tally: &Tally, now: Instant) -> bool {
        let counted = self.spec.connections > 0 && tally.begun >= self.spec.connections;
        counted || self.is_enough(tally, now)
    }

    /// Whether connections without a fixed end may end.
    pub(super) fn is_enough(&self, tally: &Tally, now: Instant) -> bool {
        let reached = |count: u64, max: u64| max > 0 && count >= max;
        self.stopped
            || reached(self.exchanges_begun, self.spec.exchanges_max)
            || reached(tally.bytes_heard, self.spec.bytes_heard_max)
            || self.ends.is_some_and(|ends| now >= ends)
    }

    /// Takes a lane for the next connection.
    pub(super) fn take_lane(&mut self) -> Option<u32> {
        self.free.pop_front()
    }

    /// Takes back a lane whose connection has ended.
    pub(super) fn free_lane(&mut self, lane: u32) {
        self.free.push_back(lane);
    }

    /// Takes back a lane whose connection could not begin: it is still the next.
    pub(super) fn return_lane(&mut self, lane: u32) {
        self.free.push_front(lane);
    }

    pub(super) fn lanes_are_free(&self) -> bool {
        self.free.len() >= self.spec.lanes as usize
    }
}

#[derive(Debug)]
pub(super) struct MessagesJob {
    pub(super) spec: Messages,
    pub(super) pacer: Pacer,
    pub(super) ends: Option<Instant>,
    /// Slot of the next connection to send, and how many have sent in this round.
    pub(super) cursor: u32,
    pub(super) round: u32,
    pub(super) said: u64,
    pub(super) unanswered: u64,
    pub(super) stopped: bool,
}

impl MessagesJob {
    pub(super) fn new(spec: Messages, now: Instant) -> Self {
        let pacer = Pacer::new(spec.per_s, now);
        let ends = end(spec.for_ms, now);
        Self {
            spec,
            pacer,
            ends,
            cursor: 0,
            round: 0,
            said: 0,
            unanswered: 0,
            stopped: false,
        }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        let all_said = self.spec.messages > 0 && self.said >= self.spec.messages;
        self.stopped || all_said || self.ends.is_some_and(|ends| now >= ends)
    }
}

fn end(for_ms: u64, now: Instant) -> Option<Instant> {
    (for_ms > 0).then(|| now + Duration::from_millis(for_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pacer_keeps_its_rate_and_drops_old_due_times() {
        let start = Instant::now();
        let mut pacer = Pacer::new(100.0, start);
        let mut count_at = |ms| {
            let now = start + Duration::from_millis(ms);
            std::iter::from_fn(|| pacer.take(now).then_some(())).count()
        };
        assert_eq!(count_at(0), 1);
        assert_eq!(count_at(5), 0);
        assert_eq!(count_at(100), 10);
        // After ten seconds of sleep, a thousand actions are not done at once.
        assert!((20..=22).contains(&count_at(10_000)));
    }

    /// Each client gets its session before resumption is measured.
    #[test]
    fn every_lane_is_used_before_one_is_used_again() {
        let mut cycle = CycleJob::new(Cycle::once(3, 3), Instant::now());
        let mut used = Vec::new();
        while used.len() < 3 {
            let lane = cycle.take_lane().unwrap();
            cycle.return_lane(lane);
            assert_eq!(cycle.take_lane(), Some(lane));
            used.push(lane);
            cycle.free_lane(lane);
        }
        assert_eq!(used, [0, 1, 2]);
    }

    #[test]
    fn no_rate_is_no_limit() {
        let now = Instant::now();
        let mut pacer = Pacer::new(0.0, now);
        assert!((0..1000).all(|_| pacer.take(now)));
        assert_eq!(pacer.wait(now), Duration::ZERO);
    }
}
