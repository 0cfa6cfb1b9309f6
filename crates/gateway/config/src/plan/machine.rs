//! The machine that a configuration has to fit.

use std::fs;
use std::path::Path;

/// What the machine offers to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cores that may be used.
    pub cores: u32,
    /// Maximum number of descriptors of a process (the hard limit).
    pub descriptors_max: u64,
    /// Whether the machine has IPv6.
    pub ipv6: bool,
    /// The longest listen queue (net.core.somaxconn).
    pub backlog_max: u32,
    /// Local ports that one address has for connections to one backend.
    pub local_ports: u32,
    /// Bytes that all TCP sockets of the machine may use before the kernel is under memory
    /// pressure.
    pub tcp_bytes: u64,
    /// Sockets that all processes of a user may watch with epoll (fs.epoll.max_user_watches).
    pub watches_max: u64,
    /// Files that all processes may have open (fs.file-max).
    pub files_max: u64,
}

impl Machine {
    /// Reads the machine's limits. A limit that can't be read is taken to be the usual one.
    pub fn read() -> Self {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let file = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism()
                .map_or(1, |n| n.get().try_into().unwrap_or(1)),
            descriptors_max: hard_limit(&limits).unwrap_or(1024),
            ipv6: Path::new("/proc/net/if_inet6").exists(),
            backlog_max: number("/proc/sys/net/core/somaxconn")
                .and_then(|number| number.try_into().ok())
                .unwrap_or(4096),
            local_ports: file("ipv4/ip_local_port_range")
                .and_then(|text| local_ports(&text))
                .unwrap_or(28_232),
            tcp_bytes: file("ipv4/tcp_mem")
                .and_then(|text| tcp_bytes(&text))
                .unwrap_or(1 << 30),
            watches_max: number("/proc/sys/fs/epoll/max_user_watches").unwrap_or(u64::MAX),
            files_max: number("/proc/sys/fs/file-max").unwrap_or(u64::MAX),
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
