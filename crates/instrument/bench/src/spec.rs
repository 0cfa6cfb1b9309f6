//! Specification of a run.

use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use crate::load::{Tls, Traffic};
use dormouse_measure::ServerSource;

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// Address under test: `127.0.0.1:8443`, `[::1]:8443`, `unix:/path`.
    pub target: String,
    /// The server's name in reports.
    pub label: String,
    /// Where the server comes from.
    pub server: ServerSource,
    /// TLS; `None` for plain TCP.
    pub tls: Option<Tls>,
    /// Application data.
    pub talk: Traffic,
    /// Source addresses; empty: chosen automatically.
    pub sources: Vec<IpAddr>,
    /// Timeout of connecting, of the handshake, and of each answer.
    pub timeout: Duration,
    /// Whether many connections to another machine are allowed.
    pub own_server: bool,
    /// Wait before each reading of memory.
    pub settle: Duration,
    /// Maximum connections per generator, if lower than the limits allow.
    pub per_process: Option<u32>,
    /// The mode.
    pub mode: Mode,
}

/// Mode of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Open, hold, close.
    Hold(Hold),
    /// Rounds of short connections.
    Churn(Churn),
    /// Streams.
    Bulk(Bulk),
    /// Quiet connections that wake.
    Wake(Wake),
    /// HTTP requests.
    Request(Request),
}

/// See [`Mode::Hold`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Hold {
    /// Number of connections.
    pub connections: u64,
    /// Opened per second; 0: no limit.
    pub rate_per_s: f64,
    /// In flight at a time.
    pub in_flight: u32,
    /// Seconds between two messages of each; `None`: quiet.
    pub every_s: Option<f64>,
    /// Time for which all are held.
    pub for_s: f64,
    /// Then each echoes this many times.
    pub echoes: u64,
    /// Messages per second for that; 0: as fast as possible.
    pub echo_rate_per_s: f64,
    /// Wait after all have closed, before the last reading.
    pub after_s: f64,
}

/// See [`Mode::Churn`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Churn {
    /// Per round.
    pub connections: u64,
    /// At a time.
    pub concurrency: u32,
    /// Number of rounds.
    pub rounds: u32,
    /// Whether an exchange is made on each connection.
    pub exchange: bool,
    /// Wait after the last round, before the last reading.
    pub after_s: f64,
}

/// See [`Mode::Bulk`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bulk {
    /// Number of streams.
    pub streams: u32,
    /// Bytes each way on each stream.
    pub bytes: u64,
}

/// See [`Mode::Wake`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Wake {
    /// Number of held connections.
    pub connections: u64,
    /// Opened per second; 0: no limit.
    pub rate_per_s: f64,
    /// In flight at a time while opening.
    pub in_flight: u32,
    /// Connections that wake per second.
    pub per_s: f64,
    /// Length of each of the two measurements.
    pub for_s: f64,
    /// The same rate of messages on this many connections, for comparison; 0: none.
    pub busy: u32,
}

/// See [`Mode::Request`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Request {
    /// Requests in all; 0: no limit.
    pub requests: u64,
    /// Connections at a time.
    pub concurrency: u32,
    /// One connection for many requests.
    pub keep_alive: bool,
    /// Length; 0: until all are made.
    pub for_s: f64,
}

impl Mode {
    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hold(_) => "hold",
            Self::Churn(_) => "churn",
            Self::Bulk(_) => "bulk",
            Self::Wake(_) => "wake",
            Self::Request(_) => "request",
        }
    }

    /// Returns the connections of the whole run; `None` if the server decides their number.
    pub(crate) fn connections_in_all(&self, http: bool) -> Option<u64> {
        match self {
            Self::Hold(hold) => Some(hold.connections),
            Self::Churn(churn) => {
                let rounds = u64::from(churn.rounds);
                // With resumption, each of the concurrent clients has had a first connection.
                let first = u64::from(churn.concurrency);
                Some(
                    churn
                        .connections
                        .saturating_mul(rounds)
                        .saturating_add(first),
                )
            }
            // With HTTP, a server may end a connection at any time, and a new one is opened.
            Self::Bulk(bulk) => (!http).then_some(bulk.streams.into()),
            Self::Wake(wake) => Some(wake.connections),
            Self::Request(request) => (request.requests > 0).then_some(request.requests),
        }
    }

    /// Returns the maximum number of connections at a time.
    pub fn connections_max(&self) -> u64 {
        match self {
            Self::Hold(hold) => hold.connections,
            Self::Churn(churn) => churn.concurrency.into(),
            Self::Bulk(bulk) => bulk.streams.into(),
            Self::Wake(wake) => wake.connections,
            Self::Request(request) => request.concurrency.into(),
        }
    }
}
