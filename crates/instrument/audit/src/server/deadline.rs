//! The time by which an audit, or a part of it, must end.

use std::time::{Duration, Instant};

/// Shortest patience, because a socket's timeout must not be zero.
const PATIENCE_MIN: Duration = Duration::from_millis(10);

/// A point in time, or none. The present is an argument, so that tests choose it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// No limit.
    pub(super) const NONE: Self = Self(None);

    /// Returns the deadline `time_max` after a start; `None`: no limit.
    pub(super) fn after(began: Instant, time_max: Option<Duration>) -> Self {
        Self(time_max.map(|time_max| began + time_max))
    }

    /// Returns the end of a part that may use this share of the time left.
    pub(super) fn share(self, now: Instant, share: f64) -> Self {
        Self(self.left(now).map(|left| now + left.mul_f64(share)))
    }

    /// Returns a deadline that is earlier by this much.
    pub(super) fn earlier(self, by: Duration) -> Self {
        Self(self.0.map(|until| until.checked_sub(by).unwrap_or(until)))
    }

    /// Returns the time left; `None`: no limit.
    pub(super) fn left(self, now: Instant) -> Option<Duration> {
        Some(self.0?.saturating_duration_since(now))
    }

    /// Returns how long a step may wait: its own patience, or the time left if that is less.
    pub(super) fn limit(self, now: Instant, patience: Duration) -> Duration {
        let left = self.left(now).unwrap_or(patience);
        patience.min(left).max(PATIENCE_MIN)
    }

    pub(super) fn is_over(self, now: Instant) -> bool {
        self.0.is_some_and(|until| now >= until)
    }

    pub(super) fn instant(self) -> Option<Instant> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_the_time_left() {
        let (now, s) = (Instant::now(), Duration::from_secs);
        let whole = Deadline::after(now, Some(s(30)));
        let part = whole.share(now + s(10), 0.5);
        assert_eq!(part.left(now + s(10)), Some(s(10)));
        assert_eq!(part.limit(now + s(10), s(5)), s(5));
        assert_eq!(part.limit(now + s(18), s(5)), s(2));
        assert_eq!(part.limit(now + s(25), s(5)), PATIENCE_MIN);
        assert!(!part.is_over(now + s(19)) && part.is_over(now + s(20)));
    }

    #[test]
    fn without_a_limit_nothing_ends() {
        let later = Instant::now() + Duration::from_secs(1_000_000);
        let none = Deadline::NONE.share(later, 0.1);
        assert_eq!(
            none.limit(later, Duration::from_secs(5)),
            Duration::from_secs(5)
        );
        assert!(!none.is_over(later) && none.instant().is_none());
    }
}
