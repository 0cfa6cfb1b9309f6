//! Limits of the machine: a run that cannot succeed is refused with the remedy.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use dormouse_reactor::socket::Addr;

use super::sources;
use dormouse_measure::Error;
use dormouse_measure::Machine;

/// Descriptors a generator needs besides those of its connections.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Maximum connections to another machine, unless the user confirms that it is theirs.
pub(super) const FOREIGN_CONNECTIONS_MAX: u64 = 100;
/// Cost of a connection on a machine with both ends: two sockets of 4.1 kB, two slots, page tables,
/// and the memory of a frugal server.
const BYTES_PER_CONNECTION: u64 = 9_500;

/// Distribution of connections over generators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Generator processes.
    pub generators: u32,
    /// Maximum connections of one generator.
    pub connections_each: u32,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

impl Plan {
    /// Spreads `connections` to `target` over as few generators as the limits allow.
    ///
    /// # Errors
    /// If the run cannot succeed; with the command that raises the limit.
    pub fn new(
        connections: u64,
        target: &Addr,
        sources: &[IpAddr],
        per_process: Option<u32>,
        own_server: bool,
    ) -> Result<Self, Error> {
        let mut notes = Vec::new();
        let connections = connections.max(1);
        if !own_server {
            refuse_foreign_load(Some(connections), target)?;
        }
        let limits = dormouse_reactor::descriptors::raise_limit()
            .map_err(|error| Error::system(format!("raising the descriptor limit: {error}")))?;
        let room = limits
            .hard
            .saturating_sub(DESCRIPTORS_RESERVED)
            .min(u64::from(u32::MAX));
        let room = per_process
            .map_or(room, |each| room.min(u64::from(each)))
            .min(1 << 24);
        if room == 0 {
            return Err(Error::system(format!(
                "a process may have only {} descriptors; raise the limit: ulimit -n 20000",
                limits.hard
            )));
        }
        let generators = connections.div_ceil(room);
        if generators > 1 && per_process.is_none() {
            notes.push(format!(
                "{generators} generator processes, because each may have {} descriptors (ulimit -n)",
                limits.hard
            ));
        }
        let each = connections.div_ceil(generators);
        if let Addr::Tcp(address) = target {
            check_sources(sources)?;
            check_ports(connections, *address, sources)?;
        }
        check_machine(connections, target)?;
        notes.extend(backlog_note(connections, target));
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Ok(Self {
            generators: narrow(generators),
            connections_each: narrow(each),
            notes,
        })
    }
}

/// Refuses load for a server on another machine, which may not be the user's. `in_all` counts all connections of the
/// run, simultaneous or not; `None` where the number is not known.
///
/// # Errors
/// If it takes more than [`FOREIGN_CONNECTIONS_MAX`] connections to another machine.
pub(crate) fn refuse_foreign_load(in_all: Option<u64>, target: &Addr) -> Result<(), Error> {
    let Addr::Tcp(address) = target else {
        return Ok(());
    };
    if is_this_machine(address.ip())
        || in_all.is_some_and(|in_all| in_all <= FOREIGN_CONNECTIONS_MAX)
    {
        return Ok(());
    }
    let count = in_all.map_or_else(|| "any number of".into(), |in_all| format!("{in_all}"));
    Err(Error::usage(format!(
        "{count} connections to {address}, which is not this machine: more than {FOREIGN_CONNECTIONS_MAX} in all \
         need --i-own-this-server, which confirms that the server is yours"
    )))
}

/// Returns whether an address is this machine's own. The kernel connects to its own addresses from
/// themselves, and asking it for the source address sends nothing. (A bind would succeed with any
/// address if `ip_nonlocal_bind` is set.)
pub fn is_this_machine(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, 9))?;
        socket.local_addr()
    };
    ip.is_loopback() || (!ip.is_unspecified() && source().is_ok_and(|source| source.ip() == ip))
}

/// Checks that connections can come from these addresses: the kernel's error for others is that of ports that ran out.
fn check_sources(sources: &[IpAddr]) -> Result<(), Error> {
    for source in sources {
        UdpSocket::bind((*source, 0)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable => Error::usage(format!(
                "--source {source} is no address of this machine ({error}); `ip address` lists them"
            )),
            _ => Error::system(format!("binding a socket to --source {source}: {error}")),
        })?;
    }
    Ok(())
}

/// Checks the local ports: without many source addresses, the ports of one are the limit.
fn check_ports(connections: u64, target: SocketAddr, given: &[IpAddr]) -> Result<(), Error> {
    let addresses = if given.is_empty() {
        sources::for_target(target, given, 0).len().max(1)
    } else {
        given.len()
    };
    let many = given.is_empty() && addresses > 1;
    let ports = ephemeral_ports();
    if many || connections <= ports * addresses as u64 {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{connections} connections from {addresses} source address(es) with {ports} ports each to {target}: \
         use an address of 127.0.0.0/8 as target, give more --source addresses, or widen the range: \
         sysctl -w net.ipv4.ip_local_port_range='1024 65535'"
    )))
}

fn ephemeral_ports() -> u64 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = range
        .split_whitespace()
        .filter_map(|bound| bound.parse::<u64>().ok());
    match (bounds.next(), bounds.next()) {
        (Some(low), Some(high)) if high >= low => high - low + 1,
        _ => 28_232,
    }
}

fn check_machine(connections: u64, target: &Addr) -> Result<(), Error> {
    let is_local = match target {
        Addr::Tcp(address) => is_this_machine(address.ip()),
        Addr::Unix(_) => true,
    };
    let ends = if is_local { 2 } else { 1 };
    let needed = connections * BYTES_PER_CONNECTION * ends / 2;
    let available = Machine::available_bytes();
    if needed > available {
        let mb = |bytes: u64| bytes / 1_000_000;
        return Err(Error::usage(format!(
            "{connections} connections need about {} MB (mostly kernel sockets), but {} MB are available; use at most {}",
            mb(needed),
            mb(available),
            available / (BYTES_PER_CONNECTION * ends / 2)
        )));
    }
    let files = fs::read_to_string("/proc/sys/fs/file-max").ok();
    let files_max = files
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX);
    if connections.saturating_mul(ends) > files_max {
        return Err(Error::usage(format!(
            "{connections} connections need {} open files, but the machine allows {files_max}: sysctl -w fs.file-max={}",
            connections * ends,
            connections * ends * 2
        )));
    }
    check_tracking(connections)
}

/// Keep-alive probes of connections that were opened together are due together. On loopback, probes
/// and their answers pass one queue per CPU, which drops what does not fit. An end that misses
/// several probes gives up its peer, minutes after everything went well.
fn backlog_note(connections: u64, target: &Addr) -> Option<String> {
    const CONNECTIONS_PER_PLACE: u64 = 100;
    let local = matches!(target, Addr::Tcp(address) if address.ip().is_loopback());
    let text = fs::read_to_string("/proc/sys/net/core/netdev_max_backlog").ok()?;
    let places: u64 = text.trim().parse().ok()?;
    (local && connections > places.saturating_mul(CONNECTIONS_PER_PLACE)).then(|| {
        format!(
            "bursts of keep-alive probes may not fit net.core.netdev_max_backlog ({places}), and the server then \
             resets connections after minutes: sysctl -w net.core.netdev_max_backlog={connections}"
        )
    })
}

/// A firewall that tracks connections has a table for them; when the table is full, it drops
/// packets.
fn check_tracking(connections: u64) -> Result<(), Error> {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"));
        text.ok()?.trim().parse::<u64>().ok()
    };
    // Without a rule that needs it, connections are not tracked.
    match (read("count"), read("max")) {
        (Some(tracked), Some(max)) if tracked > 0 && tracked + connections > max => {
            Err(Error::usage(format!(
                "the firewall tracks {tracked} connections of at most {max}, and {connections} more are requested: \
                 sysctl -w net.netfilter.nf_conntrack_max={}",
                (tracked + connections) * 2
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(connections: u64, target: &str, per_process: Option<u32>) -> Result<Plan, Error> {
        Plan::new(
            connections,
            &target.parse().unwrap(),
            &[],
            per_process,
            false,
        )
    }

    #[test]
    fn spreads_connections_over_enough_processes() {
        let plan = plan(100_000, "127.0.0.1:8443", Some(19_000)).unwrap();
        assert_eq!(plan.generators, 6);
        assert!(u64::from(plan.generators) * u64::from(plan.connections_each) >= 100_000);
    }

    #[test]
    fn refuses_load_on_other_machines() {
        let stranger = "192.0.2.1:443".parse().unwrap();
        for in_all in [Some(101), None] {
            let error = refuse_foreign_load(in_all, &stranger).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            assert!(error.message.contains("--i-own-this-server"));
        }
        assert!(plan(101, "192.0.2.1:443", None).is_err());
        assert!(Plan::new(101, &stranger, &[], None, true).is_ok());
        assert!(refuse_foreign_load(Some(100), &stranger).is_ok());
        for own in ["127.8.9.10:443", "[::1]:443", "unix:/run/x"] {
            assert!(
                refuse_foreign_load(None, &own.parse().unwrap()).is_ok(),
                "{own}"
            );
        }
    }

    #[test]
    fn only_an_address_of_others_is_called_none_of_this_machine() {
        let plan = |target: &str, source: &str| {
            let (target, source) = (target.parse().unwrap(), source.parse().unwrap());
            Plan::new(1, &target, &[source], None, true)
        };
        let message = |source| plan("127.0.0.1:443", source).unwrap_err().message;
        let stranger = message("192.0.2.1");
        assert!(
            stranger.contains("is no address of this machine"),
            "{stranger}"
        );
        // Without its interface, the kernel refuses each link-local address.
        let without_scope = message("fe80::1");
        assert!(
            without_scope.contains("--source fe80::1: "),
            "{without_scope}"
        );
        assert!(plan("unix:/run/x", "192.0.2.1").is_ok(), "it has no effect");
    }

    #[test]
    fn detects_too_few_ports() {
        let error = plan(200_000, "[::1]:8443", Some(10_000)).unwrap_err();
        assert!(error.message.contains("ip_local_port_range"), "{error}");
    }
}
