//! What the limits cost, and limits that are made to fit a budget.
//!
//! Memory is a sum of terms, each with a bound. Most of them are ours alone to keep. One is not:
//! what peers send before it is read. The kernel takes in what it has offered room for, whether or
//! not anybody reads, and an offer can't be taken back. So with a budget the receive buffers of all
//! connections are counted in full, and are only as large as that allows; what is sent is bounded
//! in sum while the program runs (the data path's `memory::kernel`).

use super::quantities::{ByteSize, Count};
use super::raw::Wrong;
use super::units::show_number;
use super::{Config, Machine};
use dormouse_tables::client_sessions;

/// Bytes of the slot of a connection.
const SLOT_BYTES: u64 = 192;

/// What main, control and the pages that all share take. Measured: 6 MB.
const MAIN_BYTES: u64 = 12 << 20;

/// What each keeper with its worker takes besides, without connections. Measured: 1.1 MB; tables of
/// their own and garbage of handshakes come on top.
const PAIR_BYTES: u64 = 4 << 20;

/// What the kernel keeps per idle TCP socket, measured on Linux 6.18: 2,368 bytes of socket, the
/// rest inode, file, epoll item and dentry.
pub(super) const SOCKET_BYTES: u64 = 4_100;

/// What a socket may have in its send queue without being counted as slow.
const UNCOUNTED_BYTES: u64 = 4_096;

/// The TLS library's state of a handshake in flight, with our answer and the kernel's copy of it.
const HANDSHAKE_STATE_BYTES: u64 = 24 << 10;

/// `auto` without a budget.
const HANDSHAKES: u64 = 1_024;
const PENDING_BYTES: u64 = 64 << 20;
const BACKLOG: u64 = 4_096;

/// `auto` goes no lower.
const HANDSHAKES_MIN: u64 = 16;
const BACKLOG_MIN: u64 = 16;
const RECEIVE_MIN: u64 = 4 << 10;

/// With a budget and without a number of connections, receive buffers hold a record.
const RECEIVE_OF_A_RECORD: u64 = 16 << 10;

/// A bound on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// What takes it.
    pub what: &'static str,
    /// How it comes about.
    pub how: String,
    /// At most so much.
    pub bytes: ByteSize,
}

/// What the machine and the number of descriptors allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) workers: u64,
    /// Connections: as many as were asked for.
    pub(super) wanted: Option<u64>,
    /// Connections for which there are descriptors and ports.
    pub(super) room: u64,
    /// Sockets of a connection.
    pub(super) sockets: u64,
    pub(super) listeners: u64,
}

/// The limits, all of them numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) connections: u64,
    pub(super) handshakes: u64,
    pub(super) pending: u64,
    pub(super) kernel: u64,
    pub(super) receive: u64,
    pub(super) backlog: u64,
}

/// Makes limits fit. The error says what does not, with the table of costs.
pub(super) fn settle(config: &Config, machine: &Machine, frame: Frame) -> Result<Amounts, Wrong> {
    let connections = frame.wanted.unwrap_or(frame.room);
    let Some(ByteSize(budget)) = config.limits.memory else {
        let receive = (config.sockets.receive_buffer).or(config.sockets.socket_buffer);
        return Ok(Amounts {
            connections,
            receive: receive.0,
            backlog: exactly(config.sockets.backlog).unwrap_or(BACKLOG),
            ..fixed(config, machine, frame, u64::MAX)
        });
    };
    let fixed = fixed(config, machine, frame, budget);
    let mut least = None;
    for receive in receive_buffers(config, frame) {
        let amounts = Amounts {
            receive,
            backlog: backlog(config, machine, frame, receive, budget),
            connections: 0,
            ..fixed
        };
        let left = budget.saturating_sub(sum(&costs(config, frame, &amounts)));
        let fitting = left / per_connection(frame, receive);
        match frame.wanted {
            Some(wanted) if wanted <= fitting => {
                return Ok(Amounts {
                    connections: wanted,
                    ..amounts
                });
            }
            None if fitting > 0 => {
                return Ok(Amounts {
                    connections: frame.room.min(fitting),
                    ..amounts
                });
            }
            _ => least = Some((amounts, fitting)),
        }
    }
    let (amounts, fitting) = least.unwrap_or((fixed, 0));
    Err(refusal(config, frame, amounts, fitting))
}

/// The terms which do not depend on the receive buffers.
fn fixed(config: &Config, machine: &Machine, frame: Frame, budget: u64) -> Amounts {
    let limits = &config.limits;
    // What is smaller than this is of no use to a worker.
    let pending_min = limits.pending_per_connection.0.max(1 << 20) * frame.workers;
    let kernel_min = frame.workers << 20;
    let pending = (budget / 8).min(PENDING_BYTES).max(pending_min);
    let kernel = (budget / 8).min(machine.tcp_bytes / 4).max(kernel_min);
    let handshakes = (budget / 8 / handshake(config)).min(HANDSHAKES);
    let handshakes = handshakes.max(HANDSHAKES_MIN.max(frame.workers));
    Amounts {
        connections: 0,
        handshakes: exactly(limits.max_handshakes).unwrap_or(handshakes),
        pending: limits.pending_memory.or(ByteSize(pending)).0,
        kernel: limits.kernel_memory.or(ByteSize(kernel)).0,
        receive: 0,
        backlog: 0,
    }
}

/// The receive buffers that come into question, the largest first.
fn receive_buffers(config: &Config, frame: Frame) -> Vec<u64> {
    match (config.sockets.receive_buffer.given(), frame.wanted) {
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

fn backlog(config: &Config, machine: &Machine, frame: Frame, receive: u64, budget: u64) -> u64 {
    let each = frame.listeners.max(1) * waiting(receive);
    let most = BACKLOG.min(machine.backlog_max.into()).max(BACKLOG_MIN);
    exactly(config.sockets.backlog).unwrap_or((budget / 16 / each).clamp(BACKLOG_MIN, most))
}

fn exactly(count: Count) -> Option<u64> {
    match count {
        Count::Auto => None,
        Count::Exactly(number) => Some(number.into()),
    }
}

/// The kernel takes twice the size of a buffer, for its own overhead (socket(7)).
fn waiting(receive: u64) -> u64 {
    SOCKET_BYTES + 2 * receive
}

fn per_connection(frame: Frame, receive: u64) -> u64 {
    SLOT_BYTES + frame.sockets * (waiting(receive) + UNCOUNTED_BYTES)
}

/// What a client has sent lies in a buffer which grows by doubling.
fn handshake(config: &Config) -> u64 {
    2 * config.limits.handshake_bytes_max.0 + HANDSHAKE_STATE_BYTES
}

/// What each limit costs. Without a budget sockets are counted as they are at rest.
pub(super) fn costs(config: &Config, frame: Frame, amounts: &Amounts) -> Vec<Cost> {
    let budgeted = config.limits.memory.is_some();
    let number = show_number;
    let socket = if budgeted {
        waiting(amounts.receive) + UNCOUNTED_BYTES
    } else {
        SOCKET_BYTES
    };
    let of_sockets = if budgeted {
        format!(
            "{} sockets, each with twice receive_buffer ({})",
            number(amounts.connections * frame.sockets),
            ByteSize(amounts.receive)
        )
    } else {
        format!(
            "{} idle sockets of about {} bytes; up to twice receive_buffer ({}) more for one that is not read",
            number(amounts.connections * frame.sockets),
            number(SOCKET_BYTES),
            ByteSize(amounts.receive)
        )
    };
    let waiting_in_queues = amounts.backlog * frame.listeners;
    let cost = |what, bytes: u64, how| Cost {
        what,
        how,
        bytes: ByteSize(bytes),
    };
    let mut costs = vec![
        cost(
            "the program itself",
            MAIN_BYTES + frame.workers * PAIR_BYTES,
            format!("{} workers", number(frame.workers)),
        ),
        cost(
            "connections at rest",
            amounts.connections.saturating_mul(SLOT_BYTES),
            format!("{} x {SLOT_BYTES} bytes", number(amounts.connections)),
        ),
        cost(
            "pending bytes",
            amounts.pending,
            "pending_memory".to_owned(),
        ),
        cost(
            "handshakes",
            amounts.handshakes.saturating_mul(handshake(config)),
            format!(
                "{} x twice handshake_bytes_max ({}), and {}",
                number(amounts.handshakes),
                config.limits.handshake_bytes_max,
                ByteSize(HANDSHAKE_STATE_BYTES)
            ),
        ),
        sessions(config),
        cost(
            "kernel: sockets",
            (amounts.connections * frame.sockets).saturating_mul(socket),
            of_sockets,
        ),
        cost(
            "kernel: slow readers",
            amounts.kernel,
            "kernel_memory".to_owned(),
        ),
    ];
    if budgeted {
        costs.push(cost(
            "kernel: not accepted yet",
            waiting_in_queues.saturating_mul(waiting(amounts.receive)),
            format!("backlog ({}) x listeners", number(amounts.backlog)),
        ));
    }
    costs.retain(|cost| cost.bytes.0 > 0);
    costs
}

/// Mappings of a fixed size, all of which may come to be used.
fn sessions(config: &Config) -> Cost {
    let cache = config.session_cache_bytes() as u64;
    let servers: usize = config.originate.iter().map(|one| one.to.len()).sum();
    let of_servers = match servers {
        0 => 0,
        servers => client_sessions::len(servers) as u64,
    };
    Cost {
        what: "sessions",
        how: "session_cache (1 MiB where there is none), and 16 KiB for each server of `originate`"
            .to_owned(),
        bytes: ByteSize(cache.saturating_add(of_servers)),
    }
}

/// The sum of all costs.
pub(super) fn sum(costs: &[Cost]) -> u64 {
    costs
        .iter()
        .fold(0, |sum, cost| sum.saturating_add(cost.bytes.0))
}

fn refusal(config: &Config, frame: Frame, amounts: Amounts, fitting: u64) -> Wrong {
    let asked = Amounts {
        connections: frame.wanted.unwrap_or(1),
        ..amounts
    };
    let costs = costs(config, frame, &asked);
    let needed = ByteSize(sum(&costs).next_multiple_of(1 << 20));
    let budget = config.limits.memory.unwrap_or(needed);
    let mut table = String::new();
    for cost in &costs {
        let megabytes = cost.bytes.0.div_ceil(1 << 20);
        table.push_str(&format!(
            "\n           {:<24} {megabytes:>8} MiB  {}",
            cost.what, cost.how
        ));
    }
    let or_fewer = match frame.wanted {
        Some(_) if fitting > 0 => format!(", or max_connections at most {fitting}"),
        _ => ", or the other limits lower".to_owned(),
    };
    Wrong::new(format!(
        "the limits add up to {needed}, more than memory ({budget})"
    ))
    .label(format!("at least {needed} for these limits"))
    .help(format!(
        "make memory at least {needed}{or_fewer}; each limit costs at most{table}"
    ))
}
