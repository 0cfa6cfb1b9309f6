//! The scenes of the demo, in order.

use std::time::{Duration, Instant};

use dormouse_bench::load::Pacer;
use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::signal::Signal;

use super::format::{count, duration, megabytes, number};
use super::plan::Plan;
use super::show::{DemoError, Show};
use super::summary::{KillResult, Results};
use super::traffic::{due, open_until, wake_all, wake_for};
use super::upgrade::upgrade;
use super::view::{Chapter, Scene};
use super::watch;

/// Limit on the time until a killed process is gone.
const DEATH_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between checks for the end of a killed process.
const DEATH_LOOK: Duration = Duration::from_micros(200);
/// Connections woken per second while warming up.
const WARM_UP_PER_S: f64 = 600.0;

/// Plays all scenes and collects the results.
pub(super) fn play(show: &mut Show, plan: &Plan, results: &mut Results) -> Result<(), DemoError> {
    results.connections = u64::from(plan.connections);
    warm_up(show, plan, results)?;
    open(show, plan, results)?;
    rest(show, plan, results)?;
    wake(show, plan, results)?;
    let workers = kill(show, plan, results)?;
    wake_everything(show, plan, results, workers)?;
    upgrade(show, plan, results)?;
    close_all(show, plan, results)
}

/// Opens a hundred connections and measures memory with them as the baseline.
fn warm_up(show: &mut Show, plan: &Plan, results: &mut Results) -> Result<(), DemoError> {
    let scene = Scene::new(
        Chapter::Open,
        format!("Warming up with {} connections.", plan.warm_up),
        "Memory that a server needs once does not count as the cost of a connection.",
    );
    let began = Instant::now();
    open_until(show, plan, &scene, plan.warm_up)?;
    results.opened_in = began.elapsed();
    // They exchange messages too: buffers that all connections share belong to the baseline.
    wake_for(show, &scene, plan.settle, WARM_UP_PER_S)?;
    show.pause(&scene, plan.settle)?;
    results.base = Some(show.reading(&scene)?);
    Ok(())
}

fn open(show: &mut Show, plan: &Plan, results: &mut Results) -> Result<(), DemoError> {
    let scene = Scene::new(
        Chapter::Open,
        format!(
            "Opening {} TLS connections, each with a handshake of its own.",
            number(plan.connections.into())
        ),
        "A handshake needs kilobytes of memory. A connection at rest needs 192 bytes.",
    );
    let began = Instant::now();
    open_until(show, plan, &scene, plan.connections)?;
    results.opened_in += began.elapsed();
    results.agreed = show.fleet.agreed.keys().cloned().collect();
    Ok(())
}

/// Leaves all connections at rest and measures memory and CPU time.
fn rest(show: &mut Show, plan: &Plan, results: &mut Results) -> Result<(), DemoError> {
    let scene = Scene::new(
        Chapter::Rest,
        "All connections are at rest: this is what most connections do most of the time."
            .to_owned(),
        "A connection at rest has no buffer, no task and no object. Its cost is shown below.",
    );
    show.pause(&scene, plan.settle)?;
    let before = show.reading(&scene)?;
    show.pause(&scene, plan.rest)?;
    let after = show.reading(&scene)?;
    results.memory_at_rest = Some(after);
    results.rested_for = after.at - before.at;
    results.cpu_at_rest = after.cpu.saturating_sub(before.cpu);
    results.per_connection = watch::per_connection(&show.readings);
    Ok(())
}

/// Wakes random connections.
fn wake(show: &mut Show, plan: &Plan, results: &mut Results) -> Result<(), DemoError> {
    let scene = Scene::new(
        Chapter::Wake,
        "Waking random connections: each sends a message and waits for the echo.".to_owned(),
        "Every echo is compared byte for byte. Then the connection is at rest again.",
    );
    wake_for(show, &scene, plan.wake, plan.wake_per_s)?;
    results.slowest_echo = show.fleet.tally.slowest;
    Ok(())
}

/// Kills all workers with SIGKILL while connections are active.
fn kill(show: &mut Show, plan: &Plan, results: &mut Results) -> Result<Vec<Pid>, DemoError> {
    let workers = show.workers.clone();
    if workers.is_empty() {
        return Err(DemoError::Failed(
            "no worker of `serve` was found".to_owned(),
        ));
    }
    let pids = workers
        .iter()
        .map(Pid::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    let scene = Scene::new(
        Chapter::Kill,
        format!("Next: kill -9 {pids}, the processes that hold all connections."),
        "Other servers lose every connection with the process that holds it.",
    );
    wake_for(show, &scene, plan.before_kill, plan.storm_per_s)?;
    results.lost_before_kill = show.fleet.tally.lost;
    for &worker in &workers {
        let sent = process::send_signal(worker, Signal::Kill);
        sent.map_err(|error| format!("cannot kill worker {worker}: {error}"))?;
    }
    let at = Instant::now();
    while workers.iter().any(|&worker| process::runs(worker)) {
        if at.elapsed() > DEATH_TIMEOUT {
            return Err(DemoError::Failed("a killed worker did not exit".to_owned()));
        }
        // Not a busy loop: the keeper needs the processor.
        std::thread::sleep(DEATH_LOOK);
    }
    show.fleet.note_kill(at);
    show.workers.clear();
    Ok(workers)
}

/// Checks that every connection still works.
fn wake_everything(
    show: &mut Show,
    plan: &Plan,
    results: &mut Results,
    killed: Vec<Pid>,
) -> Result<(), DemoError> {
    let scene = Scene::new(
        Chapter::WakeAll,
        format!(
            "{} killed; new ones took over. Waking every connection.",
            count(killed.len() as u64, "worker was", "workers were")
        ),
        "The new workers found the records in shared memory, and the sockets in a shared file table.",
    );
    wake_all(show, plan, &scene)?;
    results.killed = show.fleet.kill.map(|kill| KillResult {
        workers: killed.len() as u64,
        awake: kill.awake,
        first_echo: kill.first_echo,
        lost: show.fleet.tally.lost.saturating_sub(kill.lost_before),
        went_on: show.fleet.census().at_rest,
    });
    let first = show.fleet.kill.and_then(|kill| kill.first_echo);
    let words = format!(
        "{} of {} continue in new processes. First echo: {} after the kill.",
        number(show.fleet.census().at_rest),
        number(plan.connections.into()),
        first.map_or_else(|| "never".to_owned(), duration),
    );
    let scene = Scene::new(
        Chapter::WakeAll,
        words,
        "At most the one connection that a worker was working on is reset.",
    );
    show.pause(&scene, plan.linger)
}

/// Closes all connections and measures the memory that is left.
fn close_all(show: &mut Show, plan: &Plan, results: &mut Results) -> Result<(), DemoError> {
    let before = show.readings.last().map_or(0, |reading| reading.bytes);
    let scene = Scene::new(
        Chapter::CloseAll,
        "All connections close, and the memory of their records is freed.".to_owned(),
        &format!("It was {} with all connections.", megabytes(before)),
    );
    let per_s = f64::from(plan.connections) / plan.linger.as_secs_f64();
    let mut pacer = Pacer::new(per_s, Instant::now());
    let mut next = 0;
    results.finish(&show.fleet);
    show.play(&scene, |fleet, now| {
        for _ in 0..due(&mut pacer, now) {
            fleet.close(next);
            next += 1;
        }
        next >= fleet.clients.len()
    })?;
    show.pause(&scene, plan.settle)?;
    results.memory_at_end = Some(show.reading(&scene)?);
    Ok(())
}
