//! Result of an audit. Its JSON form has the same fields; see `docs/guide/audit.md`.

mod client;
mod cpu;
mod measured;
mod memory;
mod server;

pub use client::{ClientConnection, ClientFigures};
pub use cpu::{CpuFigures, FirstConnection, Reference};
pub use measured::Measured;
pub(crate) use memory::GROWTH_BYTES;
pub use memory::{CollectedPoint, CollectedRounds, MemoryFigures, MemoryPhase};
pub use server::{
    AddressTrials, AgedTicket, Certificate, FlightRow, Offer, Resumption, ServerFigures, Trials,
};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::findings::Finding;
use crate::software::Software;
use dormouse_bench::model::{RunOutcome, Sample};
use dormouse_measure::{Machine, ProcessInfo};

/// Version of the JSON form. It is raised when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// One audit: one JSON object.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Audit {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the instrument.
    pub tool: String,
    /// `server` or `client`.
    pub kind: String,
    /// The name of what was audited, in reports.
    pub label: String,
    /// The server's address, or the client's command.
    pub target: String,
    /// Start, seconds since 1970-01-01 UTC.
    pub started_at_s: u64,
    /// The same, for people.
    pub started_at: String,
    /// Length of the audit.
    pub duration_s: f64,
    /// Where it ran.
    pub machine: Machine,
    /// Settings of the audit.
    pub settings: BTreeMap<String, serde_json::Value>,
    /// The audited software.
    pub software: Measured<Software>,
    /// The processes that were measured.
    pub processes: Vec<ProcessInfo>,
    /// A server's figures.
    pub server: Option<ServerFigures>,
    /// A client's figures.
    pub client: Option<ClientFigures>,
    /// Findings, the most severe first.
    pub findings: Vec<Finding>,
    /// Memory and CPU time over time.
    pub samples: Vec<Sample>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
    /// Parts of the audit that are missing, and why.
    #[serde(default)]
    pub incomplete: Vec<MissingPart>,
    /// The end of the audit.
    pub outcome: RunOutcome,
}

/// A part of an audit that could not be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingPart {
    /// Its name: `growth`, `idle connections`, `throughput`, `resumed handshakes`.
    pub part: String,
    /// The reason.
    pub why: String,
}
