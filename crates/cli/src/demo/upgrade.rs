//! The scene that replaces the running program.

use std::time::{Duration, Instant};

use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::signal::Signal;

use super::format::{duration, number};
use super::plan::Plan;
use super::show::{DemoError, Show};
use super::summary::{Results, UpgradeResult};
use super::traffic::{wake_all, wake_for};
use super::view::{Chapter, Scene};

/// Limit on the duration of an upgrade, for a busy machine.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between checks for the end of the upgrade.
const LOOK: Duration = Duration::from_millis(100);

/// Sends SIGUSR2 to `serve` while connections are active: every process is replaced.
pub(super) fn upgrade(
    show: &mut Show,
    plan: &Plan,
    results: &mut Results,
) -> Result<(), DemoError> {
    let pid = show.children.serve_pid();
    let scene = Scene::new(
        Chapter::Upgrade,
        format!(
            "Next: `dormouse upgrade`, which replaces the binary of process {pid} and its children."
        ),
        "Other servers keep the old process until its last connection has closed.",
    );
    wake_for(show, &scene, plan.before_kill, plan.storm_per_s)?;
    let before = show.watch.workers()?;
    let lost_before = show.fleet.tally.lost;
    let slowest_before = std::mem::take(&mut show.fleet.tally.slowest);
    let sent = process::send_signal(Pid(pid), Signal::User2);
    sent.map_err(|error| format!("cannot send SIGUSR2 to `serve`: {error}"))?;
    show.fleet.expect_all();
    let since = Instant::now();
    loop {
        wake_for(show, &scene, LOOK, plan.storm_per_s)?;
        let now = show.watch.workers()?;
        if now.len() == before.len() && !now.iter().any(|pid| before.contains(pid)) {
            show.workers = now;
            break;
        }
        if since.elapsed() > UPGRADE_TIMEOUT {
            return Err(DemoError::Failed("the upgrade did not complete".to_owned()));
        }
    }
    let scene = Scene::new(
        Chapter::Upgrade,
        "Replaced: main, control, keepers and workers. Waking every connection.".to_owned(),
        "The new binary copied the records and kept the sockets.",
    );
    wake_all(show, plan, &scene)?;
    let slowest = show.fleet.tally.slowest;
    show.fleet.tally.slowest = slowest.max(slowest_before);
    let upgraded = UpgradeResult {
        lost: show.fleet.tally.lost.saturating_sub(lost_before),
        went_on: show.fleet.census().at_rest,
        slowest,
    };
    results.upgraded = Some(upgraded);
    let scene = Scene::new(
        Chapter::Upgrade,
        format!(
            "{} continue with the new binary. Slowest echo during the upgrade: {}.",
            number(upgraded.went_on),
            duration(upgraded.slowest)
        ),
        "The process id and the listeners are the same; no queued connection was dropped.",
    );
    show.pause(&scene, plan.linger)
}
