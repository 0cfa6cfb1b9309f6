//! The cost of each limit, and limits that are chosen to fit a budget.
//!
//! Memory is a sum of terms, each with a bound. The program alone can enforce all of them but one:
//! what peers send before it is read. The kernel receives as much as it has advertised, whether or
//! not the program reads, and can't take the advertisement back. So a budget counts the receive
//! buffers of all connections in full, and makes them only as large as that allows. Sent bytes are
//! bounded in sum while the program runs (the data path's `memory::kernel`).

use crate::config::Config;
use crate::mistakes::problem::Problem;
use crate::plan::machine::Machine;
use crate::values::log_target::LogTarget;
use crate::values::quantities::{ByteSize, Count};
use crate::values::units::show_number;
use dormouse_tables::{client_sessions, traffic};

/// Bytes of the slot of a connection.
const SLOT_BYTES: u64 = 192;

/// Bytes of a connection that may leave the kernel, besides its slot: two records of 64 bytes, two entries of 20 in the
/// table of packets, and what the worker notes of records and ports. Measured: 180 bytes; the worker's tables double.
const REST_BYTES: u64 = 240;

/// Memory of tcp-repair, and of the ring of packets.
const REPAIR_BYTES: u64 = 12 << 20;

/// The part of the memory for connections that those in deep rest get if neither number is set: three quarters.
const REST_PART: (u64, u64) = (3, 4);

/// With fewer places for awake connections in each worker, `max_awake = "auto"` does not fit.
const AWAKE_MIN: u64 = 64;

/// Bytes of the connection log's entry of a connection.
const LOG_ENTRY_BYTES: u64 = 128;

/// Memory of main, control and the shared pages. Measured: 6 MB.
const MAIN_BYTES: u64 = 12 << 20;

/// Memory of each keeper and its worker without connections. Measured: 1.1 MB; their tables and
/// what handshakes leave in the heap come on top.
const PAIR_BYTES: u64 = 4 << 20;

/// Memory for each byte of certificates, keys and revocation lists, while all of them are replaced. Measured with 300
/// and with 3,000 chains of two certificates with ECDSA keys: main has 3.2 bytes of each (2.8 with RSA keys), as text and
/// parsed, and 7.8 during a reload; a worker has 3.2 (its memory file and what it parsed), and with the next ones 7.
const MAIN_PER_MATERIAL: u64 = 8;
const WORKER_PER_MATERIAL: u64 = 7;

/// Up to this amount, certificates are part of the program itself.
const MATERIAL_INCLUDED: u64 = 1 << 20;

/// Memory of a route in main and control, and in each worker, without its certificates, while all routes are replaced.
/// Measured with 10,000 routes that share a certificate: main has 17 kB, control 1, a worker 14; half of that otherwise.
const MAIN_PER_ROUTE: u64 = 18 << 10;
const WORKER_PER_ROUTE: u64 = 14 << 10;

/// Up to this amount, routes are part of the program itself.
const ROUTES_INCLUDED: u64 = 1 << 20;

/// Kernel memory per idle TCP socket, measured on Linux 6.18: 2,368 bytes of socket, the rest
/// inode, file, epoll item and dentry.
pub(crate) const SOCKET_BYTES: u64 = 4_100;

/// Length of a send queue up to which a socket does not count as slow.
const UNCOUNTED_BYTES: u64 = 4_096;

/// The TLS library's state of a handshake in flight, with our answer and the kernel's copy of it.
const HANDSHAKE_STATE_BYTES: u64 = 24 << 10;

/// What `auto` means without a budget.
const HANDSHAKES: u64 = 1_024;
const PENDING_BYTES: u64 = 64 << 20;
const BACKLOG: u64 = 4_096;

/// The lowest values that `auto` chooses.
const HANDSHAKES_MIN: u64 = 16;
const BACKLOG_MIN: u64 = 16;
const RECEIVE_MIN: u64 = 4 << 10;

/// Receive buffer with a budget and without `max_connections`: it holds one record.
const RECEIVE_OF_A_RECORD: u64 = 16 << 10;

/// A bound on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// What the memory is used for.
    pub what: &'static str,
    /// How the bound is calculated.
    pub how: String,
    /// The bound.
    pub bytes: ByteSize,
}

/// What the machine and the number of descriptors allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) workers: u64,
    /// `max_connections`, unless it is `auto`.
    pub(crate) requested: Option<u64>,
    /// Connections for which there are slots and ports.
    pub(crate) room: u64,
    /// The number of connections that have sockets, if some may rest.
    pub(crate) awake: Option<AwakeCapacity>,
    /// Sockets of a connection.
    pub(crate) sockets: u64,
    pub(crate) listeners: u64,
    /// Bytes of all certificates, keys and revocation lists.
    pub(crate) material: u64,
}

/// How many connections may have sockets, if others rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwakeCapacity {
    /// `max_awake`, unless it is `auto`.
    pub(crate) requested: Option<u64>,
    /// Connections for which there are descriptors.
    pub(crate) room: u64,
}

/// The limits, all of them numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SettledLimits {
    pub(crate) connections: u64,
    /// Connections that have sockets.
    pub(crate) awake: u64,
    pub(crate) handshakes: u64,
    pub(crate) pending: u64,
    pub(crate) kernel: u64,
    pub(crate) receive: u64,
    pub(crate) backlog: u64,
}

/// Chooses limits that fit the budget. The error says what does not fit, with the table of costs.
pub(crate) fn settle(
    config: &Config,
    machine: &Machine,
    capacity: Capacity,
) -> Result<SettledLimits, Problem> {
    let connections = capacity.requested.unwrap_or(capacity.room);
    let Some(ByteSize(budget)) = config.limits.memory else {
        let receive = (config.sockets.receive_buffer).or(config.sockets.socket_buffer);
        let awake = capacity.awake.map_or(connections, |awake| {
            awake.requested.unwrap_or(awake.room).min(connections)
        });
        return Ok(SettledLimits {
            connections,
            awake,
            receive: receive.0,
            backlog: exactly(config.sockets.backlog).unwrap_or(BACKLOG),
            ..fixed(config, machine, capacity, u64::MAX)
        });
    };
    let fixed = fixed(config, machine, capacity, budget);
    let mut least = None;
    for receive in receive_buffers(config, capacity) {
        let amounts = SettledLimits {
            receive,
            backlog: backlog(config, machine, capacity, receive, budget),
            ..fixed
        };
        let left = budget.saturating_sub(sum(&costs(config, capacity, &amounts)));
        let price = Price::of(config, capacity, receive);
        match split(capacity, left, price) {
            Ok((connections, awake)) => {
                return Ok(SettledLimits {
                    connections,
                    awake,
                    ..amounts
                });
            }
            Err(fitting) => least = Some((amounts, fitting)),
        }
    }
    let (amounts, fitting) = least.unwrap_or((fixed, 0));
    Err(refusal(config, capacity, amounts, fitting))
}

/// What a connection costs, and what it costs more while it has sockets.
#[derive(Clone, Copy)]
struct Price {
    connection: u64,
    sockets: u64,
}

impl Price {
    fn of(config: &Config, capacity: Capacity, receive: u64) -> Price {
        let rest = capacity.awake.map_or(0, |_| REST_BYTES);
        Price {
            connection: SLOT_BYTES + log_entry(config) + rest,
            sockets: capacity.sockets * (waiting(receive) + UNCOUNTED_BYTES),
        }
    }
}

/// Divides `left` bytes: returns the numbers of connections, and of those that have sockets. The error is the number of
/// connections that would fit.
fn split(capacity: Capacity, left: u64, price: Price) -> Result<(u64, u64), u64> {
    let all = |connections: u64| connections.saturating_mul(price.connection);
    let sockets = |awake: u64| awake.saturating_mul(price.sockets);
    let Some(awake) = capacity.awake else {
        let fitting = left / (price.connection + price.sockets);
        return match capacity.requested {
            Some(requested) if requested <= fitting => Ok((requested, requested)),
            None if fitting > 0 => Ok((capacity.room.min(fitting), capacity.room.min(fitting))),
            _ => Err(fitting),
        };
    };
    let least = match awake.requested {
        Some(requested) => requested,
        None => (AWAKE_MIN * capacity.workers).min(awake.room),
    };
    let least = least.min(capacity.requested.unwrap_or(u64::MAX));
    let fitting = left.saturating_sub(sockets(least)) / price.connection;
    let connections = match (capacity.requested, awake.requested) {
        (Some(requested), _) => requested,
        (None, Some(_)) => capacity.room.min(fitting),
        (None, None) => {
            let part = left / REST_PART.1 * REST_PART.0;
            capacity.room.min(part / price.connection).min(fitting)
        }
    };
    if connections > fitting || connections < least {
        return Err(fitting);
    }
    let most = left.saturating_sub(all(connections)) / price.sockets;
    let most = awake.requested.unwrap_or(awake.room).min(most);
    Ok((connections, most.min(connections)))
}

/// Returns the terms that do not depend on the receive buffers.
fn fixed(config: &Config, machine: &Machine, capacity: Capacity, budget: u64) -> SettledLimits {
    let limits = &config.limits;
    // A worker could not use less than this.
    let pending_min = limits.pending_per_connection.0.max(1 << 20) * capacity.workers;
    let kernel_min = capacity.workers << 20;
    let pending = (budget / 8).min(PENDING_BYTES).max(pending_min);
    let kernel = (budget / 8).min(machine.tcp_bytes / 4).max(kernel_min);
    let handshakes = (budget / 8 / handshake(config)).min(HANDSHAKES);
    let handshakes = handshakes.max(HANDSHAKES_MIN.max(capacity.workers));
    SettledLimits {
        connections: 0,
        awake: 0,
        handshakes: exactly(limits.max_handshakes).unwrap_or(handshakes),
        pending: limits.pending_memory.or(ByteSize(pending)).0,
        kernel: limits.kernel_memory.or(ByteSize(kernel)).0,
        receive: 0,
        backlog: 0,
    }
}

/// Returns the receive buffers to try, the largest first.
fn receive_buffers(config: &Config, capacity: Capacity) -> Vec<u64> {
    let requested = match capacity.awake {
        Some(awake) => awake.requested.and(capacity.requested),
        None => capacity.requested,
    };
    match (config.sockets.receive_buffer.given(), requested) {
        (Some(given), _) => vec![given.0],
        (None, Some(_)) => {
            let most = config.sockets.socket_buffer.0.max(RECEIVE_MIN);
            std::iter::successors(Some(most), |bytes| Some(bytes / 2))
                .take_while(|&bytes| bytes >= RECEIVE_MIN)
                .collect()
        }
        (None, None) => vec![RECEIVE_OF_A_RECORD, RECEIVE_MIN],
    }
}

fn backlog(
    config: &Config,
    machine: &Machine,
    capacity: Capacity,
    receive: u64,
    budget: u64,
) -> u64 {
    let each = capacity.listeners.max(1) * waiting(receive);
    let most = BACKLOG.min(machine.backlog_max.into()).max(BACKLOG_MIN);
    exactly(config.sockets.backlog).unwrap_or((budget / 16 / each).clamp(BACKLOG_MIN, most))
}

fn exactly(count: Count) -> Option<u64> {
    match count {
        Count::Auto => None,
        Count::Exactly(number) => Some(number.into()),
    }
}

/// Returns the kernel memory of a socket with a full receive buffer. The kernel takes twice the
/// buffer's size, for its own overhead (socket(7)).
fn waiting(receive: u64) -> u64 {
    SOCKET_BYTES + 2 * receive
}

/// Returns what the connection log keeps of a connection.
fn log_entry(config: &Config) -> u64 {
    match config.log.connection_log {
        LogTarget::Off => 0,
        LogTarget::Stderr | LogTarget::File(_) | LogTarget::Syslog(_) => LOG_ENTRY_BYTES,
    }
}

/// Returns the memory of a handshake. The buffer of received bytes grows by doubling.
fn handshake(config: &Config) -> u64 {
    2 * config.limits.handshake_bytes_max.0 + HANDSHAKE_STATE_BYTES
}

/// Returns the cost of each limit. Without a budget, sockets are counted as idle.
pub(crate) fn costs(config: &Config, capacity: Capacity, amounts: &SettledLimits) -> Vec<Cost> {
    let budgeted = config.limits.memory.is_some();
    let socket = if budgeted {
        waiting(amounts.receive) + UNCOUNTED_BYTES
    } else {
        SOCKET_BYTES
    };
    let of_sockets = if budgeted {
        format!(
            "{} sockets, each with twice receive_buffer ({})",
            show_number(amounts.awake * capacity.sockets),
            ByteSize(amounts.receive)
        )
    } else {
        format!(
            "{} idle sockets of about {} bytes; a socket that is not read takes up to twice receive_buffer ({}) more",
            show_number(amounts.awake * capacity.sockets),
            show_number(SOCKET_BYTES),
            ByteSize(amounts.receive)
        )
    };
    let cost = |what, bytes: u64, how| Cost {
        what,
        how,
        bytes: ByteSize(bytes),
    };
    let mut costs = vec![
        cost(
            "the program itself",
            MAIN_BYTES + capacity.workers * PAIR_BYTES,
            format!("{} workers", show_number(capacity.workers)),
        ),
        cost(
            "connections at rest",
            amounts.connections.saturating_mul(SLOT_BYTES),
            format!("{} x {SLOT_BYTES} bytes", show_number(amounts.connections)),
        ),
        deep_rest(capacity, amounts.connections),
        certificates(capacity),
        routes(config, capacity.workers),
        log_entries(config, amounts.connections),
        cost(
            "pending bytes",
            amounts.pending,
            "pending_memory".to_owned(),
        ),
        cost(
            "handshakes",
            amounts.handshakes.saturating_mul(handshake(config)),
            format!(
                "{} x (twice handshake_bytes_max ({}) and {})",
                show_number(amounts.handshakes),
                config.limits.handshake_bytes_max,
                ByteSize(HANDSHAKE_STATE_BYTES)
            ),
        ),
        sessions(config),
        traffic_counts(config, capacity.workers),
        cost(
            "kernel: sockets",
            (amounts.awake * capacity.sockets).saturating_mul(socket),
            of_sockets,
        ),
        cost(
            "kernel: slow readers",
            amounts.kernel,
            "kernel_memory".to_owned(),
        ),
    ];
    if budgeted {
        let waiting_in_queues = amounts.backlog * capacity.listeners;
        costs.push(cost(
            "kernel: listen queues",
            waiting_in_queues.saturating_mul(waiting(amounts.receive)),
            format!("backlog ({}) x listeners", show_number(amounts.backlog)),
        ));
    }
    costs.retain(|cost| cost.bytes.0 > 0);
    costs
}

/// Returns what connections need that may leave the kernel.
fn deep_rest(capacity: Capacity, connections: u64) -> Cost {
    let bytes = connections.saturating_mul(REST_BYTES) + REPAIR_BYTES;
    Cost {
        what: "deep rest",
        how: format!(
            "{} x {REST_BYTES} bytes, and {} for tcp-repair and its ring",
            show_number(connections),
            ByteSize(REPAIR_BYTES)
        ),
        bytes: ByteSize(if capacity.awake.is_some() { bytes } else { 0 }),
    }
}

/// Returns the cost of certificates, which main and every worker have.
fn certificates(capacity: Capacity) -> Cost {
    let each = MAIN_PER_MATERIAL + WORKER_PER_MATERIAL * capacity.workers;
    let bytes = capacity.material.saturating_mul(each);
    Cost {
        what: "certificates",
        how: format!(
            "{each} x {} of files, revocation lists twice, while they are replaced",
            ByteSize(capacity.material.next_multiple_of(1 << 10))
        ),
        bytes: ByteSize(if bytes > MATERIAL_INCLUDED { bytes } else { 0 }),
    }
}

/// Returns the cost of routes and originations, which main and every worker have.
fn routes(config: &Config, workers: u64) -> Cost {
    let routes = (config.routes.len() + config.originate.len()) as u64;
    let each = MAIN_PER_ROUTE + WORKER_PER_ROUTE * workers;
    let bytes = routes.saturating_mul(each);
    Cost {
        what: "routes",
        how: format!(
            "{} x {}, while they are replaced",
            show_number(routes),
            ByteSize(each)
        ),
        bytes: ByteSize(if bytes > ROUTES_INCLUDED { bytes } else { 0 }),
    }
}

/// Returns the cost of the connection log's entries.
fn log_entries(config: &Config, connections: u64) -> Cost {
    Cost {
        what: "connection log",
        how: format!("{} x {LOG_ENTRY_BYTES} bytes", show_number(connections)),
        bytes: ByteSize(connections.saturating_mul(log_entry(config))),
    }
}

/// Returns the cost of the session mappings: their size is fixed, and all of it may get used.
fn sessions(config: &Config) -> Cost {
    let cache = config.session_cache_bytes() as u64;
    let servers: usize = config.originate.iter().map(|one| one.to.len()).sum();
    let of_servers = match servers {
        0 => 0,
        servers => client_sessions::len(servers) as u64,
    };
    Cost {
        what: "sessions",
        how: "session_cache (1 MiB if it is off), and 16 KiB for each server of `originate`"
            .to_owned(),
        bytes: ByteSize(cache.saturating_add(of_servers)),
    }
}

/// Pages of the table of traffic. Rows of routes are neighbours; those of backends are anywhere.
fn traffic_counts(config: &Config, workers: u64) -> Cost {
    let upstreams = config.routes.iter().flat_map(|route| &route.to);
    let addresses = upstreams.map(|upstream| upstream.backend.addresses().count().max(1));
    let backends: usize = addresses.sum();
    let routes = config.routes.len() + config.originate.len();
    Cost {
        what: "traffic counters",
        how: format!(
            "pages for each worker; routes: {}, backends: {}",
            show_number(routes as u64),
            show_number(backends as u64)
        ),
        bytes: ByteSize(workers * traffic::bytes_used(routes, backends) as u64),
    }
}

/// Returns the sum of all costs.
pub(crate) fn sum(costs: &[Cost]) -> u64 {
    costs
        .iter()
        .fold(0, |sum, cost| sum.saturating_add(cost.bytes.0))
}

fn refusal(config: &Config, capacity: Capacity, amounts: SettledLimits, fitting: u64) -> Problem {
    let connections = capacity.requested.unwrap_or(1);
    let awake = capacity.awake.map_or(connections, |awake| {
        let least = AWAKE_MIN * capacity.workers;
        awake.requested.unwrap_or(least).min(connections)
    });
    let asked = SettledLimits {
        connections: connections.max(awake),
        awake,
        ..amounts
    };
    let costs = costs(config, capacity, &asked);
    let needed = ByteSize(sum(&costs).next_multiple_of(1 << 20));
    let budget = config.limits.memory.unwrap_or(needed);
    let mut table = String::new();
    for cost in &costs {
        let megabytes = cost.bytes.0.div_ceil(1 << 20);
        table.push_str(&format!(
            "\n{:<24} {megabytes:>8} MiB  {}",
            cost.what, cost.how
        ));
    }
    let or_fewer = match capacity.requested {
        Some(_) if fitting > 0 => format!(", or lower max_connections to {fitting}"),
        Some(_) if capacity.awake.is_some() => ", or lower max_awake".to_owned(),
        _ => ", or lower the other limits".to_owned(),
    };
    Problem::new(format!(
        "the limits add up to {needed}, more than memory ({budget})"
    ))
    .label(format!("at least {needed} for these limits"))
    .help(format!(
        "raise memory to at least {needed}{or_fewer}; maximum cost of each limit:{table}"
    ))
}
