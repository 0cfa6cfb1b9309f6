//! TLS connections that are on their way, and what is known of the servers they are on their way to.

use crate::worker::bursts::QUIET_MS;
use crate::worker::outbound::originate::{Errand, Plain};
use crate::worker::outbound::warm::Pool;
use dormouse_engine::Handshake;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use std::collections::{HashMap, VecDeque};

/// How long a server that failed is passed over, for the first time and at most.
const PASS_OVER_MS: std::ops::Range<u64> = 1_000..60_000;

/// A TLS connection that is on its way.
pub(crate) struct Entry {
    /// Whom it is for; `None`: for the warm ones.
    pub(crate) plain: Option<Plain>,
    pub(crate) route: u16,
    pub(crate) generation: u32,
    /// A backend that it is for: there is no other to try.
    pub(crate) errand: Option<Errand>,
    /// The server it is tried with now, and those before it.
    pub(crate) target: usize,
    pub(crate) tried: Vec<usize>,
    pub(crate) fd: Fd,
    /// When it was begun with this server.
    pub(crate) begun_ms: u64,
    pub(crate) stage: Stage,
    pub(crate) watched: Interest,
}

pub(crate) enum Stage {
    Connecting,
    Shaking(Box<Handshake>),
}

/// What is known of a server that failed.
#[derive(Clone, Copy, Default)]
struct Health {
    pass_over_until_ms: u64,
    streak: u32,
}

/// All that are on their way, what is known of servers, and the warm ones.
pub(crate) struct Originations {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    live: usize,
    /// In the order in which they come: each kind has one length.
    attempts: VecDeque<(u64, u32, u32, usize)>,
    deadlines: VecDeque<(u64, u32, u32)>,
    health: HashMap<(u16, usize), Health>,
    /// When a server's failure was last written to the log, and how often it failed since.
    logged: HashMap<(u16, usize), (u64, u64)>,
    pools: Vec<Pool>,
}

impl Originations {
    pub(crate) fn new(pools: Vec<Pool>) -> Originations {
        Originations {
            entries: Vec::new(),
            free: Vec::new(),
            live: 0,
            attempts: VecDeque::new(),
            deadlines: VecDeque::new(),
            health: HashMap::new(),
            logged: HashMap::new(),
            pools,
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn pool(&mut self, route: u16) -> Option<&mut Pool> {
        self.pools.get_mut(usize::from(route))
    }

    pub(crate) fn warm(&self) -> u64 {
        self.pools.iter().map(Pool::ready).sum()
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let attempt = self.attempts.front().map(|&(at_ms, ..)| at_ms);
        let deadline = self.deadlines.front().map(|&(at_ms, ..)| at_ms);
        let looks = self.pools.iter().filter_map(Pool::look_ms);
        looks.chain(attempt).chain(deadline).min()
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> u32 {
        self.live += 1;
        match self.free.pop() {
            Some(index) => {
                if let Some(room) = self.entries.get_mut(index as usize) {
                    *room = Some(entry);
                }
                index
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        }
    }

    pub(crate) fn entry(&mut self, index: u32, generation: u32) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(index as usize)?.as_mut()?;
        (entry.generation == generation).then_some(entry)
    }

    pub(crate) fn take(&mut self, index: u32, generation: u32) -> Option<Entry> {
        self.entry(index, generation)?;
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.live -= 1;
        if self.live == 0 {
            // As with handshakes: a burst leaves no room behind.
            self.entries = Vec::new();
            self.free = Vec::new();
        }
        Some(entry)
    }

    /// The server to try next: the first in order which has not failed lately, else the one whose
    /// failure is to be forgotten soonest.
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
                    .map_or(0, |health| health.pass_over_until_ms.max(now_ms))
                    .saturating_sub(now_ms)
            })
    }

    pub(crate) fn note_failure(&mut self, route: u16, target: usize, now_ms: u64) {
        let health = self.health.entry((route, target)).or_default();
        let doubled = PASS_OVER_MS.start << health.streak.min(6);
        health.streak = health.streak.saturating_add(1);
        health.pass_over_until_ms = now_ms + doubled.min(PASS_OVER_MS.end);
    }

    /// One line per server and burst, so that one server's failure does not hide another's.
    /// `Some`: it is to be written, with the number of those that were not.
    pub(crate) fn note_for_log(&mut self, route: u16, target: usize, now_ms: u64) -> Option<u64> {
        let (logged_ms, more) = self.logged.entry((route, target)).or_default();
        if *logged_ms != 0 && now_ms < *logged_ms + QUIET_MS {
            *more += 1;
            return None;
        }
        *logged_ms = now_ms.max(1);
        Some(std::mem::take(more))
    }

    /// Of these routes nothing is known any more: what they were has changed.
    pub(crate) fn forget(&mut self, changed: &[u16], mut pools: Vec<Pool>) {
        for (number, former) in (0..).zip(self.pools.drain(..)) {
            let place = pools.get_mut(usize::from(number));
            if let Some(place) = place.filter(|_| !changed.contains(&number)) {
                *place = former;
            }
        }
        self.pools = pools;
        self.health.retain(|(route, _), _| !changed.contains(route));
        self.logged.retain(|(route, _), _| !changed.contains(route));
    }

    pub(crate) fn note_success(&mut self, route: u16, target: usize) {
        self.health.remove(&(route, target));
    }

    /// All of them: index and generation.
    pub(crate) fn all(&self) -> Vec<(u32, u32)> {
        let entries = self.entries.iter().zip(0..);
        entries
            .filter_map(|(entry, index)| Some((index, entry.as_ref()?.generation)))
            .collect()
    }

    /// One has so long in all.
    pub(crate) fn end_by(&mut self, at_ms: u64, index: u32, generation: u32) {
        self.deadlines.push_back((at_ms, index, generation));
    }

    /// So long has the attempt of this number.
    pub(crate) fn end_attempt_by(
        &mut self,
        at_ms: u64,
        index: u32,
        generation: u32,
        attempt: usize,
    ) {
        self.attempts.push_back((at_ms, index, generation, attempt));
    }

    /// An attempt that took too long.
    pub(crate) fn next_late_attempt(&mut self, now_ms: u64) -> Option<(u32, u32)> {
        while let Some(&(at_ms, index, generation, attempt)) = self.attempts.front() {
            let current = self.entry(index, generation).is_some_and(|entry| {
                entry.tried.len() == attempt && matches!(entry.stage, Stage::Connecting)
            });
            if current && at_ms > now_ms {
                return None;
            }
            self.attempts.pop_front();
            if current {
                return Some((index, generation));
            }
        }
        None
    }

    /// One that took too long in all.
    pub(crate) fn next_late(&mut self, now_ms: u64) -> Option<(u32, u32)> {
        while let Some(&(at_ms, index, generation)) = self.deadlines.front() {
            let current = self.entry(index, generation).is_some();
            if current && at_ms > now_ms {
                return None;
            }
            self.deadlines.pop_front();
            if current {
                return Some((index, generation));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_tried_in_order_and_failures_are_remembered_for_a_while() {
        let mut all = Originations::new(Vec::new());
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
