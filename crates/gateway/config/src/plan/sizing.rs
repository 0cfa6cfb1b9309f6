//! The plan: how many workers run on a machine, with how many connections each, and what the limits
//! cost.

use crate::config::Config;
use crate::mistakes::problem::Problem;
use crate::plan::budget::{self, AwakeCapacity, Capacity, Cost};
use crate::plan::machine::Machine;
use crate::values::choices::{ConnectTime, ProxyProtocol};
use crate::values::endpoints::Backend;
use crate::values::quantities::{ByteSize, Count};
use crate::values::source_address::SourceAddress;
use dormouse_reactor::slab;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Descriptors of a worker that are neither connections nor listeners: epoll, mappings, pipes,
/// standard streams.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Maximum number of connections per worker without `max_connections`, whatever the descriptor limit.
const AUTO_PER_WORKER_MAX: u64 = 1 << 20;
/// Maximum number of connections per worker. More than `max_connections` can be, so descriptors are what is missing if a
/// worker has no room.
const PER_WORKER_MAX: u64 = slab::MAX_CAPACITY as u64;
/// Minimum of `max_awake` for each worker: some places are kept for packets that wake connections.
const AWAKE_PER_WORKER_MIN: u64 = 16;
/// Maximum number of workers.
const WORKERS_MAX: u64 = 1024;
/// Percentage of an address's local ports that are counted on: some are in use, and closed
/// connections keep theirs for a while.
const PORTS_USABLE_PERCENT: u64 = 90;
/// Percentage of local ports in use up to which the kernel finds a free one at once. Beyond it,
/// every connect searches half of the range port by port; where addresses cost nothing, more of
/// them are used instead.
const PORTS_QUICK_PERCENT: u64 = 40;
/// Maximum number of addresses that `auto` uses for a backend on this machine.
const SOURCES_MAX: u64 = 4_096;

/// What runs on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of workers.
    pub workers: u32,
    /// Maximum connections in all workers together.
    pub connections_max: u32,
    /// Maximum connections that have sockets, in all workers together; the others are in deep rest. 0: from a binary
    /// without this number, in which all had.
    #[serde(default)]
    pub awake_max: u32,
    /// Maximum connections in each worker; the last workers may have one less.
    pub connections_per_worker: u32,
    /// Descriptors that a worker needs for that.
    pub descriptors_per_worker: u64,
    /// Handshakes in flight, in all workers.
    pub handshakes_max: u32,
    /// Pending memory, in all workers.
    pub pending_memory: ByteSize,
    /// Maximum that the kernel may hold in long send queues, for all workers.
    pub kernel_memory: ByteSize,
    /// The receive buffer of a socket.
    pub receive_buffer: ByteSize,
    /// Maximum connections that wait to be accepted, per listener.
    pub backlog: u32,
    /// Source addresses for a backend on this machine whose route lists none.
    pub sources: u32,
    /// Bytes of all certificates, keys and revocation lists.
    pub material: u64,
    /// Maximum cost of each limit: shown to people, not handed over.
    #[serde(skip)]
    pub costs: Vec<Cost>,
}

/// The options that do not fit the machine, the likeliest culprit first, and why.
type Misfit = (&'static [&'static str], Problem);

/// Returns the plan, or the option that does not fit the machine. `material`: bytes of all certificates, keys and
/// revocation lists.
pub(crate) fn plan(config: &Config, machine: &Machine, material: u64) -> Result<Plan, Misfit> {
    let per_connection = descriptors_per_connection(config);
    let listeners = listeners(config);
    // While a worker reloads, it has the old listeners and the new ones.
    let reserved = DESCRIPTORS_RESERVED + 2 * listeners as u64;
    let room = machine.descriptors_max.saturating_sub(reserved) / per_connection;
    let number = |count| match count {
        Count::Auto => None,
        Count::Exactly(requested) => Some(u64::from(requested)),
    };
    let requested = number(config.limits.max_connections);
    let awake = config.rests().then(|| number(config.limits.max_awake));
    let slots_max = match requested {
        None => AUTO_PER_WORKER_MAX,
        Some(_) => PER_WORKER_MAX,
    };
    let room = room.min(slots_max);
    if room == 0 {
        return Err((&[], no_room(machine)));
    }
    let wanted = Wanted {
        requested,
        with_sockets: awake.unwrap_or(requested),
        rests: awake.is_some(),
    };
    let workers = workers(config, machine, &wanted, [room, slots_max])?;
    let ports = ports(config, machine)
        .map_err(|problem| (&["max_connections", "source_addresses"][..], problem))?;
    // No worker without a client. TLS to the backend takes a second slot.
    let slots = 1 + u64::from(config.routes.iter().any(|route| route.backend_tls));
    let workers = workers.min((requested.unwrap_or(u64::MAX) / slots).max(1));
    let of_awake = awake.flatten().unwrap_or(u64::MAX) / AWAKE_PER_WORKER_MIN;
    let workers = workers.min(of_awake.max(1));
    if requested.is_some_and(|requested| requested < slots) {
        let problem = Problem::new("with backend_tls, one connection is not enough for a client")
            .help("set max_connections = 2, or more");
        return Err((&["max_connections"], problem));
    }
    // Without a budget, `auto` is the number for which there are descriptors, whether some rest or not.
    let slots_room = match (awake, config.limits.memory) {
        (Some(_), Some(_)) => slots_max,
        _ => room,
    };
    let capacity = Capacity {
        workers,
        requested,
        room: (workers * slots_room).min(ports),
        awake: awake.map(|requested| AwakeCapacity {
            requested,
            room: workers * room,
        }),
        sockets: per_connection,
        listeners: listeners as u64,
        material,
    };
    let amounts = budget::settle(config, machine, capacity)
        .map_err(|problem| (&["memory", "max_connections"][..], problem))?;
    let connections = amounts.connections;
    let each = connections.div_ceil(workers);
    let awake_each = amounts.awake.div_ceil(workers);
    share_of_pending(config, amounts.pending, workers)?;
    Ok(Plan {
        workers: saturate(workers),
        connections_max: saturate(connections),
        awake_max: saturate(amounts.awake),
        connections_per_worker: saturate(each),
        descriptors_per_worker: awake_each * per_connection + reserved,
        handshakes_max: saturate(amounts.handshakes),
        pending_memory: ByteSize(amounts.pending),
        kernel_memory: ByteSize(amounts.kernel),
        receive_buffer: ByteSize(amounts.receive),
        backlog: saturate(amounts.backlog),
        sources: own_sources(connections, machine),
        material,
        costs: budget::costs(config, capacity, &amounts),
    })
}

fn no_room(machine: &Machine) -> Problem {
    Problem::new(format!(
        "a process may have only {} descriptors here, which is not enough for a single connection",
        machine.descriptors_max
    ))
    .help("raise the limit: ulimit -Hn, or LimitNOFILE= for a systemd service")
}

/// The number of listeners. Routes that share an address share its listener.
fn listeners(config: &Config) -> usize {
    let of_routes = config.routes.iter().flat_map(|route| &route.listen);
    let of_routes: BTreeSet<SocketAddr> = of_routes.map(|listen| listen.address).collect();
    let plain: usize = config.originate.iter().map(|one| one.listen.len()).sum();
    of_routes.len() + plain + config.redirect.redirect.len()
}

/// The connections that the configuration asks for. `None`: as many as possible.
struct Wanted {
    requested: Option<u64>,
    /// Those with sockets: others rest, and need slots only.
    with_sockets: Option<u64>,
    rests: bool,
}

/// The number of workers. A worker has at most `room` connections with sockets, and `slots_max` of all kinds.
fn workers(
    config: &Config,
    machine: &Machine,
    wanted: &Wanted,
    [room, slots_max]: [u64; 2],
) -> Result<u64, Misfit> {
    let &Wanted {
        requested,
        with_sockets,
        rests,
    } = wanted;
    let cores = u64::from(machine.cores.max(1));
    let workers = match config.process.workers {
        Count::Exactly(workers) => workers.into(),
        Count::Auto => {
            let needed = with_sockets.map_or(1, |requested| requested.div_ceil(room));
            let of_slots = requested.map_or(1, |requested| requested.div_ceil(slots_max));
            cores.max(needed).max(of_slots).min(WORKERS_MAX)
        }
    };
    if let Some(requested) = with_sockets.filter(|requested| *requested > workers * room) {
        let options: &[&str] = match rests {
            true => &["max_awake", "workers"],
            false => &["max_connections", "workers"],
        };
        return Err((options, too_many(requested, workers, room, machine)));
    }
    if let Some(requested) = requested.filter(|requested| *requested > workers * slots_max) {
        let problem = Problem::new(format!(
            "{requested} connections do not fit into {workers} workers, of which each has at most {slots_max}"
        ));
        return Err((
            &["max_connections", "workers"],
            problem.help("set workers = \"auto\", or to more"),
        ));
    }
    Ok(workers)
}

/// A plan with fewer connections than this gets a warning, if the descriptor limit is the reason.
const FEW_CONNECTIONS: u32 = 4_000;

/// Returns a warning if the descriptor limit allows few connections and no option asked for so few.
pub(crate) fn few_descriptors(config: &Config, plan: &Plan, machine: &Machine) -> Option<Problem> {
    let is_auto = config.limits.max_connections == Count::Auto && config.limits.memory.is_none();
    if !is_auto || plan.connections_max >= FEW_CONNECTIONS {
        return None;
    }
    let descriptors = machine.descriptors_max.saturating_mul(plan.workers.into());
    let room = descriptors / descriptors_per_connection(config);
    (room < u64::from(FEW_CONNECTIONS)).then(|| {
        Problem::new(format!(
            "at most {} connections are possible: a process may have only {} descriptors",
            plan.connections_max, machine.descriptors_max
        ))
        .help("raise the hard limit: `ulimit -Hn 100000` as root, LimitNOFILE=100000 for a systemd service, --ulimit nofile=100000 for a container; or set max_connections to what you need")
    })
}

/// Returns an error if warm connections take all slots of a worker, and the index of the first
/// origination with warm connections: the worker would never accept a client.
pub(crate) fn only_warm(config: &Config, plan: &Plan) -> Option<(usize, Problem)> {
    let each = config.originate.iter().map(|one| one.warm);
    let first = each.clone().position(|warm| warm > 0)?;
    let in_worker: u64 = (each.clone())
        .map(|warm| u64::from(warm.div_ceil(plan.workers)))
        .sum();
    let room = u64::from(plan.awake_max / plan.workers);
    (in_worker >= room).then(|| {
        let all: u64 = each.map(u64::from).sum();
        let problem = Problem::new(format!(
            "{all} warm connections leave no room for clients: at most {} connections are possible",
            plan.awake_max
        ));
        (first, problem.help("lower warm, or raise max_connections"))
    })
}

/// Pending memory that the PROXY header of a connection can take, and one with a certificate of usual length.
const HEADER_BYTES: u64 = 512;
const HEADER_BYTES_WITH_CERTIFICATE: u64 = 4096;

/// Returns a warning if silent clients of a route can use up the pending memory with their PROXY headers, and the index
/// of the route.
pub(crate) fn silent_clients(config: &Config, plan: &Plan) -> Option<(usize, Problem)> {
    let silent = config.routes.iter().enumerate();
    let silent = silent.filter(|(_, route)| route.backend_connect == ConnectTime::FirstData);
    let needs = silent.filter_map(|(index, route)| match route.proxy_protocol {
        ProxyProtocol::Off => None,
        ProxyProtocol::V2Certificate => Some((HEADER_BYTES_WITH_CERTIFICATE, index)),
        _ => Some((HEADER_BYTES, index)),
    });
    let (bytes, index) = needs.max()?;
    let (room, wanted) = (
        plan.pending_memory.0 / bytes,
        u64::from(plan.connections_max),
    );
    (room < wanted).then(|| {
        let needed = ByteSize((wanted * bytes).next_multiple_of(1 << 20));
        let problem = Problem::new(format!(
            "the PROXY headers of silent clients wait in pending_memory, which has room for {room} of {wanted} connections"
        ));
        let help = format!("make pending_memory at least {needed}; without room, new clients are closed");
        (index, problem.help(help))
    })
}

/// Checks that each worker's part of the pending memory has room for one connection's share.
fn share_of_pending(config: &Config, pending: u64, workers: u64) -> Result<(), Misfit> {
    let limits = &config.limits;
    let (share, one) = (pending / workers, limits.pending_per_connection.0);
    // That one connection's share is larger than all of it has been reported where it was written.
    if share >= one || one > pending {
        return Ok(());
    }
    let needed = ByteSize((one * workers).next_multiple_of(1 << 20));
    let problem = Problem::new(format!(
        "each of {workers} workers gets {} of pending_memory, less than pending_per_connection ({})",
        ByteSize(share >> 10 << 10),
        limits.pending_per_connection
    ))
    .help(format!("make pending_memory at least {needed}"));
    Err((
        &["pending_memory", "pending_per_connection", "workers"],
        problem,
    ))
}

/// Returns the descriptors of a connection: a proxied one has two sockets, an echoed one has one.
pub(crate) fn descriptors_per_connection(config: &Config) -> u64 {
    let echo_only =
        config.originate.is_empty() && config.routes.iter().all(|route| route.is_echo());
    if echo_only { 1 } else { 2 }
}

/// Returns the local ports of one address to one backend that are counted on.
fn usable_ports(machine: &Machine) -> u64 {
    (u64::from(machine.local_ports) * PORTS_USABLE_PERCENT / 100).max(1)
}

/// Returns how many addresses of 127.0.0.0/8 are used for this many connections: one while its
/// ports suffice.
fn own_sources(connections: u64, machine: &Machine) -> u32 {
    if connections <= usable_ports(machine) {
        return 1;
    }
    let quick = (u64::from(machine.local_ports) * PORTS_QUICK_PERCENT / 100).max(1);
    saturate(connections.div_ceil(quick).min(SOURCES_MAX))
}

/// Returns the number of connections that the local ports allow, or an error if `max_connections`
/// is larger. Ports are counted per server and source address.
fn ports(config: &Config, machine: &Machine) -> Result<u64, Problem> {
    let each = usable_ports(machine);
    let mut room: BTreeMap<(SocketAddr, &[SourceAddress]), u64> = BTreeMap::new();
    // A name that has not resolved yet will have one address at least.
    let mut unresolved: BTreeMap<(&str, &[SourceAddress]), u64> = BTreeMap::new();
    for route in &config.routes {
        // With TLS to the backend, a client counts as two connections, and one of them has a port.
        let per_port = 1 + u64::from(route.backend_tls);
        let from = route.source_addresses.as_slice();
        for to in &route.to {
            if !matches!(to.backend, Backend::Tcp { .. }) {
                return Ok(u64::MAX);
            }
            if let Some(name) = to.backend.name().filter(|_| to.backend.is_unresolved()) {
                unresolved.insert((name, from), each * from.len().max(1) as u64 * per_port);
            }
            for address in to.backend.addresses() {
                let most = each * sources(address, from) * per_port;
                let known = room.entry((address, from)).or_default();
                *known = most.max(*known);
            }
        }
    }
    let servers = config.originate.iter().flat_map(|one| &one.to);
    for server in servers {
        if server.addresses.is_empty() {
            unresolved.insert((&server.given, &[]), each);
        }
        for address in &server.addresses {
            room.entry((*address, &[])).or_insert(each);
        }
    }
    let sum: u64 = room.values().chain(unresolved.values()).sum();
    match config.limits.max_connections {
        Count::Exactly(requested) if u64::from(requested) > sum => {
            let to: Vec<String> = room.keys().map(|(to, _)| to.to_string()).collect();
            let has_routes = !config.routes.is_empty();
            Err(too_few_ports(
                requested.into(),
                (sum, each),
                machine,
                &to,
                has_routes,
            ))
        }
        _ => Ok(sum),
    }
}

/// Returns how many addresses a backend can be reached from.
fn sources(backend: SocketAddr, given: &[SourceAddress]) -> u64 {
    let addresses = given
        .iter()
        .filter(|source| **source != SourceAddress::Auto);
    match addresses.count() as u64 {
        0 if is_own_network(backend) => SOURCES_MAX,
        0 => 1,
        count => count,
    }
}

/// Returns whether a whole network around the address is this machine: for IPv4 it is 127.0.0.0/8,
/// but IPv6 has a single loopback address.
pub fn is_own_network(backend: SocketAddr) -> bool {
    backend.is_ipv4() && backend.ip().is_loopback()
}

fn too_few_ports(
    requested: u64,
    (sum, each): (u64, u64),
    machine: &Machine,
    to: &[String],
    has_routes: bool,
) -> Problem {
    let remedy = match has_routes {
        true => format!(
            "set source_addresses = [\"…\", …] in the route to {} addresses of this machine, or connect to the backend by a unix socket",
            requested.div_ceil(each)
        ),
        false => "lower max_connections, or name more servers in `to`".to_owned(),
    };
    Problem::new(format!(
        "{requested} connections do not fit: the local ports allow {sum} to {}",
        to.join(" and ")
    ))
    .label(format!("{sum} at most"))
    .help(format!(
        "one address has {} local ports to a server (net.ipv4.ip_local_port_range), of which {each} are always usable: {remedy}",
        machine.local_ports,
    ))
}

fn too_many(requested: u64, workers: u64, room: u64, machine: &Machine) -> Problem {
    let more_workers = match requested.div_ceil(room) {
        enough @ ..=WORKERS_MAX => format!("set workers = \"auto\" (or at least {enough}), or "),
        _ => String::new(),
    };
    Problem::new(format!(
        "{requested} connections do not fit: a process may have {} descriptors here, which is {room} connections in each of {workers} workers",
        machine.descriptors_max
    ))
    .label(format!("{} at most", workers * room))
    .help(format!(
        "{more_workers}raise the limit: ulimit -Hn, or LimitNOFILE= for a systemd service"
    ))
}

fn saturate(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}
