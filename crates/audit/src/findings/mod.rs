//! What is wrong, how surely, and what to change. Drawn from the figures of an audit alone.

mod advice;
mod client;
mod collected;
mod memory;
mod quoted;
mod resumption;
mod server;

use serde::{Deserialize, Serialize};

use super::again;
use super::model::{Audit, Measured};
use super::software::Kind;

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Could be better.
    Low,
    /// Costs noticeably.
    Medium,
    /// Costs a multiple of what is needed, or breaks something.
    High,
}

impl Severity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// How sure the cause is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// One of several that fit.
    Low,
    /// It fits, and little else does.
    Medium,
    /// It was seen directly.
    High,
}

/// One finding.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Stable identifier: `record-buffers-kept`.
    pub id: String,
    /// How much it matters.
    pub severity: Severity,
    /// In one line.
    pub title: String,
    /// What was measured, with the numbers.
    pub measured: String,
    /// What a good one reaches, on the same machine where that could be measured.
    pub reference: String,
    /// The likely cause.
    pub cause: String,
    /// How sure that is.
    pub confidence: Confidence,
    /// What to change in this software.
    pub advice: String,
    /// The command that shows it again.
    pub command: String,
}

/// Limits of a continuous integration.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Thresholds {
    /// A finding of this severity or above fails; `None`: none does.
    pub fail_on: Option<Severity>,
    /// Most bytes per quiet connection.
    pub max_bytes_per_connection: Option<f64>,
    /// Least share of connections that resume, from 0 to 1.
    pub min_resumed: Option<f64>,
}

/// Draws all findings, the weightiest first.
pub(super) fn judge(audit: &Audit) -> Vec<Finding> {
    let mut findings = Vec::new();
    let about = About::new(audit);
    if let Some(figures) = &audit.server {
        server::judge(&about, figures, &mut findings);
        memory::judge(&about, figures, &mut findings);
    }
    if let Some(figures) = &audit.client {
        client::judge(&about, figures, &mut findings);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// Whom findings are about: for advice, and for the commands which show them again.
struct About {
    kind: Kind,
    target: String,
    /// The name that the target is one address of, as `audit` takes it.
    named: Option<String>,
    /// `--pid 4711`, `--cmd '…'`, or nothing.
    which: String,
    /// Options that `bench` takes too.
    options: String,
}

impl About {
    fn new(audit: &Audit) -> Self {
        let setting = |name: &str| audit.settings.get(name);
        let named = ["unit", "container"]
            .iter()
            .find_map(|what| Some(format!(" --{what} {}", setting(what)?.as_str()?)));
        let which = match (setting("pid"), setting("cmd").and_then(|cmd| cmd.as_str())) {
            (Some(pid), _) => named.unwrap_or_else(|| format!(" --pid {pid}")),
            (None, Some(cmd)) => format!(" --cmd {}", again::quoted(cmd)),
            (None, None) => String::new(),
        };
        let options = setting("options").and_then(|options| options.as_str());
        Self {
            kind: audit
                .software
                .value()
                .map_or(Kind::Unknown, |software| software.kind),
            target: audit.target.clone(),
            named: setting("named")
                .and_then(|named| named.as_str())
                .map(str::to_owned),
            which,
            options: options.map_or_else(String::new, |options| format!(" {options}")),
        }
    }

    fn advice(&self, id: &str) -> String {
        advice::of(self.kind, id)
    }

    /// A command of the bench that shows a figure again.
    fn bench(&self, mode: &str, options: &str) -> String {
        let Self {
            target,
            which,
            options: reach,
            ..
        } = self;
        format!("dormouse bench {mode} {target} {options}{which}{reach}")
    }

    /// The audit again, of all addresses if there are several.
    fn audit(&self) -> String {
        let Self {
            target,
            named,
            which,
            options,
            ..
        } = self;
        let target = named.as_ref().unwrap_or(target);
        format!("dormouse audit server {target} --quick{which}{options}")
    }
}

impl Thresholds {
    /// What an audit breaches, in words; and what could not be judged.
    pub fn breaches(&self, audit: &Audit) -> (Vec<String>, Vec<String>) {
        let (mut breached, mut unknown) = (Vec::new(), Vec::new());
        if let Some(severity) = self.fail_on {
            let count = audit
                .findings
                .iter()
                .filter(|finding| finding.severity >= severity)
                .count();
            if count > 0 {
                let are = if count == 1 {
                    "1 finding is".to_owned()
                } else {
                    format!("{count} findings are")
                };
                breached.push(format!("{are} {} or above", severity.name()));
            }
        }
        if let Some(most) = self.max_bytes_per_connection {
            match bytes_per_connection(audit) {
                Measured::Measured(bytes) if bytes > most => {
                    breached.push(format!(
                        "{bytes:.0} bytes per quiet connection, {most:.0} are allowed"
                    ));
                }
                Measured::Measured(_) => {}
                Measured::NotMeasured(why) => unknown.push(format!("bytes per connection: {why}")),
            }
        }
        if let Some(least) = self.min_resumed {
            match resumed_share(audit) {
                Measured::Measured(share) if share < least => breached.push(format!(
                    "{:.0} % of the connections resumed, {:.0} % are asked for",
                    100.0 * share,
                    100.0 * least
                )),
                Measured::Measured(_) => {}
                Measured::NotMeasured(why) => unknown.push(format!("share resumed: {why}")),
            }
        }
        (breached, unknown)
    }
}

/// Bytes of a quiet connection: after an exchange and a while, if that was measured.
pub(super) fn bytes_per_connection(audit: &Audit) -> Measured<f64> {
    let Some(figures) = &audit.server else {
        return Measured::not("no server was audited");
    };
    match &figures.memory {
        Measured::NotMeasured(why) => Measured::not(why.clone()),
        Measured::Measured(memory) => memory.quiet(),
    }
}

/// The share that resumed: the worst of the versions, by ticket, and of the addresses; of a client, of all but the first.
fn resumed_share(audit: &Audit) -> Measured<f64> {
    if let Some(client) = &audit.client {
        return match client.connections.checked_sub(1) {
            None | Some(0) => Measured::not("the client made fewer than two connections"),
            Some(later) => Measured::Measured(client.resumed as f64 / later as f64),
        };
    }
    let Some(figures) = &audit.server else {
        return Measured::not("nothing was audited");
    };
    let by_ticket = figures
        .resumption
        .iter()
        .filter(|entry| entry.by == "ticket");
    let shares = by_ticket
        .filter_map(|entry| entry.trials.value())
        .map(|trials| trials.share());
    match shares.chain(shared(figures)).reduce(f64::min) {
        Some(share) => Measured::Measured(share),
        None => Measured::not("no handshake for it could be made"),
    }
}

/// The share that another address of the name resumed.
fn shared(figures: &super::model::ServerFigures) -> Option<f64> {
    let others = figures.addresses.value()?.iter();
    let others = others.filter(|entry| entry.from != entry.to);
    let trials: Vec<_> = others.filter_map(|entry| entry.trials.value()).collect();
    let offered: u64 = trials.iter().map(|trials| trials.offered).sum();
    let resumed: u64 = trials.iter().map(|trials| trials.resumed).sum();
    (offered > 0).then(|| resumed as f64 / offered as f64)
}

/// `16912` as `16,912`.
fn whole(value: f64) -> String {
    dormouse_bench::model::grouped(value, 0)
}

/// Bytes in the unit that reads best.
fn bytes(value: f64) -> String {
    match value.abs() {
        ..10_000.0 => format!("{} bytes", whole(value)),
        ..10_000_000.0 => format!("{} kB", whole(value / 1e3)),
        _ => format!("{} MB", whole(value / 1e6)),
    }
}

/// A share in percent.
fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
