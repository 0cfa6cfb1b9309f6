//! Lookups of names: their addresses from the operating system, which knows DNS, /etc/hosts and
//! whatever else nsswitch.conf names; the lifetime of these addresses from [`dns`].
//!
//! Both block until there is an answer, up to half a minute when there is none; so a few threads
//! share the names, and no name waits for all others.

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

/// Lookups at the same time, at most.
const THREADS_MAX: usize = 8;

/// A thread that looks up names.
pub(super) type LookupThread = JoinHandle<io::Result<()>>;

/// Begins to look up these names, once or by a schedule, and to report their addresses.
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

/// Waits until all threads have ended: each name was looked up, or main is gone.
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
        // First for how long, so that no address is taken to hold longer than it does.
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
            // Its addresses come from there, as one that both name shows.
            (Ok(found), Lifetime::Of(addresses, ttl))
                if found.iter().any(|one| addresses.contains(&one.ip())) =>
            {
                (*ttl).clamp(least, most)
            }
            // There may be another name by then, and nobody should wait for it longer than for
            // those of which nothing is known.
            (Err(_), Lifetime::OfNothing(ttl)) => (*ttl).clamp(least, most).min(every),
            _ => every,
        }
    }
}

fn host(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(host, _)| host)
}

fn look_up(name: &str) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = name.rsplit_once(':').ok_or("it has no port")?;
    let port = port.parse().map_err(|_| "it has no port")?;
    config::usable(config::look_up(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_counts_within_its_bounds_and_where_it_is_the_addresses_own() {
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
            // From elsewhere, or not known.
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
