//! The machine that a configuration has to fit.

use crate::plan::systemd::hands_in_listeners;
use std::fs;
use std::path::Path;

/// The bit of CAP_NET_BIND_SERVICE in a set of capabilities (capability.h).
const CAP_NET_BIND_SERVICE: u32 = 10;

/// What the machine offers to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cores that may be used.
    pub cores: u32,
    /// Maximum number of descriptors of a process (the hard limit).
    pub descriptors_max: u64,
    /// Ports below this one need a privilege to listen on; 0 if none does.
    pub privileged_below: u16,
    /// Whether the machine has IPv6.
    pub ipv6: bool,
    /// The longest listen queue (net.core.somaxconn).
    pub backlog_max: u32,
    /// Local ports that one address has for connections to one backend.
    pub local_ports: u32,
    /// Bytes that all TCP sockets of the machine may use before the kernel is under memory
    /// pressure.
    pub tcp_bytes: u64,
}

impl Machine {
    /// Reads the machine's limits. A limit that can't be read is taken to be the usual one.
    pub fn read() -> Self {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
        let file = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
        let first_free = number("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or(1024);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism()
                .map_or(1, |n| n.get().try_into().unwrap_or(1)),
            descriptors_max: hard_limit(&limits).unwrap_or(1024),
            // systemd has opened the listeners in the second case.
            privileged_below: if may_bind(&status) || hands_in_listeners() {
                0
            } else {
                first_free.try_into().unwrap_or(u16::MAX)
            },
            ipv6: Path::new("/proc/net/if_inet6").exists(),
            backlog_max: number("/proc/sys/net/core/somaxconn").unwrap_or(4096),
            local_ports: file("ipv4/ip_local_port_range")
                .and_then(|text| local_ports(&text))
                .unwrap_or(28_232),
            tcp_bytes: file("ipv4/tcp_mem")
                .and_then(|text| tcp_bytes(&text))
                .unwrap_or(1 << 30),
        }
    }
}

/// Returns the hard limit on descriptors in /proc/self/limits.
fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))?;
    match line.split_whitespace().nth(4)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Returns the number of ports in the range "first last".
fn local_ports(range: &str) -> Option<u32> {
    let (first, last) = range.trim().split_once(char::is_whitespace)?;
    let (first, last) = (first.parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
    Some((last + 1).saturating_sub(first))
}

/// Returns the bytes of the second of tcp_mem's three numbers of pages.
fn tcp_bytes(pages: &str) -> Option<u64> {
    const PAGE: u64 = 4096;
    let pressure: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pressure.saturating_mul(PAGE))
}

/// Returns whether the process may listen on privileged ports, according to /proc/self/status.
fn may_bind(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set >> CAP_NET_BIND_SERVICE & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_files_of_the_kernel() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 20000                files     \n";
        assert_eq!(hard_limit(limits), Some(20_000));
        assert_eq!(
            hard_limit("Max open files  1024  unlimited  files"),
            Some(u64::MAX)
        );
        assert_eq!(hard_limit(""), None);
        assert_eq!(local_ports("32768\t60999\n"), Some(28_232));
        assert_eq!(tcp_bytes("287901\t383869\t575802\n"), Some(383_869 * 4096));
        assert!(may_bind("Name:\tx\nCapEff:\t0000000000000400\n"));
        assert!(!may_bind("CapEff:\t0000000000000000\n"));
        assert!(!may_bind(""));
    }

    #[test]
    fn reads_this_machine() {
        let machine = Machine::read();
        assert!(
            machine.cores >= 1 && machine.descriptors_max >= 64,
            "{machine:?}"
        );
    }
}
