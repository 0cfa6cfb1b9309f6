//! Lookups: what names stand for, asked of the operating system, which knows of DNS, of
//! /etc/hosts, and of whatever else nsswitch.conf says.
//!
//! It waits for its answers, up to half a minute when nobody gives one; so a few threads share the
//! names, and none waits for all others.

use super::Finding;
use crate::beside;
use crate::config;
use dormouse_reactor::Fd;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Lookups at the same time, at most.
const THREADS_MAX: usize = 8;

/// A thread that looks names up.
pub(super) type Search = JoinHandle<io::Result<()>>;

/// Begins to look these names up, once or again and again, and to tell what they stand for.
pub(super) fn begin(names: &[String], every_ms: Option<u64>, channel: Fd) -> Vec<Search> {
    let names: Arc<[String]> = names.into();
    let threads = names.len().min(THREADS_MAX);
    let search = |number: usize| {
        let names = Arc::clone(&names);
        thread::spawn(move || {
            let own = || names.iter().skip(number).step_by(threads);
            loop {
                let began = Instant::now();
                for name in own() {
                    let found = look_up(name);
                    let name = name.clone();
                    beside::tell(channel, &Finding::Name { name, found })?;
                }
                let Some(every_ms) = every_ms else {
                    return Ok(());
                };
                thread::sleep(Duration::from_millis(every_ms).saturating_sub(began.elapsed()));
            }
        })
    };
    (0..threads).map(search).collect()
}

/// Until all have ended: when each name was looked up, or main is gone.
pub(super) fn wait(searches: Vec<Search>) -> io::Result<()> {
    for search in searches {
        match search.join() {
            Ok(ended) => ended?,
            Err(_) => return Err(io::Error::other("a lookup panicked")),
        }
    }
    Ok(())
}

fn look_up(name: &str) -> Result<Vec<std::net::SocketAddr>, String> {
    let (host, port) = name.rsplit_once(':').ok_or("it has no port")?;
    let port = port.parse().map_err(|_| "it has no port")?;
    config::usable(config::look_up(host, port))
}
