//! Finds where a TLS server or client uses memory and CPU time, and what to change.
//!
//! An audit works from outside. Handmade handshakes show what is offered and whether sessions are resumed, load shows
//! the cost of connections, and the operating system lets the process's owner read its memory. A figure that could not
//! be measured is reported with the reason. The [`findings`] depend only on the figures, so a stored audit can be
//! judged again.
//!
//! The crate builds on `bench` and uses its load generator and its session with a server; it adds handshakes, a heap
//! census and advice. No crate below it depends on findings.
#![forbid(unsafe_code)]

mod catalogue;
pub mod client;
mod connection;
pub mod findings;
#[doc(hidden)]
pub mod fuzzed;
pub mod model;
pub mod process_lookup;
mod reference;
pub mod report;
pub mod server;
pub mod shell;
pub mod software;

use std::collections::BTreeMap;

pub use client::ClientSpec;
pub use findings::{Severity, Thresholds};
use model::figures::Premises;
pub use model::{Audit, Finding, Measured};
pub use server::{Effort, ServerSpec};

use dormouse_bench::model::{Run, RunOutcome};
use dormouse_measure::Error;
use dormouse_measure::Machine;

/// Beginning of the outcome's message in an audit that was judged again: the thresholds are not stored.
const JUDGED_AGAIN: &str = "when it was made: ";

/// Key of the setting that stores the machine's load average at the start of the audit.
const LOAD: &str = "load_average";

fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

impl Audit {
    /// The machine's load average at the start of the audit.
    fn load_average(&self) -> Option<f64> {
        self.settings.get(LOAD)?.as_f64()
    }

    /// Whether the software's runtime collects garbage.
    fn collects(&self) -> bool {
        let software = self.software.value();
        software.is_some_and(|software| software.kind.program().collects)
    }

    fn premises(&self) -> Premises {
        Premises {
            at_s: self.started_at_s,
            collects: self.collects(),
        }
    }

    /// A word for an audit that is not clean, whatever it found: a threshold may be exceeded, or have no figure.
    fn failure_word(&self) -> Option<&'static str> {
        match (self.outcome.complete, &self.outcome.message) {
            (false, _) => Some("not complete"),
            (true, Some(_)) => Some("failed"),
            (true, None) => None,
        }
    }

    fn begin(kind: &str, label: &str, target: &str) -> Self {
        let run = Run::begin("audit", label, target);
        Self {
            schema: model::SCHEMA,
            tool: run.tool,
            kind: kind.into(),
            label: label.into(),
            target: target.into(),
            started_at_s: run.started_at_s,
            started_at: run.started_at,
            duration_s: 0.0,
            machine: Machine::this(),
            settings: BTreeMap::from([(LOAD.to_owned(), load_average().into())]),
            software: Measured::not("the audit ended before this part"),
            processes: Vec::new(),
            server: None,
            client: None,
            findings: Vec::new(),
            samples: Vec::new(),
            notes: Vec::new(),
            incomplete: Vec::new(),
            outcome: run.outcome,
        }
    }

    /// Replaces the findings of a stored audit with those that this version derives from its figures. The outcome stays.
    pub fn judge_again(&mut self) {
        self.findings = findings::judge(self);
        // It may tell the number of the former findings.
        let is_new = |message: &&mut String| !message.starts_with(JUDGED_AGAIN);
        if let Some(message) = self.outcome.message.as_mut().filter(is_new) {
            message.insert_str(0, JUDGED_AGAIN);
        }
    }

    /// Derives the findings and records how the audit ended.
    fn conclude(&mut self, end: Result<(), Error>) {
        self.findings = findings::judge(self);
        let parts: Vec<_> = self
            .incomplete
            .iter()
            .map(|missing| &*missing.part)
            .collect();
        self.outcome = match end {
            Ok(()) if !parts.is_empty() => RunOutcome {
                complete: false,
                message: Some(format!("not measured: {}", parts.join(", "))),
                exit_status: 3,
            },
            Ok(()) => RunOutcome {
                complete: true,
                message: None,
                exit_status: 0,
            },
            Err(error) => RunOutcome {
                complete: false,
                exit_status: error.exit_status(),
                message: Some(error.message),
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_of_former_findings_says_so() {
        let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
        audit.conclude(Ok(()));
        audit.judge_again();
        assert_eq!(audit.outcome.message, None);
        audit.outcome.message = Some("2 findings are medium or above".into());
        for _ in 0..2 {
            audit.judge_again();
            let message = audit.outcome.message.as_deref();
            let expected = "when it was made: 2 findings are medium or above";
            assert_eq!(message, Some(expected));
        }
    }
}
