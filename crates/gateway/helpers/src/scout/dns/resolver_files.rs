//! Resolver settings of this machine: resolv.conf(5), hosts(5), nsswitch.conf(5).
//!
//! Read for each lookup, because they can change; they are small, and lookups are rare.

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const DNS_PORT: u16 = 53;
/// Limits of the C library: MAXNS, MAXDNSRCH (six in older versions), and the maximum of `ndots`.
const SERVERS_MAX: usize = 3;
const SEARCH_MAX: usize = 6;
const NDOTS_MAX: usize = 15;
/// Maximum bytes read of a file.
const FILE_MAX: u64 = 1 << 20;

/// Resolver settings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::scout) struct ResolverFiles {
    pub(super) servers: Vec<SocketAddr>,
    /// Domains that are appended to names.
    search: Vec<String>,
    /// A name with at least this many dots is tried unchanged first.
    ndots: usize,
    /// Whether nsswitch.conf names DNS.
    asks_dns: bool,
    /// Names in the hosts file, in lower case.
    in_file: Vec<String>,
}

impl ResolverFiles {
    /// Reads the files.
    pub(in crate::scout) fn read() -> ResolverFiles {
        ResolverFiles::of(
            &text("/etc/resolv.conf"),
            &text("/etc/hosts"),
            &text("/etc/nsswitch.conf"),
        )
    }

    pub(super) fn of(resolv_conf: &str, hosts: &str, nsswitch: &str) -> ResolverFiles {
        let mut files = ResolverFiles {
            ndots: 1,
            asks_dns: asks_dns(nsswitch),
            in_file: names_of(hosts),
            ..ResolverFiles::default()
        };
        for line in resolv_conf.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    // A server with a zone (fe80::1%eth0) is left to the operating system.
                    let server = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    files
                        .servers
                        .extend(server.map(|ip| SocketAddr::new(ip, DNS_PORT)));
                }
                // The last of these lines applies.
                Some("search" | "domain") => {
                    files.search = words.take(SEARCH_MAX).map(str::to_owned).collect();
                }
                Some("options") => {
                    let mut dots =
                        words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    files.ndots = dots.next_back().unwrap_or(files.ndots).min(NDOTS_MAX);
                }
                _ => {}
            }
        }
        files.servers.truncate(SERVERS_MAX);
        if files.servers.is_empty() {
            let own = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT);
            files.servers.push(own);
        }
        files
    }

    /// Whether DNS answers for this host, and not the hosts file.
    pub(super) fn asks_dns_for(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        self.asks_dns && !self.in_file.contains(&host)
    }

    /// The names to ask for, in order, until one exists.
    pub(super) fn candidates(&self, host: &str) -> Vec<String> {
        if host.ends_with('.') {
            return vec![host.to_owned()];
        }
        let searched = self.search.iter();
        let mut all: Vec<String> = searched
            .map(|domain| format!("{host}.{}", domain.trim_start_matches('.')))
            .collect();
        let as_it_is = match host.matches('.').count() >= self.ndots {
            true => 0,
            false => all.len(),
        };
        all.insert(as_it_is, host.to_owned());
        all
    }
}

/// The text of a file; empty if it cannot be read.
fn text(path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(FILE_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether the line `hosts:` names DNS. Without that line or file, the C library asks `files` and `dns`.
fn asks_dns(nsswitch: &str) -> bool {
    let hosts = nsswitch
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("hosts:"));
    hosts.is_none_or(|sources| {
        let sources = sources.split('#').next().unwrap_or_default();
        let mut words = sources.split_ascii_whitespace();
        words.any(|word| word == "dns" || word == "resolve")
    })
}

fn names_of(hosts: &str) -> Vec<String> {
    let lines = hosts
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let names = lines.flat_map(|line| line.split_ascii_whitespace().skip(1));
    names.map(str::to_ascii_lowercase).collect()
}
