//! The kernel's memory for connections: slab caches and TCP's buffer pages.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::machine::page_bytes;

/// The slab caches with objects of an open TCP connection. Both ends of a loopback connection
/// count; sockets in TIME-WAIT, which end by themselves meanwhile, do not.
pub const SLAB_CACHES: [&str; 12] = [
    "TCP",
    "TCPv6",
    "UNIX",
    "request_sock_TCP",
    "request_sock_TCPv6",
    "tcp_bind_bucket",
    "tcp_bind2_bucket",
    "sock_inode_cache",
    "filp",
    "dentry",
    "eventpoll_epi",
    "eventpoll_pwq",
];

/// The kernel's memory for sockets: bytes of the whole machine, numbers of this network namespace. Only differences mean
/// something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KernelMemory {
    /// Bytes of objects in use in [`SLAB_CACHES`]; `None` if slabinfo may not be read (only root
    /// may).
    pub slab_bytes: Option<u64>,
    /// TCP's buffers, in bytes (pages of `mem` in sockstat).
    pub tcp_buffer_bytes: u64,
    /// TCP sockets in use, both address families.
    pub tcp_sockets: u64,
    /// Sockets in TIME-WAIT.
    pub time_wait: u64,
}

impl KernelMemory {
    /// Reads the kernel's current counters.
    pub fn now() -> Self {
        let four = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
        let six = fs::read_to_string("/proc/net/sockstat6").unwrap_or_default();
        Self {
            slab_bytes: fs::read_to_string("/proc/slabinfo")
                .ok()
                .map(|text| slab_bytes(&text)),
            tcp_buffer_bytes: counter(&four, "TCP", "mem") * page_bytes(),
            tcp_sockets: counter(&four, "TCP", "inuse") + counter(&six, "TCP6", "inuse"),
            time_wait: counter(&four, "TCP", "tw"),
        }
    }
}

/// `TCP: inuse 5 orphan 0 …`: the number behind `name` in the line of `section`.
pub(crate) fn counter(text: &str, section: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(section)?.strip_prefix(':'));
    let mut words = line.unwrap_or_default().split_whitespace();
    words
        .find(|word| *word == name)
        .and_then(|_| words.next()?.parse().ok())
        .unwrap_or(0)
}

/// `name active_objs num_objs objsize …`: active objects times their size.
pub(crate) fn slab_bytes(text: &str) -> u64 {
    let cache = |line: &str| {
        let mut words = line.split_whitespace();
        SLAB_CACHES.contains(&words.next()?).then_some(())?;
        let active: u64 = words.next()?.parse().ok()?;
        let size: u64 = words.nth(1)?.parse().ok()?;
        active.checked_mul(size)
    };
    text.lines().filter_map(cache).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text =
            "sockets: used 27\nTCP: inuse 12 orphan 0 tw 3 alloc 9 mem 202\nUDP: inuse 7 mem 0\n";
        assert_eq!(counter(text, "TCP", "inuse"), 12);
        assert_eq!(counter(text, "TCP", "mem"), 202);
        assert_eq!(counter(text, "TCP6", "inuse"), 0);
    }

    /// Found by fuzzing.
    #[test]
    fn sizes_that_no_number_holds_do_not_overflow() {
        let line = format!("{} {} 1 1\n", SLAB_CACHES[0], u64::MAX);
        assert_eq!(slab_bytes(&[line.as_str(), &line].concat()), u64::MAX);
    }

    #[test]
    fn only_caches_of_connections_are_counted() {
        let text = "slabinfo - version: 2.1\n# name <active_objs>\nTCP 10 12 2368 13 8 : x\nbtrfs_x 9 9 999 1 1\nfilp 5 8 256 1 1\n";
        assert_eq!(slab_bytes(text), 10 * 2368 + 5 * 256);
    }

    /// Recorded: beside 75 connections of Apache, 2,485 sockets of earlier ones left TIME-WAIT, and a connection seemed to
    /// take 798 bytes.
    #[test]
    fn sockets_in_time_wait_are_no_open_connections() {
        let text = |waiting: u32| {
            format!("TCP 10 12 2368 13 8 : x\ntw_sock_TCP {waiting} 16019 256 16 1 : x\n")
        };
        assert_eq!(slab_bytes(&text(13_534)), slab_bytes(&text(16_019)));
    }
}
