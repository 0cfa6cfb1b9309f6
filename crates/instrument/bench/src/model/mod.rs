//! The result of a run: every figure with its unit, and everything needed to interpret it.

mod text;
mod time;

pub(crate) use text::readable;
pub use text::{grouped, table};

use std::collections::BTreeMap;

use dormouse_engine::UnixTime;
use serde::{Deserialize, Serialize};

use dormouse_measure::{Growth, Summary};
use dormouse_measure::{Machine, ProcessInfo};

/// Version of the JSON form. It is incremented when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// One run against one server: one JSON object.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the instrument.
    pub tool: String,
    /// Libraries that the instrument measured with, and their versions.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// `hold`, `churn`, `bulk`, `wake` or `request`.
    pub mode: String,
    /// The server's name in reports.
    pub label: String,
    /// Address under test.
    pub target: String,
    /// Start, seconds since 1970-01-01 UTC.
    pub started_at_s: u64,
    /// The same, for people.
    pub started_at: String,
    /// Length of the whole run.
    pub duration_s: f64,
    /// Where it ran.
    pub machine: Machine,
    /// The server's processes, as far as they were measured.
    pub server: Vec<ProcessInfo>,
    /// Every option with the value it had, defaults included.
    pub settings: BTreeMap<String, serde_json::Value>,
    /// The figures, in the order of the table.
    pub figures: Vec<Figure>,
    /// Latency distributions by name.
    pub latencies: BTreeMap<String, Summary>,
    /// Samples over time.
    pub samples: Vec<Sample>,
    /// Growth from round to round, if there were rounds.
    pub growth: Option<Growth>,
    /// Failures by reason.
    pub failures: BTreeMap<String, u64>,
    /// Remarks for the reader: unverified certificates, missing figures and the reasons.
    pub notes: Vec<String>,
    /// The end of the run.
    pub outcome: RunOutcome,
}

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Stable name, dotted: `memory.per_connection.pss`.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Its value.
    pub value: f64,
    /// Unit: `bytes`, `1`, `s`, `us`, `1/s`, `MB/s`, `s/GB`, `%`.
    pub unit: String,
}

/// One sample over time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at_s: f64,
    /// Established connections.
    pub alive: u64,
    /// The server's proportional set, in bytes.
    pub pss_bytes: u64,
    /// The server's resident set, in bytes.
    pub rss_bytes: u64,
    /// The server's CPU time so far, in seconds.
    pub cpu_s: f64,
}

/// The end of a run: complete or not, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Whether it ran to its end.
    pub complete: bool,
    /// Why not, or what was lost.
    pub message: Option<String>,
    /// Exit status of the process.
    pub exit_status: u8,
}

impl Run {
    /// Returns a run that has just begun.
    pub fn begin(mode: &str, label: &str, target: &str) -> Self {
        let started_at_s = UnixTime::now().as_secs();
        Self {
            schema: SCHEMA,
            tool: concat!("dormouse ", env!("CARGO_PKG_VERSION")).into(),
            versions: BTreeMap::new(),
            mode: mode.into(),
            label: label.into(),
            target: target.into(),
            started_at_s,
            started_at: time::utc(started_at_s),
            duration_s: 0.0,
            machine: Machine::this(),
            server: Vec::new(),
            settings: BTreeMap::new(),
            figures: Vec::new(),
            latencies: BTreeMap::new(),
            samples: Vec::new(),
            growth: None,
            failures: BTreeMap::new(),
            notes: Vec::new(),
            outcome: RunOutcome {
                complete: false,
                message: None,
                exit_status: 3,
            },
        }
    }

    /// Adds a figure.
    pub fn figure(&mut self, name: &str, title: &str, value: f64, unit: &str) {
        // JSON has no infinities; a division by zero gives no figure.
        if value.is_finite() {
            self.figures.push(Figure {
                name: name.into(),
                title: title.into(),
                value,
                unit: unit.into(),
            });
        }
    }

    /// Adds figures: name, title, value, unit.
    pub fn figures<const N: usize>(&mut self, figures: [(&str, &str, f64, &str); N]) {
        for (name, title, value, unit) in figures {
            self.figure(name, title, value, unit);
        }
    }

    /// Returns the value of a figure.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.figures
            .iter()
            .find(|figure| figure.name == name)
            .map(|figure| figure.value)
    }

    /// Adds a remark, unless it is there already.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
