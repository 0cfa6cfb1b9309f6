//! The monitor of backends: a scout that runs along with the configuration. It looks up names again
//! and checks backends; main writes the results into the table of backends.
//!
//! A changed configuration ends the scout and starts another. When only a name has other addresses,
//! the scout goes on with another list of checks.

use super::process::ScoutProcess;
use super::task::task;
use crate::edition::{Edition, addresses};
use crate::shared_memory::SharedMemory;
use crate::tokens;
use dormouse_config as config;
use dormouse_handover::message;
use dormouse_helpers::helper::RestartTimer;
use dormouse_helpers::scout::{self, Check, ScoutReport, Task};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::socket::Attempt;
use dormouse_tables::backends::{Backends, CheckedHealth, RetiredPlaces};
use dormouse_tables::hash;
use dormouse_tables::traffic::Row;
use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;

/// Interval in which places of the table are freed that no backend has any more.
const SWEEP_MS: u64 = 10_000;

/// The scout, its task, and what it has found.
#[derive(Default)]
pub(crate) struct BackendMonitor {
    scout: Option<ScoutProcess>,
    task: Task,
    restart: RestartTimer,
    /// Names whose lookup fails, so that the log says it once.
    failing: BTreeSet<String>,
    places: RetiredPlaces,
    sweep_at_ms: Option<u64>,
}

/// The addresses of a name, of one family.
pub(crate) struct FoundAddresses {
    pub(crate) name: String,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl BackendMonitor {
    /// When something has to be done.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let times = [self.restart.due_ms(), self.sweep_at_ms];
        times.into_iter().flatten().min()
    }

    /// Starts the scout, and frees places of the table, when it is time. Called once a turn.
    /// `is_settled`: all workers follow this edition, and no upgrade is under way.
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
        if !self.restart.take_due() || self.scout.is_some() || self.task.is_empty() {
            return;
        }
        match ScoutProcess::start(&self.task, &edition.config, poller, tokens::MONITOR) {
            Ok(scout) => {
                self.scout = Some(scout);
                self.restart.started();
            }
            Err(error) => {
                tracing::error!(%error, "the scout can't be started");
                self.restart.failed();
            }
        }
    }

    /// Follows another edition, or the same one with other addresses. Returns the former scout if it
    /// was ended.
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
        self.restart.set_due();
        self.end(poller)
    }

    /// Sends the checks to the scout, if it needs nothing else for its new task.
    fn can_continue_from(&self, former: &Task) -> bool {
        let Some(scout) = &self.scout else {
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

    /// Takes the scout's next report. Health goes into the table of backends; addresses of a name are
    /// returned.
    pub(crate) fn receive(
        &mut self,
        backends: &Backends,
        poller: &Poller,
    ) -> Option<FoundAddresses> {
        let scout = self.scout.as_ref()?;
        match message::receive::<ScoutReport>(scout.channel) {
            Ok(None) => None,
            Ok(Some(ScoutReport::Name { name, found })) => self.note_lookup(name, found),
            Ok(Some(ScoutReport::Health { backend, well })) => {
                self.note_health(&backend, &well, backends);
                None
            }
            Err(_) => {
                // SIGCHLD reports its end.
                let _ = poller.remove(scout.channel);
                None
            }
        }
    }

    fn note_health(&self, backend: &str, well: &Result<(), String>, backends: &Backends) {
        // The report may be older than the last list of checks.
        if !self.checks(backend) {
            return;
        }
        let place = backends.place(backend);
        let now_ms = process::boottime_ms();
        match well {
            Ok(()) => {
                if backends.checked(place) == CheckedHealth::Down {
                    tracing::info!(backend, "backend is well again: it gets connections");
                }
                backends.set_checked(place, CheckedHealth::Up, now_ms);
            }
            Err(why) => {
                tracing::warn!(
                    backend,
                    error = why,
                    "backend is not well; it is passed over"
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
                    tracing::info!(name, "a backend can be looked up again");
                }
                let addresses = config::of_one_family(found);
                Some(FoundAddresses { name, addresses })
            }
            Err(why) => {
                if self.failing.insert(name.clone()) {
                    tracing::warn!(
                        name,
                        "a backend can't be looked up: {why}; its addresses stay"
                    );
                }
                None
            }
        }
    }

    /// Notes that the scout has ended. `false`: it was another process.
    pub(crate) fn note_end(&mut self, pid: Pid, poller: &Poller) -> bool {
        let Some(scout) = self.scout.take_if(|scout| scout.pid == pid) else {
            return false;
        };
        scout.close(poller);
        self.restart.ended();
        true
    }

    /// Ends the scout. Returns the process, whose end is still to come.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        self.scout.take().map(|scout| scout.end(poller))
    }
}
