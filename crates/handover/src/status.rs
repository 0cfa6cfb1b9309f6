//! The document of `GET /status`: control writes it, `dormouse status` and `dormouse top` read it.
//!
//! Its fields are described in docs/guide/status.md. A reader takes what it knows: fields of other
//! versions are skipped, and missing ones have their defaults.

use crate::control::{DrainOrder, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use dormouse_tables::counters::Count;

/// The whole document.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Version of the program; always there, but for a reader of foreign documents.
    pub version: Option<String>,
    /// Phase of the program's life.
    pub phase: LifePhase,
    /// Connections by state.
    pub connections: ConnectionFigures,
    /// Memory by pool.
    pub memory: BTreeMap<String, PoolFigures>,
    /// The main process; none until it has told of itself.
    pub main: Option<MainStatus>,
    /// The process that answers.
    pub control: ControlStatus,
    /// All workers, by number.
    pub workers: Vec<WorkerStatus>,
    /// The configuration that runs.
    pub configuration: Option<ConfigurationStatus>,
    /// The drain in progress.
    pub drain: Option<DrainStatus>,
    /// Addresses that are listened on.
    pub listeners: Vec<String>,
    /// Routes, then originations; the first few hundred.
    pub routes: Vec<RouteStatus>,
    /// Backends of all routes.
    pub backends: Vec<BackendStatus>,
    /// Keys of session tickets.
    pub ticket_keys: TicketKeyStatus,
    /// Latencies over all workers.
    pub latency: LatencyStatus,
    /// Certificates that clients are shown; those that expire first come first.
    pub certificates: Option<Vec<CertificateStatus>>,
    /// Certificates from an ACME server.
    pub acme: Option<AcmeStatus>,
    /// Counters and gauges by name, summed over the workers.
    pub counts: BTreeMap<String, u64>,
}

impl Status {
    /// Returns a counter's sum over the workers; 0 if the server does not know the counter.
    pub fn count(&self, count: Count) -> u64 {
        self.counts.get(count.name()).copied().unwrap_or(0)
    }
}

/// Phase of the program's life, as far as control knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LifePhase {
    /// Not all workers have begun.
    Starting,
    /// Serving.
    Ready,
    /// A drain goes on: nothing new is accepted.
    Draining,
    /// The program ends.
    Stopping,
    /// Main has died: nothing new is accepted, and the rest ends in a bounded time.
    Orphaned,
    /// Main has not told it yet.
    #[default]
    #[serde(other)]
    Unknown,
}

impl LifePhase {
    /// Returns the phase as one word.
    pub fn name(self) -> &'static str {
        match self {
            LifePhase::Starting => "starting",
            LifePhase::Ready => "ready",
            LifePhase::Draining => "draining",
            LifePhase::Stopping => "stopping",
            LifePhase::Orphaned => "orphaned",
            LifePhase::Unknown => "unknown",
        }
    }
}

impl From<Phase> for LifePhase {
    fn from(phase: Phase) -> LifePhase {
        match phase {
            Phase::Starting => LifePhase::Starting,
            Phase::Ready => LifePhase::Ready,
            Phase::Draining => LifePhase::Draining,
            Phase::Stopping => LifePhase::Stopping,
        }
    }
}

/// Connections by state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionFigures {
    /// Connections at rest.
    pub at_rest: u64,
    /// Connections with bytes pending.
    pub pending: u64,
    /// Handshakes in flight.
    pub handshaking: u64,
    /// Limit on connections.
    pub max: Option<u64>,
}

/// Use of a pool of memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolFigures {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Limit on them.
    pub bound_bytes: Option<u64>,
}

/// What is known of any process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFigures {
    /// Process id.
    pub pid: i32,
    /// Age in seconds.
    pub age_s: u64,
    /// Resident memory, pages shared with other processes included.
    pub resident_bytes: Option<u64>,
    /// Resident memory that belongs to no file: heap, stacks and shared memory.
    pub own_bytes: Option<u64>,
}

/// The main process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MainStatus {
    /// Figures of the process.
    #[serde(flatten)]
    pub process: ProcessFigures,
    /// Whether it runs.
    pub alive: bool,
}

/// The control process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlStatus {
    /// Figures of the process.
    #[serde(flatten)]
    pub process: ProcessFigures,
    /// Number of restarts.
    pub restarts: u64,
}

/// A worker and its keeper.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStatus {
    /// Figures of the process.
    #[serde(flatten)]
    pub process: ProcessFigures,
    /// Whether it runs.
    pub alive: bool,
    /// Number of restarts.
    pub restarts: u64,
    /// Connections at rest.
    pub at_rest: u64,
    /// Connections with bytes pending.
    pub pending: u64,
    /// Handshakes in flight.
    pub handshaking: u64,
    /// How the worker before it ended.
    pub last_death: Option<WorkerDeath>,
    /// The process that starts the worker again.
    pub keeper: Option<KeeperStatus>,
}

/// The end of a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerDeath {
    /// Exit status or signal.
    pub reason: String,
    /// Seconds since then.
    pub ago_s: u64,
}

/// A keeper.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeeperStatus {
    /// Figures of the process.
    #[serde(flatten)]
    pub process: ProcessFigures,
    /// Whether it runs.
    pub alive: bool,
    /// Exit status or signal, if it has ended.
    pub ended: Option<String>,
}

/// The configuration that runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigurationStatus {
    /// The file it was read from; none if it came from flags alone.
    pub file: Option<String>,
    /// 1 after the start, one more after each reload.
    pub edition: u64,
    /// Seconds since it was loaded.
    pub loaded_ago_s: u64,
    /// The last reload.
    pub last_reload: Option<ReloadStatus>,
    /// Options that were changed and take effect with the next start.
    pub waits_for_restart: Vec<String>,
}

/// A reload that is over.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadStatus {
    /// Whether the configuration was accepted.
    pub done: bool,
    /// What changed, or why the configuration was refused.
    pub words: String,
    /// Seconds since then.
    pub ago_s: u64,
}

/// Progress of a drain.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainStatus {
    /// Which connections are closed first.
    pub order: DrainOrder,
    /// Planned duration in seconds.
    pub over_s: f64,
    /// Seconds that have passed of it.
    pub passed_s: f64,
    /// Connections when it began.
    pub connections: u64,
    /// Connections closed by it.
    pub closed: u64,
    /// Connections and handshakes that are left.
    pub left: u64,
}

/// A route or an origination. Counts are of all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteStatus {
    /// Name, as configured or by its number.
    pub name: String,
    /// Addresses that it listens on.
    pub listen: Vec<String>,
    /// Connections.
    pub connections: u64,
    /// Connections that were established.
    pub opened: u64,
    /// Handshakes by result.
    pub handshakes: RouteHandshakes,
    /// Plaintext that has passed.
    pub plain_bytes: TrafficFigures,
    /// Connections that have ended, by reason.
    pub closed: BTreeMap<String, u64>,
}

/// Handshakes of a route, by result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteHandshakes {
    /// Full handshakes.
    pub full: u64,
    /// Resumed handshakes.
    pub resumed: u64,
    /// Handshakes that failed.
    pub failed: u64,
}

/// Plaintext bytes by direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficFigures {
    /// Bytes sent to backends, or to local clients.
    pub sent: u64,
    /// Bytes received from them.
    pub received: u64,
}

/// A backend. Counts are of all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendStatus {
    /// Names of the routes that use it.
    pub routes: Vec<String>,
    /// Address.
    pub address: String,
    /// Host name that stands for the address.
    pub name: Option<String>,
    /// Whether new connections may go there, as far as checks and failures are known.
    pub up: bool,
    /// Whether an administrator has taken it out: no new connections go there.
    #[serde(default)]
    pub out: bool,
    /// Its share of new connections.
    #[serde(default)]
    pub weight: u32,
    /// Result of the health check.
    pub check: CheckStatus,
    /// Connections with it.
    pub connections: u64,
    /// Connects of clients' connections that failed in a row.
    pub failures_in_a_row: u64,
    /// Connections that it has accepted.
    pub opened: u64,
    /// Connections that could not be made with it.
    pub connects_failed: u64,
    /// Plaintext that has passed.
    pub plain_bytes: TrafficFigures,
    /// Connections with it that have ended, by reason.
    pub closed: BTreeMap<String, u64>,
}

/// Result of a backend's health check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckStatus {
    /// The backend is not checked.
    #[default]
    #[serde(rename = "off")]
    Off,
    /// No check has ended yet.
    #[serde(rename = "unknown")]
    Unknown,
    /// The last checks succeeded.
    #[serde(rename = "well")]
    Healthy,
    /// The last checks failed.
    #[serde(rename = "not well")]
    Unhealthy,
}

/// Keys of session tickets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TicketKeyStatus {
    /// Age of the key that seals now.
    pub age_s: Option<u64>,
    /// Seconds until the next one does.
    pub rotates_in_s: Option<u64>,
    /// State of the store that a fleet shares keys through.
    pub store: String,
    /// Seconds since the store last answered.
    pub store_seen_s_ago: Option<u64>,
    /// Failed queries of the store.
    pub store_failures: u64,
}

/// Latencies over all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyStatus {
    /// Connects to backends.
    pub backend_connect: LatencyFigures,
    /// Handshakes of clients.
    pub handshake: LatencyFigures,
    /// Turns of a worker's loop.
    pub wake: LatencyFigures,
}

/// A latency's number of observations and quantiles.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyFigures {
    /// Number of observations.
    pub count: u64,
    /// Bound that half of them did not exceed.
    pub p50_ms_max: Option<f64>,
    /// Bound that 99 of 100 did not exceed.
    pub p99_ms_max: Option<f64>,
}

/// A certificate that clients are shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStatus {
    /// The file it was read from.
    pub file: String,
    /// First of its names.
    pub name: String,
    /// Seconds until it expires; negative after that.
    pub expires_in_s: i64,
    /// An administrator pushed it through the admin socket; no file has it.
    pub pushed: bool,
}

/// Certificates from an ACME server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AcmeStatus {
    /// Certificates issued since the start.
    pub issued: u64,
    /// Attempts that failed since the start.
    pub failed: u64,
    /// Names, those with failures first.
    pub names: Vec<AcmeNameStatus>,
}

/// A name with a certificate from an ACME server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AcmeNameStatus {
    /// The name.
    pub name: String,
    /// Seconds until its certificate expires; none if it has none yet.
    pub expires_in_s: Option<i64>,
    /// Seconds until the next attempt.
    pub next_in_s: u64,
    /// Attempts that failed in a row.
    pub failures: u32,
    /// Why the last of them failed.
    pub last_error: Option<String>,
}

/// What became of an order (`POST`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderResult {
    /// Whether it was carried out.
    pub done: bool,
    /// What was done, or why not.
    pub words: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_other_versions_are_read() {
        let document = r#"{"phase":"dreaming","counts":{"accepted":7},"news":1,
            "workers":[{"pid":3,"alive":true}]}"#;
        let status: Status = serde_json::from_str(document).expect("a document");
        assert_eq!(status.phase, LifePhase::Unknown);
        assert_eq!(status.count(Count::Accepted), 7);
        assert_eq!(status.count(Count::Restarts), 0);
        assert_eq!(
            (status.workers[0].process.pid, status.workers[0].alive),
            (3, true)
        );
    }
}
