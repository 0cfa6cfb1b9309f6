//! A worker's share of the limits, which the configuration sets for all workers together.

use dormouse_config::{Config, Log, LogFormat, LogTarget, Plan};
use dormouse_tables::clients::ClientLimits;
use dormouse_tables::pace::Pace;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Limits and timeouts of one worker.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum connections.
    pub connections_max: u32,
    /// Maximum connections that have sockets.
    pub awake_max: u32,
    /// Maximum handshakes in flight.
    pub handshakes_max: usize,
    /// Maximum bytes that a client may send in its handshake.
    pub handshake_bytes_max: usize,
    /// Maximum pending bytes of one connection.
    pub pending_per_connection: usize,
    /// Limits per client address.
    pub per_client: ClientLimits,
    /// Maximum kernel memory in long send queues.
    pub kernel_bytes_max: u64,
    /// Number of source addresses for loopback backends.
    pub sources: u32,
    /// Time for a handshake, from its first step on.
    pub handshake_timeout_ms: u64,
    /// Percentage by which the routes' timeouts differ between connections.
    pub timeout_jitter: u32,
    /// When a reload has last brought or lowered a route's timeout, on CLOCK_BOOTTIME; 0: never.
    pub timeouts_since_ms: u64,
    /// Time without progress after which a connection that holds memory is closed, while memory is short.
    pub stall_timeout_ms: u64,
    /// Time to deliver received bytes after the other side has closed.
    pub drain_timeout_ms: u64,
    /// Whether every handshake has a log line.
    pub log_handshakes: bool,
    /// Settings of the connection log, if there is one.
    pub connection_log: Option<LogRules>,
    /// Time to send pending bytes after the order to stop.
    pub shutdown_grace_ms: u64,
    /// Duration of the drain after main's death.
    pub shutdown_drain_ms: u64,
    /// Time that an upgrade waits for handshakes in flight.
    pub handshake_grace_ms: u64,
    /// Maximum time between two turns of the loop, so that the keeper sees a heartbeat.
    pub heartbeat_ms: Option<u64>,
}

/// Settings of the connection log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRules {
    /// Format of a line.
    pub format: LogFormat,
    /// One connection in this many gets a line, unless its route has another share.
    pub one_in: u32,
    /// Whether a connection gets a line when it begins, too.
    pub begins: bool,
}

impl LogRules {
    fn of(log: &Log) -> Option<LogRules> {
        (log.connection_log != LogTarget::Off).then_some(LogRules {
            format: log.connection_log_format,
            one_in: log.connection_log_one_in.max(1),
            begins: log.connection_log_begin,
        })
    }
}

/// A worker's share of the limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The number of workers.
    pub workers: u32,
    /// Maximum connections.
    pub connections_max: u32,
    /// Maximum connections that have sockets. 0: from a binary without this number, in which all had.
    #[serde(default)]
    pub(crate) awake_max: u32,
    pub(crate) handshakes_max: u32,
    /// Size of the pending memory, in bytes.
    pub pending_bytes_max: u64,
    /// Maximum kernel memory in long send queues.
    pub(crate) kernel_bytes_max: u64,
    /// Number of source addresses for loopback backends.
    pub(crate) sources: u32,
    /// When a reload has last brought or lowered a timeout of all connections.
    #[serde(default)]
    pub timeouts_since_ms: u64,
}

impl Share {
    /// The share of worker number `worker`. The shares of connections add up exactly to the limit: the
    /// first workers get the remainder of the division.
    pub fn of(worker: u32, plan: &Plan) -> Share {
        let workers = plan.workers.max(1);
        let extra = u32::from(worker < plan.connections_max % workers);
        Share {
            workers,
            connections_max: plan.connections_max / workers + extra,
            awake_max: plan.awake_max / workers,
            handshakes_max: plan.handshakes_max.div_ceil(workers),
            pending_bytes_max: plan.pending_memory.0 / u64::from(workers),
            kernel_bytes_max: plan.kernel_memory.0 / u64::from(workers),
            sources: plan.sources,
            timeouts_since_ms: 0,
        }
    }

    /// The share after a reload. The mappings keep their sizes, so limits of what they hold can shrink, but
    /// not grow.
    pub fn renewed(&self, worker: u32, plan: &Plan) -> Share {
        let plan = Plan {
            workers: self.workers,
            ..plan.clone()
        };
        let planned = Share::of(worker, &plan);
        Share {
            connections_max: planned.connections_max.min(self.connections_max),
            pending_bytes_max: self.pending_bytes_max,
            ..planned
        }
    }

    /// Combines the share with the limits that are the same in every worker.
    pub fn limits(&self, config: &Config) -> Limits {
        let timeouts = &config.timeouts;
        Limits {
            connections_max: self.connections_max,
            awake_max: match self.awake_max {
                0 => self.connections_max,
                most => most.min(self.connections_max),
            },
            handshakes_max: self.handshakes_max as usize,
            kernel_bytes_max: self.kernel_bytes_max,
            sources: self.sources,
            handshake_bytes_max: config.limits.handshake_bytes_max.as_usize(),
            pending_per_connection: config.limits.pending_per_connection.as_usize(),
            per_client: ClientLimits {
                connections_max: config.limits.connections_per_client,
                handshakes_per_minute: config.limits.handshakes_per_client,
                bytes: config.limits.bytes_per_client.map(|bytes| Pace {
                    bytes_per_s: bytes.0,
                    burst_bytes: config.limits.burst_per_client.or(bytes).0,
                }),
                bytes_of_all: config.limits.max_bytes_per_second.map(|bytes| Pace {
                    bytes_per_s: bytes.0,
                    burst_bytes: bytes.0 / 4,
                }),
            },
            handshake_timeout_ms: milliseconds(timeouts.handshake_timeout),
            timeout_jitter: timeouts.timeout_jitter,
            timeouts_since_ms: self.timeouts_since_ms,
            stall_timeout_ms: milliseconds(timeouts.stall_timeout),
            drain_timeout_ms: milliseconds(timeouts.drain_timeout),
            log_handshakes: config.log.log_handshakes,
            connection_log: LogRules::of(&config.log),
            handshake_grace_ms: milliseconds(timeouts.handshake_grace),
            heartbeat_ms: timeouts.hang_timeout.map(|bound| milliseconds(bound) / 4),
            shutdown_grace_ms: milliseconds(timeouts.shutdown_grace),
            shutdown_drain_ms: milliseconds(timeouts.shutdown_drain),
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
