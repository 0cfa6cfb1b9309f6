//! A queue of deadlines.

use std::collections::VecDeque;

/// Deadlines in order of time, each with what it is for.
///
/// A deadline is usually the last one when it is added, because all of a kind have the same length. It is not after a
/// reload that has shortened a timeout; at the end of the queue, it would then wait for the long ones before it.
pub(crate) struct Deadlines<T>(VecDeque<(u64, T)>);

impl<T> Deadlines<T> {
    pub(crate) const fn new() -> Deadlines<T> {
        Deadlines(VecDeque::new())
    }

    /// Adds a deadline.
    pub(crate) fn add(&mut self, at_ms: u64, what: T) {
        let is_last = self.0.back().is_none_or(|&(last_ms, _)| last_ms <= at_ms);
        let place = match is_last {
            true => self.0.len(),
            false => self.0.partition_point(|&(other_ms, _)| other_ms <= at_ms),
        };
        self.0.insert(place, (at_ms, what));
    }

    /// Takes the first deadline that has passed, and drops those before it that are not current any more.
    pub(crate) fn take_due(
        &mut self,
        now_ms: u64,
        mut is_current: impl FnMut(&T) -> bool,
    ) -> Option<T> {
        while let Some((at_ms, what)) = self.0.front() {
            let current = is_current(what);
            if current && *at_ms > now_ms {
                return None;
            }
            let (_, what) = self.0.pop_front()?;
            if current {
                return Some(what);
            }
        }
        None
    }

    /// The earliest deadline.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.0.front().map(|&(at_ms, _)| at_ms)
    }

    /// What the deadlines are for, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, what)| what)
    }
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Deadlines::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_deadline_does_not_wait_for_a_longer_one() {
        let mut deadlines = Deadlines::new();
        for (at_ms, what) in [(600, 'a'), (700, 'b'), (50, 'c'), (60, 'd'), (50, 'e')] {
            deadlines.add(at_ms, what);
        }
        assert_eq!(deadlines.next_ms(), Some(50));
        assert_eq!(deadlines.iter().collect::<String>(), "cedab");
        assert_eq!(deadlines.take_due(49, |_| true), None);
        assert_eq!(deadlines.take_due(50, |&what| what != 'c'), Some('e'));
        assert_eq!(deadlines.take_due(650, |_| true), Some('d'));
        assert_eq!(deadlines.take_due(650, |_| true), Some('a'));
        assert_eq!(deadlines.take_due(650, |_| true), None);
        assert_eq!(deadlines.take_due(0, |_| false), None);
        assert_eq!(deadlines.next_ms(), None);
    }
}
