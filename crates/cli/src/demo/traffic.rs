//! What the clients do during a scene: open, wake, answer, each at a limited rate.

use std::time::{Duration, Instant};

use super::client::{Client, Phase};
use super::fleet::Fleet;
use super::plan::Plan;
use super::show::{DemoError, Show};
use super::view::Scene;

/// Limit on actions per turn of the loop, so that echoes are read in time.
const PER_TURN_MAX: usize = 64;

/// Opens connections at a limited rate until `count` are open or have failed.
pub(super) fn open_until(
    show: &mut Show,
    plan: &Plan,
    scene: &Scene,
    count: u32,
) -> Result<(), DemoError> {
    let mut pacer = Pacer::new(plan.open_per_s);
    let count = count as usize;
    show.play(scene, |fleet, now| {
        let mut in_flight = fleet.census().handshaking;
        for _ in 0..pacer.due(now) {
            if fleet.begun < count && in_flight < u64::from(plan.handshakes_max) {
                fleet.open_next();
                in_flight += 1;
            }
        }
        fleet.begun >= count && in_flight == 0
    })
}

/// Wakes random connections for a time.
pub(super) fn wake_for(
    show: &mut Show,
    scene: &Scene,
    length: Duration,
    per_s: f64,
) -> Result<(), DemoError> {
    let mut pacer = Pacer::new(per_s);
    let until = Instant::now() + length;
    show.play(scene, |fleet, now| {
        for _ in 0..pacer.due(now) {
            fleet.wake_any();
        }
        now >= until
    })
}

/// Wakes all connections and waits until each of them has echoed since the kill or upgrade.
pub(super) fn wake_all(show: &mut Show, plan: &Plan, scene: &Scene) -> Result<(), DemoError> {
    let asked_max = show.fleet.clients.len();
    let mut pacer = Pacer::new(asked_max as f64 / plan.ask.as_secs_f64());
    let mut waiting: Vec<usize> = (0..asked_max).rev().collect();
    show.play(scene, |fleet, now| {
        for _ in 0..pacer.due(now) {
            let Some(index) = waiting.pop() else { break };
            // A connection that is awake already counts as woken.
            fleet.wake(index);
        }
        if waiting.is_empty() {
            // Some connections sent before the kill and got no echo since: they must send again.
            waiting.extend(
                (0..fleet.clients.len())
                    .rev()
                    .filter(|&index| is_unheard(fleet, index)),
            );
        }
        let census = fleet.census();
        waiting.is_empty() && census.unheard == 0 && census.awake == 0
    })
}

fn is_unheard(fleet: &Fleet, index: usize) -> bool {
    let at_rest = |client: &&Client| matches!(client.phase, Phase::AtRest);
    fleet
        .clients
        .get(index)
        .filter(at_rest)
        .is_some_and(|client| client.unheard)
}

/// A limit on actions per second that does not make up for long pauses at once.
pub(super) struct Pacer {
    per_s: f64,
    owed: f64,
    last: Instant,
}

impl Pacer {
    pub(super) fn new(per_s: f64) -> Pacer {
        Pacer {
            per_s,
            owed: 0.0,
            last: Instant::now(),
        }
    }

    /// Number of actions that are due now.
    pub(super) fn due(&mut self, now: Instant) -> usize {
        self.owed += self.per_s * now.saturating_duration_since(self.last).as_secs_f64();
        self.last = now;
        let due = (self.owed as usize).min(PER_TURN_MAX);
        self.owed = (self.owed - due as f64).min(PER_TURN_MAX as f64);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pacer_keeps_its_rate() {
        let mut pacer = Pacer::new(100.0);
        let start = pacer.last;
        let mut due_at = |ms| pacer.due(start + Duration::from_millis(ms));
        assert_eq!(due_at(5), 0);
        assert_eq!(due_at(105), 10);
        assert_eq!(
            due_at(60_105),
            PER_TURN_MAX,
            "a minute of sleep is not compensated at once"
        );
    }
}
