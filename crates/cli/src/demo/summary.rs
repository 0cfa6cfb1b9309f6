//! What the demo has found, in words for a person, and whether it is as it should be.

use std::fmt::Write as _;
use std::time::Duration;

use super::fleet::{Fleet, Tally};
use super::plan::{Plan, WORKERS};
use super::show::Base;
use super::watch::{Measure, Reading};
use super::words::{count, duration, megabytes, number};

/// Everything that was found.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) connections: u64,
    pub(super) opened_in: Duration,
    pub(super) agreed: Vec<String>,
    pub(super) base: Option<Base>,
    pub(super) memory_at_rest: Option<Reading>,
    pub(super) memory_at_end: Option<Reading>,
    pub(super) per_connection: Option<u64>,
    pub(super) rested_for: Duration,
    pub(super) cpu_at_rest: Duration,
    pub(super) slowest_echo: Duration,
    pub(super) lost_before_kill: u64,
    pub(super) killed: Option<Killed>,
    tally: Tally,
    reasons: Vec<(String, u64)>,
}

/// What the kill did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Killed {
    pub(super) workers: u64,
    /// Connections which waited for an echo at that moment.
    pub(super) awake: u64,
    pub(super) first_echo: Option<Duration>,
    pub(super) lost: u64,
    pub(super) went_on: u64,
}

impl Findings {
    /// Takes over the counts, before the clients close their connections.
    pub(super) fn finish(&mut self, fleet: &Fleet) {
        self.tally = fleet.tally;
        self.reasons = fleet
            .reasons
            .iter()
            .map(|(reason, &count)| (reason.clone(), count))
            .collect();
    }

    /// What is not as it should be; nothing, if all is well.
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
                "{} got back what was not said",
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
                        "{} lost by the kill; each worker has at most one in its hands, which makes {}",
                        connections(killed.lost),
                        killed.workers
                    ));
                }
                if killed.first_echo.is_none() {
                    wrong.push("nothing was echoed after the kill".to_owned());
                }
            }
        }
        wrong
    }
}

/// The page that is printed in the end.
pub(super) fn page(plan: &Plan, findings: &Findings, verdict: &[String]) -> String {
    let mut page = String::from("\n");
    if let Some(note) = &plan.note {
        let _ = writeln!(page, "note: {note}\n");
    }
    let mut row = |name: &str, what: String| {
        let _ = writeln!(page, "  {name:<13} {what}");
    };
    row("opened", opened(findings));
    row("at rest", at_rest(findings));
    row("", quiet(findings));
    row("woken", woken(findings));
    if let Some(killed) = findings.killed {
        row("kill -9", kill(findings, killed));
        row("", first_echo(killed));
    }
    if let Some(end) = findings.memory_at_end {
        let with = findings.memory_at_rest.map_or_else(String::new, |then| {
            format!("; {} with them", megabytes(then.bytes))
        });
        row(
            "closed",
            format!("{} when all had said goodbye{with}", megabytes(end.bytes)),
        );
    }
    page.push('\n');
    match verdict {
        [] => page.push_str("All is well: nothing was lost, and every echo was right.\n"),
        problems => {
            page.push_str("NOT AS IT SHOULD BE:\n");
            for problem in problems {
                let _ = writeln!(page, "  {problem}");
            }
            for (reason, count) in &findings.reasons {
                let _ = writeln!(page, "    {count:>6} × {reason}");
            }
        }
    }
    page
}

fn opened(findings: &Findings) -> String {
    let established = findings.connections.saturating_sub(findings.tally.failed);
    format!(
        "{} TLS connections in {}, each with a full handshake, certificate verified\n{:16}({})",
        number(established),
        duration(findings.opened_in),
        "",
        findings.agreed.join("; ")
    )
}

fn at_rest(findings: &Findings) -> String {
    let each = match findings.per_connection {
        Some(bytes) => format!("{} bytes per connection", number(bytes)),
        None => "too few connections to tell what one costs".to_owned(),
    };
    let measure = match findings.memory_at_rest.map(|reading| reading.measure) {
        Some(Measure::Resident) => {
            "resident, shared pages counted in each process; exact figures need root"
        }
        _ => "PSS of all its processes, program text left out",
    };
    let from =
        findings
            .base
            .zip(findings.memory_at_rest)
            .map_or_else(String::new, |(base, then)| {
                let (few, all) = (number(base.connections), number(findings.connections));
                format!(
                    ": {} with {few}, {} with {all}",
                    megabytes(base.bytes),
                    megabytes(then.bytes)
                )
            });
    format!(
        "{each} in `dormouse serve`{from}\n{:16}({measure}; {WORKERS} workers, two sockets per connection)",
        ""
    )
}

fn quiet(findings: &Findings) -> String {
    let proportional = findings
        .memory_at_rest
        .is_some_and(|reading| reading.measure == Measure::Proportional);
    match proportional {
        true => format!(
            "{} of CPU in {} of rest",
            duration(findings.cpu_at_rest),
            duration(findings.rested_for)
        ),
        false => "CPU time was not measured".to_owned(),
    }
}

fn woken(findings: &Findings) -> String {
    let tally = findings.tally;
    format!(
        "{} echoes, {}, compared byte for byte: {}; the slowest before the kill took {}",
        number(tally.echoes),
        megabytes(tally.echo_bytes),
        if tally.wrong == 0 {
            "all right".to_owned()
        } else {
            format!("{} WRONG", number(tally.wrong))
        },
        duration(findings.slowest_echo)
    )
}

fn kill(findings: &Findings, killed: Killed) -> String {
    let lost = match killed.lost {
        0 => "none was lost".to_owned(),
        lost => format!(
            "{} lost (each worker has one in its hands at most)",
            number(lost)
        ),
    };
    format!(
        "of {}, with {} waiting for an echo: {} of {} connections went on, {lost}",
        count(killed.workers, "worker", "workers"),
        count(killed.awake, "connection", "connections"),
        number(killed.went_on),
        number(findings.connections),
    )
}

fn first_echo(killed: Killed) -> String {
    let first = killed
        .first_echo
        .map_or_else(|| "never".to_owned(), duration);
    format!("first echo of something said after the kill: {first}; then all were asked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Findings {
        let killed = Killed {
            workers: 2,
            awake: 3,
            first_echo: Some(Duration::from_millis(9)),
            lost: 2,
            went_on: 98,
        };
        Findings {
            connections: 100,
            killed: Some(killed),
            ..Findings::default()
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
    fn whatever_else_goes_wrong_is_said() {
        let mut bad = good();
        bad.lost_before_kill = 1;
        bad.tally = Tally {
            failed: 1,
            wrong: 1,
            ..Tally::default()
        };
        bad.killed.as_mut().expect("it was killed").first_echo = None;
        assert_eq!(bad.verdict().len(), 4, "{:?}", bad.verdict());
        bad.killed = None;
        assert_eq!(bad.verdict().len(), 4, "{:?}", bad.verdict());
    }
}
