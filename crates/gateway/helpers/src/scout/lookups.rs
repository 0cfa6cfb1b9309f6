//! Name lookups. The operating system returns the addresses, because it knows DNS, /etc/hosts and
//! all other sources of nsswitch.conf; [`dns`] returns their lifetime.
//!
//! Both block until there is an answer, or up to half a minute without one. So a few threads share the
//! names, and a slow name delays only the names of its thread.

use super::dns::{self, Lifetime, ResolverFiles};
use super::messages::ScoutReport;
use super::task::LookupSchedule;
use crate::helper;
use dormouse_config as config;
use dormouse_reactor::Fd;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of reported addresses of a name, far more than are used. An answer of DNS has room for thousands, which
/// would not fit into a message to main.
const ADDRESSES_MAX: usize = 1_000;

/// Maximum number of concurrent lookups.
const THREADS_MAX: usize = 8;

/// A thread that looks up names.
pub(super) type LookupThread = JoinHandle<io::Result<()>>;

/// Starts threads that look up these names, once or by a schedule, and report their addresses.
pub(super) fn begin(
    names: &[String],
    schedule: Option<LookupSchedule>,
    channel: Fd,
) -> Vec<LookupThread> {
    let threads = names.len().min(THREADS_MAX);
    let start = |number: usize| {
        let own = names.iter().skip(number).step_by(threads);
        let own: Vec<String> = own.cloned().collect();
        thread::spawn(move || look_up_all(&own, schedule, channel))
    };
    (0..threads).map(start).collect()
}

/// Waits for all threads: they end after one lookup per name, or when main is gone.
pub(super) fn wait(threads: Vec<LookupThread>) -> io::Result<()> {
    for thread in threads {
        match thread.join() {
            Ok(ended) => ended?,
            Err(_) => return Err(io::Error::other("a lookup panicked")),
        }
    }
    Ok(())
}

fn look_up_all(names: &[String], schedule: Option<LookupSchedule>, channel: Fd) -> io::Result<()> {
    let now = Instant::now();
    let mut due: BinaryHeap<_> = (names.iter()).map(|name| Reverse((now, name))).collect();
    while let Some(Reverse((at, name))) = due.pop() {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        let began = Instant::now();
        // The lifetime is read first, so that addresses are never believed longer than it says.
        let lifetime = match schedule {
            Some(_) => dns::lifetime(host(name), &ResolverFiles::read()),
            None => Lifetime::Unknown,
        };
        let found = look_up(name);
        if let Some(schedule) = schedule {
            let wait = schedule.after(&found, &lifetime);
            tracing::debug!(name, ?found, ?lifetime, ?wait, "name looked up");
            due.push(Reverse((began + wait, name)));
        }
        let name = name.clone();
        helper::report(channel, &ScoutReport::Name { name, found })?;
    }
    Ok(())
}

impl LookupSchedule {
    /// Time until the next lookup.
    fn after(&self, found: &Result<Vec<SocketAddr>, String>, lifetime: &Lifetime) -> Duration {
        let every = Duration::from_millis(self.every_ms);
        let least = Duration::from_millis(self.ttl_min_ms);
        let most = Duration::from_millis(self.ttl_max_ms).max(least);
        match (found, lifetime) {
            // The lifetime applies if DNS and the operating system share an address.
            (Ok(found), Lifetime::Of(addresses, ttl))
                if found.iter().any(|one| addresses.contains(&one.ip())) =>
            {
                (*ttl).clamp(least, most)
            }
            // The name may exist sooner than DNS promises. It must not wait longer than a name of unknown
            // lifetime.
            (Err(_), Lifetime::OfNothing(ttl)) => (*ttl).clamp(least, most).min(every),
            _ => every,
        }
    }
}

fn host(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(host, _)| host)
}

fn look_up(name: &str) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = name.rsplit_once(':').ok_or("the name has no port")?;
    let port = port.parse().map_err(|_| "the name has no valid port")?;
    let mut found = config::usable(config::look_up(host, port))?;
    found.truncate(ADDRESSES_MAX);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::socket::MESSAGE_MAX;
    use std::net::Ipv6Addr;

    #[test]
    fn the_addresses_of_a_name_fit_into_a_message() {
        let longest = SocketAddr::from((Ipv6Addr::from(u128::MAX), u16::MAX));
        let report = ScoutReport::Name {
            name: format!("{}:65535", "a".repeat(253)),
            found: Ok(vec![longest; ADDRESSES_MAX]),
        };
        let len = serde_json::to_vec(&report).expect("JSON").len();
        assert!(len <= MESSAGE_MAX, "{len}");
    }

    #[test]
    fn a_lifetime_applies_within_its_bounds_and_to_its_own_addresses() {
        let schedule = LookupSchedule {
            every_ms: 30_000,
            ttl_min_ms: 1_000,
            ttl_max_ms: 3_600_000,
        };
        let found = Ok(vec![SocketAddr::from(([10, 0, 0, 1], 80))]);
        let unknown = Err("no such name".to_owned());
        let of = |last: u8, s| Lifetime::Of(vec![[10, 0, 0, last].into()], Duration::from_secs(s));
        let none = |s| Lifetime::OfNothing(Duration::from_secs(s));
        for (found, lifetime, wait_s) in [
            (&found, of(1, 300), 300),
            (&found, of(1, 0), 1),
            (&found, of(1, u64::from(u32::MAX)), 3_600),
            // Other addresses, or unknown.
            (&found, of(2, 300), 30),
            (&found, none(300), 30),
            (&found, Lifetime::Unknown, 30),
            (&unknown, none(5), 5),
            (&unknown, none(0), 1),
            (&unknown, none(300), 30),
            (&unknown, of(1, 300), 30),
            (&unknown, Lifetime::Unknown, 30),
        ] {
            let wait = schedule.after(found, &lifetime);
            assert_eq!(wait.as_secs(), wait_s, "{found:?} {lifetime:?}");
        }
    }
}
