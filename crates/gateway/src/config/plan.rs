//! What a configuration comes to on a machine: how many workers, with how many
//! connections each, and what the limits cost.

use super::raw::Wrong;
use super::types::{Backend, ByteSize, Count};
use super::units::show_number;
use super::{Config, Machine};

/// Descriptors of a worker which are neither connections nor listeners: epoll,
/// mappings, pipes, standard streams.
const DESCRIPTORS_RESERVED: u64 = 64;
/// `auto` goes no further per worker, whatever the limit on descriptors says.
const AUTO_PER_WORKER_MAX: u64 = 1 << 20;
/// `auto` starts no more workers than this.
const AUTO_WORKERS_MAX: u64 = 1024;
/// Bytes of the slot of a connection.
const SLOT_BYTES: u64 = 192;

/// What would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Workers.
    pub workers: u32,
    /// Connections in all of them.
    pub connections_max: u32,
    /// Connections in each; the last workers may have one less.
    pub connections_per_worker: u32,
    /// Descriptors which a worker needs for that.
    pub descriptors_per_worker: u64,
    /// What the limits cost at most.
    pub costs: Vec<Cost>,
}

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

/// The options which do not fit the machine, the likeliest culprit first, and why.
type Misfit = (&'static [&'static str], Wrong);

/// Works out the plan, or says which option does not fit the machine.
pub(super) fn plan(config: &Config, machine: &Machine) -> Result<Plan, Misfit> {
    let per_connection = descriptors_per_connection(config);
    let listeners: usize = config.routes.iter().map(|route| route.listen.len()).sum();
    let plain: usize = config.originate.iter().map(|one| one.listen.len()).sum();
    let reserved = DESCRIPTORS_RESERVED + (listeners + plain) as u64;
    let room = machine.descriptors_max.saturating_sub(reserved) / per_connection;
    let room = room.min(AUTO_PER_WORKER_MAX);
    if room == 0 {
        return Err((
            &[],
            Wrong::new(format!(
                "a process may have only {} descriptors here, which is not enough for a single connection",
                machine.descriptors_max
            ))
            .help("raise the limit: ulimit -Hn, or LimitNOFILE= for a systemd service"),
        ));
    }
    let cores = u64::from(machine.cores.max(1));
    let (workers, connections) = match (config.process.workers, config.limits.max_connections) {
        (Count::Auto, Count::Auto) => (cores, cores * room),
        (Count::Exactly(workers), Count::Auto) => (workers.into(), u64::from(workers) * room),
        (Count::Auto, Count::Exactly(wanted)) => {
            let wanted = u64::from(wanted);
            let workers = cores.max(wanted.div_ceil(room));
            if workers > AUTO_WORKERS_MAX {
                return Err((
                    &["max_connections", "workers"],
                    too_many(wanted, workers, room, machine),
                ));
            }
            (workers, wanted)
        }
        (Count::Exactly(workers), Count::Exactly(wanted)) => {
            let (workers, wanted) = (u64::from(workers), u64::from(wanted));
            if wanted > workers * room {
                return Err((
                    &["max_connections", "workers"],
                    too_many(wanted, workers, room, machine),
                ));
            }
            (workers, wanted)
        }
    };
    // No worker without a connection.
    let workers = workers.min(connections.max(1));
    let each = connections.div_ceil(workers);
    share_of_pending(config, workers)?;
    Ok(Plan {
        workers: saturate(workers),
        connections_max: saturate(connections),
        connections_per_worker: saturate(each),
        descriptors_per_worker: each * per_connection + reserved,
        costs: costs(config, connections),
    })
}

/// Each worker has its part of the pending memory, and one connection must fit it.
fn share_of_pending(config: &Config, workers: u64) -> Result<(), Misfit> {
    let limits = &config.limits;
    let (share, one) = (
        limits.pending_memory.0 / workers,
        limits.pending_per_connection.0,
    );
    // That one is more than all has been said where it was written.
    if share >= one || one > limits.pending_memory.0 {
        return Ok(());
    }
    let needed = ByteSize((one * workers).next_multiple_of(1 << 20));
    let wrong = Wrong::new(format!(
        "each of {workers} workers gets {} of pending_memory, less than pending_per_connection ({})",
        ByteSize(share >> 10 << 10),
        limits.pending_per_connection
    ))
    .help(format!("make pending_memory at least {needed}"));
    Err((
        &["pending_memory", "pending_per_connection", "workers"],
        wrong,
    ))
}

/// A proxied connection has two sockets; one that is only echoed has one.
fn descriptors_per_connection(config: &Config) -> u64 {
    let echo_only =
        config.originate.is_empty() && config.routes.iter().all(|route| route.to == Backend::Echo);
    if echo_only { 1 } else { 2 }
}

fn too_many(wanted: u64, workers: u64, room: u64, machine: &Machine) -> Wrong {
    Wrong::new(format!(
        "{wanted} connections do not fit: a process may have {} descriptors here, which is {room} connections in each of {workers} workers",
        machine.descriptors_max
    ))
    .label(format!("{} at most", workers * room))
    .help(format!(
        "set workers = \"auto\" (or at least {}), or raise the limit: ulimit -Hn, or LimitNOFILE= for a systemd service",
        wanted.div_ceil(room)
    ))
}

fn costs(config: &Config, connections: u64) -> Vec<Cost> {
    let limits = &config.limits;
    let handshakes = u64::from(limits.max_handshakes);
    vec![
        Cost {
            what: "connections at rest",
            how: format!("{} x {SLOT_BYTES} bytes", show_number(connections)),
            bytes: ByteSize(connections.saturating_mul(SLOT_BYTES)),
        },
        Cost {
            what: "pending bytes",
            how: "pending_memory".to_owned(),
            bytes: limits.pending_memory,
        },
        Cost {
            what: "handshakes' input",
            how: format!(
                "{} x {}",
                show_number(handshakes),
                limits.handshake_bytes_max
            ),
            bytes: ByteSize(handshakes.saturating_mul(limits.handshake_bytes_max.0)),
        },
    ]
}

fn saturate(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}
