//! The backend monitor: a scout that runs all the time. It looks up names again and checks backends; main
//! writes the results into the table of backends.
//!
//! A changed configuration replaces the scout. If only the addresses of a name change, the scout gets a
//! new list of checks.

use super::process::start;
use super::task::task;
use crate::configuration::edition::{Edition, addresses};
use crate::helper_process::Helper;
use crate::shared_memory::SharedMemory;
use crate::tokens;
use dormouse_config as config;
use dormouse_helpers::scout::{self, Check, ScoutReport, Task};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::socket::Attempt;
use dormouse_tables::backends::{Backends, CheckedHealth};
use dormouse_tables::hash;
use dormouse_tables::retired_places::RetiredPlaces;
use dormouse_tables::traffic::Row;
use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;

/// Interval at which places of removed backends are freed.
const SWEEP_MS: u64 = 10_000;

/// The scout, its task, and its results.
pub(crate) struct BackendMonitor {
    scout: Helper,
    task: Task,
    /// Names whose lookup fails, so that each failure is logged once.
    failing: BTreeSet<String>,
    places: RetiredPlaces,
    sweep_at_ms: Option<u64>,
}

/// Addresses of a name, all of one family.
pub(crate) struct FoundAddresses {
    pub(crate) name: String,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl BackendMonitor {
    /// A monitor without a task.
    pub(crate) fn new() -> BackendMonitor {
        BackendMonitor {
            scout: Helper::new("scout"),
            task: Task::default(),
            failing: BTreeSet::new(),
            places: RetiredPlaces::default(),
            sweep_at_ms: None,
        }
    }

    /// Time of the next action.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let times = [self.scout.next_deadline_ms(), self.sweep_at_ms];
        times.into_iter().flatten().min()
    }

    /// Starts the scout if a start is due, and frees places of the table. Called once per turn.
    /// `is_settled`: all workers follow this edition, and no upgrade is in progress.
    pub(crate) fn attend(
        &mut self,
        edition: &Edition,
        memory: &SharedMemory,
        poller: &Poller,
        is_settled: bool,
    ) {
        let now_ms = process::boottime_ms();
        if self.sweep_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.sweep(edition, memory, is_settled, now_ms);
        }
        if self.scout.take_due() && !self.task.is_empty() {
            let start = || start(&self.task, &edition.config, poller, tokens::MONITOR);
            self.scout.start(start);
        }
    }

    /// Takes over another edition, or changed addresses. Returns the previous scout if it was ended.
    pub(crate) fn follow(
        &mut self,
        edition: &Edition,
        backends: &Backends,
        poller: &Poller,
    ) -> Option<Pid> {
        self.sweep_at_ms = Some(process::boottime_ms());
        let task = task(&edition.config, &edition.material.backend_tls);
        if task == self.task {
            return None;
        }
        let former = std::mem::replace(&mut self.task, task);
        self.forget_unchecked(edition, backends);
        if self.can_continue_from(&former) {
            return None;
        }
        self.end(poller)
    }

    /// Sends the new checks to the scout. Returns `false` if its new task needs more than that.
    fn can_continue_from(&self, former: &Task) -> bool {
        let Some(scout) = self.scout.process() else {
            return false;
        };
        let send = || scout::send_checks(scout.channel, &self.task.checks);
        self.task.differs_only_in_checks(former) && matches!(send(), Ok(Attempt::Done(())))
    }

    fn checks(&self, backend: &str) -> bool {
        let by_address = |check: &Check| check.backend.as_str().cmp(backend);
        self.task.checks.binary_search_by(by_address).is_ok()
    }

    /// Clears the health of backends that are no longer checked.
    fn forget_unchecked(&self, edition: &Edition, backends: &Backends) {
        let now_ms = process::boottime_ms();
        for upstream in edition.upstreams() {
            for address in addresses(&upstream.backend) {
                if !self.checks(&address) {
                    let place = backends.place(&address);
                    backends.set_checked(place, CheckedHealth::Unknown, now_ms);
                }
            }
        }
    }

    fn sweep(&mut self, edition: &Edition, memory: &SharedMemory, is_settled: bool, now_ms: u64) {
        if is_settled {
            let upstreams = edition.upstreams();
            let all = upstreams.flat_map(|upstream| addresses(&upstream.backend));
            let named: HashSet<u64> = all.map(|name| hash::of_text(&name)).collect();
            for place in self.places.sweep(&memory.backends, &named, now_ms) {
                memory.traffic.forget(Row::of_backend(place));
            }
        }
        let again = !is_settled || self.places.any_retired();
        self.sweep_at_ms = again.then_some(now_ms + SWEEP_MS);
    }

    /// Processes the scout's next report. Health goes to the table of backends; addresses of a name are
    /// returned.
    pub(crate) fn receive(
        &mut self,
        backends: &Backends,
        poller: &Poller,
    ) -> Option<FoundAddresses> {
        match self.scout.receive(poller)? {
            // A compromised scout must not fill main's memory with other names.
            ScoutReport::Name { name, found } if self.task.names.contains(&name) => {
                self.note_lookup(name, found)
            }
            ScoutReport::Name { .. } => None,
            ScoutReport::Health { backend, well } => {
                self.note_health(&backend, &well, backends);
                None
            }
        }
    }

    fn note_health(&self, backend: &str, well: &Result<(), String>, backends: &Backends) {
        // The report may be older than the current list of checks.
        if !self.checks(backend) {
            return;
        }
        let place = backends.place(backend);
        let now_ms = process::boottime_ms();
        match well {
            Ok(()) => {
                if backends.checked(place) == CheckedHealth::Down {
                    tracing::info!(backend, "backend is healthy again");
                }
                backends.set_checked(place, CheckedHealth::Up, now_ms);
            }
            Err(why) => {
                tracing::warn!(
                    backend,
                    error = why,
                    "backend is unhealthy; no new connections"
                );
                backends.set_checked(place, CheckedHealth::Down, now_ms);
            }
        }
    }

    fn note_lookup(
        &mut self,
        name: String,
        found: Result<Vec<SocketAddr>, String>,
    ) -> Option<FoundAddresses> {
        match found {
            Ok(found) => {
                if self.failing.remove(&name) {
                    tracing::info!(name, "backend name resolves again");
                }
                let addresses = config::of_one_family(found);
                Some(FoundAddresses { name, addresses })
            }
            Err(why) => {
                if self.failing.insert(name.clone()) {
                    tracing::warn!(
                        name,
                        error = why,
                        "backend name lookup failed; keeping its addresses"
                    );
                }
                None
            }
        }
    }

    /// Handles the scout's exit. Returns `false` if it was another process.
    pub(crate) fn note_end(&mut self, pid: Pid, poller: &Poller) -> bool {
        self.scout.note_end(pid, poller)
    }

    /// Ends the scout. Returns its process id; the exit is still to be reported. The next turn starts another
    /// one.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        self.scout.release().map(|scout| scout.kill(poller))
    }
}
