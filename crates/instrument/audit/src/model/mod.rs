//! Result of an audit. Its JSON form has the same fields; see `docs/guide/audit.md`.

mod client;
mod cpu;
pub(crate) mod figures;
mod finding;
mod measured;
mod memory;
mod server;
pub(crate) mod words;

pub use client::{ClientConnection, ClientFigures};
pub(crate) use cpu::USUAL_KEY;
pub use cpu::{
    CpuFigures, FirstConnection, LockWaits, ParallelHandshakes, Reference, SilentClients,
};
pub use figures::Figures;
pub use finding::Finding;
pub use measured::Measured;
pub(crate) use memory::{BLOCKS_OF_CONNECTION, GROWTH_BYTES, OF_EACH};
pub use memory::{
    ClassRounds, CollectedPoint, CollectedRounds, MemoryFigures, MemoryPhase, Serving,
};
pub use server::{
    AddressTrials, AgedTicket, Certificate, FlightRow, Offer, RecordFigures, Resumption,
    ServerFigures, Trials,
};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::software::Software;
use dormouse_bench::model::{RunOutcome, Sample};
use dormouse_measure::{Machine, ProcessInfo};

/// Version of the JSON form, raised when a field is removed or changes its meaning.
pub const SCHEMA: u32 = 1;

/// The result of one audit, stored as one JSON object.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Audit {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the program that made the audit.
    pub tool: String,
    /// `server` or `client`.
    pub kind: String,
    /// Name of the audited server or client in reports.
    pub label: String,
    /// The server's address, or the client's command.
    pub target: String,
    /// Start time, in seconds since 1970-01-01 UTC.
    pub started_at_s: u64,
    /// Start time in readable form.
    pub started_at: String,
    /// Duration of the audit.
    pub duration_s: f64,
    /// The machine on which the audit ran.
    pub machine: Machine,
    /// Settings of the audit.
    pub settings: BTreeMap<String, serde_json::Value>,
    /// The recognised software.
    pub software: Measured<Software>,
    /// The measured processes.
    pub processes: Vec<ProcessInfo>,
    /// Figures of a server.
    pub server: Option<ServerFigures>,
    /// Figures of a client.
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
    /// How the audit ended.
    pub outcome: RunOutcome,
}

/// A part of an audit that could not be completed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingPart {
    /// Name of the part: `growth`, `idle connections`, `throughput`, `resumed handshakes`.
    pub part: String,
    /// The reason why the part is missing.
    pub why: String,
}
