//! The results of the demo, their verdict, and the page that shows them.

use std::fmt::Write as _;
use std::time::Duration;

use super::fleet::{Fleet, Tally};
use super::format::{count, duration, megabytes, number};
use super::plan::Plan;
use super::watch::{Measure, Reading};

/// Results of the demo.
#[derive(Default)]
pub(super) struct Results {
    pub(super) connections: u64,
    pub(super) opened_in: Duration,
    pub(super) agreed: Vec<String>,
    pub(super) base: Option<Reading>,
    pub(super) memory_at_rest: Option<Reading>,
    pub(super) memory_at_end: Option<Reading>,
    pub(super) per_connection: Option<u64>,
    pub(super) rested_for: Duration,
    pub(super) cpu_at_rest: Duration,
    pub(super) slowest_echo: Duration,
    pub(super) lost_before_kill: u64,
    pub(super) killed: Option<KillResult>,
    pub(super) upgraded: Option<UpgradeResult>,
    tally: Tally,
    reasons: Vec<(String, u64)>,
}

/// Effect of the kill.
#[derive(Clone, Copy, Debug)]
pub(super) struct KillResult {
    pub(super) workers: u64,
    /// Connections that waited for an echo at that moment.
    pub(super) awake: u64,
    pub(super) first_echo: Option<Duration>,
    pub(super) lost: u64,
    pub(super) went_on: u64,
}

/// Effect of the upgrade.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpgradeResult {
    pub(super) lost: u64,
    pub(super) went_on: u64,
    /// Slowest echo from before the upgrade until all connections were checked.
    pub(super) slowest: Duration,
}

impl Results {
    /// Copies the counts before the clients close their connections.
    pub(super) fn finish(&mut self, fleet: &Fleet) {
        self.tally = fleet.tally;
        self.reasons = fleet
            .reasons
            .iter()
            .map(|(reason, &count)| (reason.clone(), count))
            .collect();
    }

    fn measure(&self) -> Option<Measure> {
        self.memory_at_rest.map(|reading| reading.measure)
    }

    /// Returns the problems; none if the demo succeeded.
    pub(super) fn verdict(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let connections = |value| count(value, "connection", "connections");
        if self.tally.failed > 0 {
            wrong.push(format!(
                "{} could not be established",
                connections(self.tally.failed)
            ));
        }
        if self.tally.wrong > 0 {
            wrong.push(format!(
                "{} got a wrong echo",
                connections(self.tally.wrong)
            ));
        }
        if self.lost_before_kill > 0 {
            wrong.push(format!(
                "{} lost before any worker was killed",
                connections(self.lost_before_kill)
            ));
        }
        match self.killed {
            None => wrong.push("no worker was killed".to_owned()),
            Some(killed) => {
                if killed.lost > killed.workers {
                    wrong.push(format!(
                        "{} lost by the kill; a worker works on at most one connection, so at most {} may be lost",
                        connections(killed.lost),
                        killed.workers
                    ));
                }
                if killed.first_echo.is_none() {
                    wrong.push("no echo arrived after the kill".to_owned());
                }
            }
        }
        match self.upgraded {
            None => wrong.push("the binary was not replaced".to_owned()),
            Some(upgraded) if upgraded.lost > 0 => wrong.push(format!(
                "{} lost by the upgrade",
                connections(upgraded.lost)
            )),
            Some(_) => {}
        }
        wrong
    }
}

/// The page that is printed at the end.
pub(super) fn page(plan: &Plan, results: &Results, verdict: &[String], colours: bool) -> String {
    let mut page = String::from("\n");
    if let Some(note) = &plan.note {
        let _ = writeln!(page, "note: {note}\n");
    }
    chapter(&mut page, "opened", &opened(results));
    chapter(&mut page, "at rest", &at_rest(results));
    chapter(&mut page, "woken", &woken(results));
    if let Some(killed) = results.killed {
        chapter(&mut page, "kill -9", &kill(results, killed));
    }
    if let Some(upgraded) = results.upgraded {
        chapter(&mut page, "upgrade", &upgrade(results, upgraded));
    }
    if let Some(end) = results.memory_at_end {
        let what = format!("{} after all connections closed", megabytes(end.bytes));
        chapter(&mut page, "closed", &[what]);
    }
    page.push('\n');
    let (green, red, plain) = match colours {
        true => ("\x1b[1;32m", "\x1b[1;31m", "\x1b[0m"),
        false => ("", "", ""),
    };
    if verdict.is_empty() {
        let what = match results.killed.map_or(0, |killed| killed.lost) {
            0 => "no connection was lost, and every echo was correct.",
            _ => {
                "every echo was correct, and no connection was lost\nexcept those that the killed workers were working on."
            }
        };
        let _ = writeln!(page, "{green}Success:{plain} {what}");
        return page;
    }
    let _ = writeln!(page, "{red}FAILED:{plain}");
    for problem in verdict {
        let _ = writeln!(page, "  {problem}");
    }
    for (reason, count) in &results.reasons {
        let _ = writeln!(page, "    {count:>6} × {reason}");
    }
    page
}

/// Writes lines, the first of them after a name.
fn chapter(page: &mut String, name: &str, lines: &[String]) {
    let mut name = name;
    for line in lines {
        // Writing into a String can't fail.
        let _ = writeln!(page, "  {name:<9} {line}");
        name = "";
    }
}

fn opened(results: &Results) -> Vec<String> {
    let established = results.connections.saturating_sub(results.tally.failed);
    let mut lines = vec![
        format!(
            "{} TLS connections in {}",
            number(established),
            duration(results.opened_in)
        ),
        "each with a full handshake, and the certificate verified".to_owned(),
    ];
    lines.extend(results.agreed.iter().cloned());
    lines
}

fn at_rest(results: &Results) -> Vec<String> {
    let each = match results.per_connection {
        Some(bytes) => format!("{} bytes per connection in `dormouse serve`", number(bytes)),
        None => "the cost of a connection is unknown: too few connections".to_owned(),
    };
    let mut lines = vec![each];
    if let Some((base, then)) = results.base.zip(results.memory_at_rest) {
        lines.push(format!(
            "{} with {} connections, {} with {}",
            megabytes(base.bytes),
            number(base.connections),
            megabytes(then.bytes),
            number(results.connections),
        ));
    }
    let measure = match results.measure() {
        Some(Measure::Resident) => "resident memory (only root can read PSS)",
        _ => "PSS",
    };
    lines.push(format!(
        "{measure} of all its processes, without the program's code"
    ));
    lines.push("the kernel's memory for its two sockets is the same with every server".to_owned());
    if results.measure() == Some(Measure::Proportional) {
        let (cpu, rested) = (duration(results.cpu_at_rest), duration(results.rested_for));
        lines.push(format!(
            "{cpu} of CPU time in {rested} at rest, for all connections"
        ));
    }
    lines
}

fn woken(results: &Results) -> Vec<String> {
    let tally = results.tally;
    let judged = match tally.wrong {
        0 => "all correct".to_owned(),
        wrong => format!("{} WRONG", number(wrong)),
    };
    vec![
        format!(
            "{} echoes, {}, compared byte for byte: {judged}",
            number(tally.echoes),
            megabytes(tally.echo_bytes)
        ),
        format!(
            "the slowest echo before the kill took {}",
            duration(results.slowest_echo)
        ),
    ]
}

fn kill(results: &Results, killed: KillResult) -> Vec<String> {
    let lost = match killed.lost {
        0 => "none lost".to_owned(),
        lost => format!("{} lost (at most one per worker may be)", number(lost)),
    };
    vec![
        format!(
            "of {}, with {} waiting for an echo",
            count(killed.workers, "worker", "workers"),
            count(killed.awake, "connection", "connections")
        ),
        format!(
            "{} of {} connections continued, {lost}",
            number(killed.went_on),
            number(results.connections)
        ),
        format!(
            "first echo of a message sent after the kill: {}",
            killed
                .first_echo
                .map_or_else(|| "never".to_owned(), duration)
        ),
    ]
}

fn upgrade(results: &Results, upgraded: UpgradeResult) -> Vec<String> {
    let lost = match upgraded.lost {
        0 => "none lost".to_owned(),
        lost => format!("{} LOST", number(lost)),
    };
    vec![
        format!(
            "{} of {} connections continued with the new binary, {lost}",
            number(upgraded.went_on),
            number(results.connections)
        ),
        format!(
            "the slowest echo during the upgrade took {}",
            duration(upgraded.slowest)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Results {
        let killed = KillResult {
            workers: 2,
            awake: 3,
            first_echo: Some(Duration::from_millis(9)),
            lost: 2,
            went_on: 98,
        };
        Results {
            connections: 100,
            killed: Some(killed),
            upgraded: Some(UpgradeResult {
                lost: 0,
                went_on: 98,
                slowest: Duration::from_millis(20),
            }),
            ..Results::default()
        }
    }

    #[test]
    fn one_connection_per_killed_worker_may_be_lost_and_no_more() {
        assert!(good().verdict().is_empty());
        let mut bad = good();
        bad.killed.as_mut().expect("it was killed").lost = 3;
        assert_eq!(bad.verdict().len(), 1, "{:?}", bad.verdict());
    }

    #[test]
    fn every_other_failure_is_reported() {
        let mut bad = good();
        bad.lost_before_kill = 1;
        bad.tally = Tally {
            failed: 1,
            wrong: 1,
            ..Tally::default()
        };
        bad.killed.as_mut().expect("it was killed").first_echo = None;
        assert_eq!(bad.verdict().len(), 4, "{:?}", bad.verdict());
        bad.upgraded.as_mut().expect("it was upgraded").lost = 1;
        assert_eq!(bad.verdict().len(), 5, "{:?}", bad.verdict());
        bad.killed = None;
        assert_eq!(bad.verdict().len(), 5, "{:?}", bad.verdict());
    }
}
