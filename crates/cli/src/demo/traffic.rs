//! What the clients do during a scene: open, wake, answer, each at a limited rate.

use std::time::{Duration, Instant};

use dormouse_bench::load::Pacer;

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
    let mut pacer = Pacer::new(plan.open_per_s, Instant::now());
    let count = count as usize;
    show.play(scene, |fleet, now| {
        let mut in_flight = fleet.census().handshaking;
        for _ in 0..due(&mut pacer, now) {
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
    let mut pacer = Pacer::new(per_s, Instant::now());
    let until = Instant::now() + length;
    show.play(scene, |fleet, now| {
        for _ in 0..due(&mut pacer, now) {
            fleet.wake_any();
        }
        now >= until
    })
}

/// Wakes all connections and waits until each of them has echoed since the kill or upgrade.
pub(super) fn wake_all(show: &mut Show, plan: &Plan, scene: &Scene) -> Result<(), DemoError> {
    let asked_max = show.fleet.clients.len();
    let mut pacer = Pacer::new(asked_max as f64 / plan.ask.as_secs_f64(), Instant::now());
    let mut waiting: Vec<usize> = (0..asked_max).rev().collect();
    show.play(scene, |fleet, now| {
        for _ in 0..due(&mut pacer, now) {
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

/// Number of actions that are due now.
pub(super) fn due(pacer: &mut Pacer, now: Instant) -> usize {
    (0..PER_TURN_MAX).take_while(|_| pacer.take(now)).count()
}
