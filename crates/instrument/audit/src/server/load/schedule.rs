//! Division of the time among the parts of the load.
//!
//! A part gets a share of the time that is left when it begins, so that the time that an earlier part did not need goes
//! to all later ones. Steps without which a part still has a result run only within its share. A part that needs more
//! may take a third of the later parts' time, and then ends with what it has.

use std::time::{Duration, Instant};

use crate::server::deadline::Deadline;

/// Share of the later parts' time that a part may take if it is late.
const OVERRUN: f64 = 0.33;

/// Number of times that a step must fit into the slot if others are more important.
const MUCH: u32 = 4;

/// A part of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// A few first connections: how fast the server is.
    Speed,
    /// Connections that open and close in rounds.
    Growth,
    /// The same for connections that end during the handshake.
    Broken,
    /// HTTP connections that are held without a request.
    Silent,
    /// Connections that are held.
    Idle,
    /// Streams.
    Throughput,
    /// Resumed handshakes of one version.
    Resumed,
}

impl Part {
    /// Name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Speed => "speed",
            Self::Growth => "growth",
            Self::Broken => "connections that end during the handshake",
            Self::Silent | Self::Idle => "idle connections",
            Self::Throughput => "throughput",
            Self::Resumed => "resumed handshakes",
        }
    }

    /// Time that the part needs, relative to the others.
    fn weight(self) -> f64 {
        match self {
            Self::Speed | Self::Broken | Self::Throughput => 2.0,
            Self::Growth => 8.0,
            Self::Silent => 4.0,
            Self::Idle => 7.0,
            Self::Resumed => 3.0,
        }
    }
}

/// The time of one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// Time from which no step begins that can be left out.
    pub(super) until: Deadline,
    /// Time at which the part ends, whatever it has.
    pub(super) end: Deadline,
}

impl Slot {
    /// Whether the next parts need the time that is left.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.until.is_over(now)
    }

    /// Whether a step of this length ends within the slot.
    pub(super) fn has_room(&self, now: Instant, took: Duration) -> bool {
        self.until.left(now).is_none_or(|left| took <= left)
    }

    /// Whether a step of this length leaves most of the slot for the others.
    pub(super) fn has_much_room(&self, now: Instant, took: Duration) -> bool {
        self.has_room(now, MUCH * took)
    }
}

/// The parts that are still to come.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Schedule {
    deadline: Deadline,
    ahead: Vec<Part>,
}

impl Schedule {
    /// `parts`: all parts, in order.
    pub(super) fn new(deadline: Deadline, parts: Vec<Part>) -> Self {
        Self {
            deadline,
            ahead: parts,
        }
    }

    /// Begins a part; parts before it are left out. Returns its time.
    pub(super) fn begin(&mut self, part: Part, now: Instant) -> Slot {
        if let Some(place) = self.ahead.iter().position(|ahead| *ahead == part) {
            self.ahead.drain(..=place);
        }
        let later: f64 = self.ahead.iter().map(|part| part.weight()).sum();
        let share = part.weight() / (part.weight() + later);
        Slot {
            until: self.deadline.share(now, share),
            end: self.deadline.share(now, share + OVERRUN * (1.0 - share)),
        }
    }

    /// The parts that have not begun.
    pub(super) fn ahead(&self) -> &[Part] {
        &self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const ALL: [Part; 7] = [
        Part::Speed,
        Part::Growth,
        Part::Broken,
        Part::Idle,
        Part::Throughput,
        Part::Resumed,
        Part::Resumed,
    ];

    /// Runs all parts, each until it chooses to end, and returns the time that each had within its share.
    fn shares(seconds: u64, ends: impl Fn(Part, Instant, Slot) -> Instant) -> Vec<f64> {
        let mut now = Instant::now();
        let deadline = Deadline::after(now, Some(S(seconds)));
        let mut schedule = Schedule::new(deadline, ALL.to_vec());
        let shares = ALL.iter().map(|part| {
            let slot = schedule.begin(*part, now);
            let share = slot.until.left(now).unwrap();
            now = ends(*part, now, slot);
            share.as_secs_f64()
        });
        let shares = shares.collect();
        assert!(schedule.ahead().is_empty());
        assert!(now <= deadline.instant().unwrap());
        shares
    }

    #[test]
    fn every_part_gets_its_share() {
        let shares = shares(22, |_, _, slot| slot.until.instant().unwrap());
        let expected = [2.0, 8.0, 2.0, 7.0, 2.0, 3.0, 3.0].map(|weight| weight * 22.0 / 27.0);
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 0.01, "{shares:?}");
        }
    }

    /// A JVM took all of the 26 seconds of a short audit before its resumed handshakes.
    #[test]
    fn a_late_part_leaves_time_for_the_later_ones() {
        let usual = shares(20, |_, _, slot| slot.until.instant().unwrap());
        let shares = shares(20, |part, _, slot| match part {
            Part::Growth | Part::Idle => slot.end.instant().unwrap(),
            _ => slot.until.instant().unwrap(),
        });
        for (share, usual) in shares.iter().zip(&usual).skip(4) {
            assert!(*share > 0.4 * usual, "{shares:?}, {usual:?}");
        }
    }

    #[test]
    fn time_that_a_part_does_not_need_is_for_all_later_ones() {
        let usual = shares(20, |_, _, slot| slot.until.instant().unwrap());
        let shares = shares(20, |part, now, slot| match part {
            Part::Growth => now,
            _ => slot.until.instant().unwrap(),
        });
        for (share, usual) in shares.iter().zip(&usual).skip(2) {
            assert!(*share > 1.3 * usual, "{shares:?}, {usual:?}");
        }
    }

    #[test]
    fn a_step_runs_if_it_fits_the_slot() {
        let now = Instant::now();
        let mut schedule = Schedule::new(Deadline::after(now, Some(S(25))), ALL.to_vec());
        let slot = schedule.begin(Part::Growth, now);
        assert!(slot.has_room(now, S(8)) && !slot.has_room(now, S(9)));
        assert!(slot.has_much_room(now, S(2)) && !slot.has_much_room(now, S(3)));
        assert!(!slot.is_late(now + S(7)) && slot.is_late(now + S(9)));
        let slot = Schedule::new(Deadline::NONE, ALL.to_vec()).begin(Part::Growth, now);
        assert!(slot.has_room(now, S(1_000)) && !slot.is_late(now + S(1_000)));
    }
}
