//! The document of `GET /status`: control writes it, `dormouse status` and `dormouse top` read it.
//!
//! docs/guide/status.md describes its fields. A reader skips unknown fields, and missing fields have their
//! defaults, so that different versions understand each other.

use crate::control::{BackendOfRoute, DrainOrder, KeptChange, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use crate::ages::AgeFigures;
pub use dormouse_tables::counters::Count;

/// The whole document.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Version of the program. `None` only in documents of other programs.
    pub version: Option<String>,
    /// Phase of the program's life.
    pub phase: LifePhase,
    /// Connections by state.
    pub connections: ConnectionFigures,
    /// Memory by pool.
    pub memory: BTreeMap<String, PoolFigures>,
    /// The main process. `None` until its first report.
    pub main: Option<MainStatus>,
    /// The control process, which answers.
    pub control: ControlStatus,
    /// All workers, by number.
    pub workers: Vec<WorkerStatus>,
    /// The running configuration.
    pub configuration: Option<ConfigurationStatus>,
    /// The drain in progress.
    pub drain: Option<DrainStatus>,
    /// Addresses of all listeners.
    pub listeners: Vec<String>,
    /// Routes, then originations; the first few hundred.
    pub routes: Vec<RouteStatus>,
    /// Backends of all routes.
    pub backends: Vec<BackendStatus>,
    /// Keys of session tickets.
    pub ticket_keys: TicketKeyStatus,
    /// Latencies over all workers.
    pub latency: LatencyStatus,
    /// Server certificates; those that expire first come first.
    pub certificates: Option<Vec<CertificateStatus>>,
    /// Certificates from an ACME server.
    pub acme: Option<AcmeStatus>,
    /// Certificates and authorities from a SPIFFE agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spiffe: Option<SpiffeStatus>,
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
    /// Not all workers have started.
    Starting,
    /// Serving.
    Ready,
    /// Draining: no connections are accepted.
    Draining,
    /// The program ends.
    Stopping,
    /// Main has died: no connections are accepted, and the others end within a bounded time.
    Orphaned,
    /// Main has not reported yet.
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
    /// Connections with pending bytes.
    pub pending: u64,
    /// Handshakes in flight.
    pub handshaking: u64,
    /// Limit on connections.
    pub max: Option<u64>,
    /// Numbers by age.
    pub ages: AgeFigures,
    /// Seconds since the numbers by age of routes and backends were counted. `None`: they were not yet.
    pub ages_counted_s_ago: Option<u64>,
    /// Connections that have sockets, if others may rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awake: Option<u64>,
    /// Limit on connections that have sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awake_max: Option<u64>,
}

/// Use of a pool of memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolFigures {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Limit in bytes.
    pub bound_bytes: Option<u64>,
}

/// Figures of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFigures {
    /// Process id.
    pub pid: i32,
    /// Age in seconds.
    pub age_s: u64,
    /// Resident memory, including pages shared with other processes.
    pub resident_bytes: Option<u64>,
    /// Resident memory without file mappings: heap, stacks and shared memory.
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
    /// Connections with pending bytes.
    pub pending: u64,
    /// Handshakes in flight.
    pub handshaking: u64,
    /// Death of the previous worker.
    pub last_death: Option<WorkerDeath>,
    /// The worker's keeper.
    pub keeper: Option<KeeperStatus>,
}

/// The death of a worker.
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

/// The running configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigurationStatus {
    /// The file. `None`: all options came from flags.
    pub file: Option<String>,
    /// 1 after the start, one more after each reload.
    pub edition: u64,
    /// Seconds since it was loaded.
    pub loaded_ago_s: u64,
    /// The last reload.
    pub last_reload: Option<ReloadStatus>,
    /// Changed options that take effect at the next start.
    pub waits_for_restart: Vec<String>,
    /// Changes by `ctl` that outlast reloads and restarts.
    pub kept_changes: Vec<KeptChange>,
}

/// A finished reload.
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
    /// Elapsed seconds.
    pub passed_s: f64,
    /// Connections at its start.
    pub connections: u64,
    /// Connections that it has closed.
    pub closed: u64,
    /// Remaining connections and handshakes.
    pub left: u64,
}

/// A route or an origination. Counts are sums over all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteStatus {
    /// The configured name, or a number.
    pub name: String,
    /// Addresses on which it listens.
    pub listen: Vec<String>,
    /// Current connections.
    pub connections: u64,
    /// Numbers by age, as of the last count. `None`: there was none.
    pub ages: Option<AgeFigures>,
    /// Established connections since the start.
    pub opened: u64,
    /// Handshakes by result.
    pub handshakes: RouteHandshakes,
    /// Plaintext bytes.
    pub plain_bytes: TrafficFigures,
    /// Closed connections by reason.
    pub closed: BTreeMap<String, u64>,
    /// Connections refused because of a limit of the route, by limit.
    pub refused: BTreeMap<String, u64>,
    /// Waits of connections because of `route_bytes_per_second`.
    pub paced: u64,
    /// Its share of the memory for connections. `None`: it has no `route_memory_share`.
    pub memory: Option<RouteMemory>,
}

/// A route's share of the memory for connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteMemory {
    /// The share, in percent.
    pub share_percent: u32,
    /// Maximum number of connections in this share.
    pub connections_max: Option<u64>,
    /// Bytes that wait for slow peers now: send queues, and pending memory.
    pub held_bytes: u64,
    /// The share of `kernel_memory` and `pending_memory` together.
    pub bound_bytes: Option<u64>,
    /// Waits of connections because the share was held.
    pub waits: u64,
}

/// Handshakes of a route, by result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteHandshakes {
    /// Full handshakes.
    pub full: u64,
    /// Resumed handshakes.
    pub resumed: u64,
    /// Failed handshakes.
    pub failed: u64,
}

/// Plaintext bytes by direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficFigures {
    /// Bytes sent to backends, or to local clients.
    pub sent: u64,
    /// Bytes received from backends, or from local clients.
    pub received: u64,
}

/// A backend. Counts are sums over all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendStatus {
    /// Names of the routes that use it.
    pub routes: Vec<String>,
    /// Address.
    pub address: String,
    /// Host name that resolved to the address.
    pub name: Option<String>,
    /// Whether the backend is up, by the last health checks and connects.
    pub up: bool,
    /// Whether the name has not resolved since the start: `address` is the name then.
    pub unresolved: bool,
    /// Whether an administrator has taken the backend out of all its routes, so that it gets no new connections.
    #[serde(default)]
    pub out: bool,
    /// The weight.
    #[serde(default)]
    pub weight: u32,
    /// The routes in which `out` or `weight` differs.
    pub differing: Vec<BackendOfRoute>,
    /// Result of the health checks.
    pub check: CheckStatus,
    /// Current connections.
    pub connections: u64,
    /// Numbers by age, as of the last count. `None`: there was none.
    pub ages: Option<AgeFigures>,
    /// Connects that failed in a row, without health checks.
    pub failures_in_a_row: u64,
    /// Connections that the backend has accepted.
    pub opened: u64,
    /// Failed connects.
    pub connects_failed: u64,
    /// Plaintext bytes.
    pub plain_bytes: TrafficFigures,
    /// Closed connections by reason.
    pub closed: BTreeMap<String, u64>,
}

impl BackendStatus {
    /// Its state, in a word.
    pub fn state(&self) -> &'static str {
        match (self.out, self.check, self.up) {
            (true, _, _) => "out",
            _ if self.unresolved => "unresolved",
            (_, CheckStatus::Unhealthy, _) => "unhealthy",
            (_, _, true) => "up",
            (_, _, false) => "down",
        }
    }
}

/// Result of a backend's health check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckStatus {
    /// No health checks are configured.
    #[default]
    #[serde(rename = "off")]
    Off,
    /// No check has finished yet.
    #[serde(rename = "unknown")]
    Unknown,
    /// The last checks succeeded.
    #[serde(rename = "healthy")]
    Healthy,
    /// The last checks failed.
    #[serde(rename = "unhealthy")]
    Unhealthy,
}

/// Ticket keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TicketKeyStatus {
    /// Age of the current key.
    pub age_s: Option<u64>,
    /// Seconds until the next rotation.
    pub rotates_in_s: Option<u64>,
    /// State of the fleet's ticket key store.
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
    /// Upper bound of the median.
    pub p50_ms_max: Option<f64>,
    /// Upper bound of the 99th percentile.
    pub p99_ms_max: Option<f64>,
}

/// A server certificate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStatus {
    /// The file.
    pub file: String,
    /// The certificate's first name.
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
    /// Failed attempts since the start.
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
    /// Seconds until the certificate expires. `None`: no certificate was issued yet.
    pub expires_in_s: Option<i64>,
    /// Seconds until the next attempt.
    pub next_in_s: u64,
    /// Failed attempts in a row.
    pub failures: u32,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

/// What comes from a SPIFFE agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpiffeStatus {
    /// Address of the agent.
    pub agent: String,
    /// Why there is no agent. `None`: it has answered last.
    pub away: Option<String>,
    /// Seconds since it came or went.
    pub for_s: u64,
    /// Responses since the start.
    pub responses: u64,
    /// Certificates, the first few.
    pub certificates: Vec<SpiffeCertificateStatus>,
    /// Trust domains whose authorities are known, the first few.
    pub trust_domains: Vec<String>,
}

/// A certificate of a SPIFFE agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpiffeCertificateStatus {
    /// The id.
    pub id: String,
    /// Seconds until it expires.
    pub expires_in_s: i64,
}

/// The result of an order (`POST`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderResult {
    /// Whether the order was carried out.
    pub done: bool,
    /// The result, or the reason of the failure.
    pub words: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_documents_of_other_versions() {
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
