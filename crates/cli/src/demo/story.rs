//! What is shown, scene by scene.

use std::time::{Duration, Instant};

use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::signal::Signal;

use super::plan::Plan;
use super::replace::upgrade;
use super::show::{Base, End, Show};
use super::summary::{Findings, Killed};
use super::view::{Scene, Step};
use super::words::{count, duration, megabytes, number};

/// Longer than a killed process needs to be gone.
const DEATH_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked whether it is.
const DEATH_LOOK: Duration = Duration::from_micros(200);
/// Connections woken per second while warming up.
const WARM_UP_PER_S: f64 = 600.0;
/// Begun per turn of the loop, so that answers are not kept waiting.
const PER_TURN_MAX: usize = 64;

/// Plays all of it, and writes down what was found.
pub(super) fn tell(show: &mut Show, plan: &Plan, findings: &mut Findings) -> Result<(), End> {
    findings.connections = u64::from(plan.connections);
    warm_up(show, plan, findings)?;
    open(show, plan, findings)?;
    rest(show, plan, findings)?;
    wake(show, plan, findings)?;
    let workers = kill(show, plan, findings)?;
    ask(show, plan, findings, workers)?;
    upgrade(show, plan, findings)?;
    goodbye(show, plan, findings)
}

/// A hundred connections, and what memory is with them.
fn warm_up(show: &mut Show, plan: &Plan, findings: &mut Findings) -> Result<(), End> {
    let scene = Scene::new(
        Step::Open,
        format!("Warming up with {} connections.", plan.warm_up),
        "What a server needs once is not counted as the cost of a connection.",
    );
    let began = Instant::now();
    open_until(show, plan, &scene, plan.warm_up)?;
    findings.opened_in = began.elapsed();
    // They talk too: buffers which all connections share are part of what is needed once.
    wake_for(show, &scene, plan.settle, WARM_UP_PER_S)?;
    show.pause(&scene, plan.settle)?;
    let bytes = show.reading(&scene)?.bytes;
    show.base = Some(Base {
        bytes,
        connections: show.fleet.census().at_rest,
    });
    Ok(())
}

fn open(show: &mut Show, plan: &Plan, findings: &mut Findings) -> Result<(), End> {
    let scene = Scene::new(
        Step::Open,
        format!(
            "Opening {} TLS connections, each with a handshake of its own.",
            number(plan.connections.into())
        ),
        "A handshake is a large object. A connection at rest is a record: 192 bytes.",
    );
    let began = Instant::now();
    open_until(show, plan, &scene, plan.connections)?;
    findings.opened_in += began.elapsed();
    findings.agreed = show.fleet.agreed.keys().cloned().collect();
    Ok(())
}

/// Opens connections at a limited rate until `count` were begun, and none is on its way.
fn open_until(show: &mut Show, plan: &Plan, scene: &Scene, count: u32) -> Result<(), End> {
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

/// Nothing happens: the state in which a connection spends its life.
fn rest(show: &mut Show, plan: &Plan, findings: &mut Findings) -> Result<(), End> {
    let scene = Scene::new(
        Step::Rest,
        "All are at rest. Nothing happens: this is how they spend their lives.".to_owned(),
        "No buffer, no task, no object is kept for them. See below what they cost.",
    );
    show.pause(&scene, plan.settle)?;
    let before = show.reading(&scene)?;
    show.pause(&scene, plan.rest)?;
    let after = show.reading(&scene)?;
    findings.memory_at_rest = Some(after);
    findings.rested_for = after.at - before.at;
    findings.cpu_at_rest = after.cpu.saturating_sub(before.cpu);
    findings.base = show.base;
    let at_rest = show.fleet.census().at_rest;
    findings.per_connection = show
        .base
        .and_then(|base| base.per_connection(after.bytes, at_rest));
    Ok(())
}

/// A random part says something, again and again.
fn wake(show: &mut Show, plan: &Plan, findings: &mut Findings) -> Result<(), End> {
    let scene = Scene::new(
        Step::Wake,
        "Waking some by chance: each says something and waits for the echo.".to_owned(),
        "Every echo is compared byte for byte. Then the connection is at rest again.",
    );
    wake_for(show, &scene, plan.wake, plan.wake_per_s)?;
    findings.slowest_echo = show.fleet.tally.slowest;
    Ok(())
}

pub(super) fn wake_for(
    show: &mut Show,
    scene: &Scene,
    length: Duration,
    per_s: f64,
) -> Result<(), End> {
    let mut pacer = Pacer::new(per_s);
    let until = Instant::now() + length;
    show.play(scene, |fleet, now| {
        for _ in 0..pacer.due(now) {
            fleet.wake_any();
        }
        now >= until
    })
}

/// SIGKILL to everything that holds a connection, while they talk.
fn kill(show: &mut Show, plan: &Plan, findings: &mut Findings) -> Result<Vec<Pid>, End> {
    let workers = show.workers.clone();
    if workers.is_empty() {
        return Err(End::Trouble("no worker of `serve` was found".to_owned()));
    }
    let pids = workers
        .iter()
        .map(Pid::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    let scene = Scene::new(
        Step::Kill,
        format!("Next: kill -9 {pids}, the processes which hold all connections."),
        "Other servers lose every connection with the process that holds it.",
    );
    wake_for(show, &scene, plan.before_kill, plan.storm_per_s)?;
    findings.lost_before_kill = show.fleet.tally.lost;
    for &worker in &workers {
        let sent = process::send_signal(worker, Signal::Kill);
        sent.map_err(|error| format!("the worker {worker} could not be killed: {error}"))?;
    }
    let at = Instant::now();
    while workers.iter().any(|&worker| process::runs(worker)) {
        if at.elapsed() > DEATH_TIMEOUT {
            return Err(End::Trouble("a killed worker does not end".to_owned()));
        }
        // Not spinning: its keeper needs the processor.
        std::thread::sleep(DEATH_LOOK);
    }
    show.fleet.note_kill(at);
    show.workers.clear();
    Ok(workers)
}

/// Every connection is asked whether it is still there.
fn ask(show: &mut Show, plan: &Plan, findings: &mut Findings, killed: Vec<Pid>) -> Result<(), End> {
    let scene = Scene::new(
        Step::Ask,
        format!(
            "{} killed; new ones took over. Asking every connection.",
            count(killed.len() as u64, "worker was", "workers were")
        ),
        "They found the records in shared memory, the sockets in a shared table.",
    );
    ask_everybody(show, plan, &scene)?;
    findings.killed = show.fleet.kill.map(|kill| Killed {
        workers: killed.len() as u64,
        awake: kill.awake,
        first_echo: kill.first_echo,
        lost: show.fleet.tally.lost.saturating_sub(kill.lost_before),
        went_on: show.fleet.census().at_rest,
    });
    let first = show.fleet.kill.and_then(|kill| kill.first_echo);
    let words = format!(
        "{} of {} go on in new processes. First echo: {} after the kill.",
        number(show.fleet.census().at_rest),
        number(plan.connections.into()),
        first.map_or_else(|| "never".to_owned(), duration),
    );
    let scene = Scene::new(
        Step::Ask,
        words,
        "At most the one in a worker's hands is reset: never continued in doubt.",
    );
    show.pause(&scene, plan.linger)
}

/// Wakes all, until each has been heard of since all were expected to speak.
pub(super) fn ask_everybody(show: &mut Show, plan: &Plan, scene: &Scene) -> Result<(), End> {
    let asked_max = show.fleet.clients.len();
    let mut pacer = Pacer::new(asked_max as f64 / plan.ask.as_secs_f64());
    let mut waiting: Vec<usize> = (0..asked_max).rev().collect();
    show.play(scene, |fleet, now| {
        for _ in 0..pacer.due(now) {
            let Some(index) = waiting.pop() else { break };
            // Who is awake or was woken meanwhile has been asked, or is being asked, already.
            fleet.wake(index);
        }
        if waiting.is_empty() {
            // Some spoke before the kill and were not heard since: they must speak again.
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

fn is_unheard(fleet: &super::fleet::Fleet, index: usize) -> bool {
    let at_rest =
        |client: &&super::client::Client| matches!(client.phase, super::client::Phase::AtRest);
    fleet
        .clients
        .get(index)
        .filter(at_rest)
        .is_some_and(|client| client.unheard)
}

/// All close, and memory comes back.
fn goodbye(show: &mut Show, plan: &Plan, findings: &mut Findings) -> Result<(), End> {
    let before = show.readings.last().map_or(0, |reading| reading.bytes);
    let scene = Scene::new(
        Step::Goodbye,
        "All say goodbye, and the memory of their records is given back.".to_owned(),
        &format!("It was {} with all of them.", megabytes(before)),
    );
    let mut pacer = Pacer::new(f64::from(plan.connections) / plan.linger.as_secs_f64());
    let mut next = 0;
    findings.finish(&show.fleet);
    show.play(&scene, |fleet, now| {
        for _ in 0..pacer.due(now) {
            fleet.close(next);
            next += 1;
        }
        next >= fleet.clients.len()
    })?;
    show.pause(&scene, plan.settle)?;
    findings.memory_at_end = Some(show.reading(&scene)?);
    Ok(())
}

/// So many per second, without making up for long pauses all at once.
struct Pacer {
    per_s: f64,
    owed: f64,
    last: Instant,
}

impl Pacer {
    fn new(per_s: f64) -> Pacer {
        Pacer {
            per_s,
            owed: 0.0,
            last: Instant::now(),
        }
    }

    /// How many are due now.
    fn due(&mut self, now: Instant) -> usize {
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
            "a minute of sleep is not made up for at once"
        );
    }
}
