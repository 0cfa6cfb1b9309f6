//! The data behind all answers: the counters, main's last report, and the processes.

use super::ages::Ages;
use dormouse_handover::control::{Listing, Phase, State};
use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::shared;
use dormouse_tables::backends::Backends;
use dormouse_tables::counters::{Common, Count, ended_in_words};
use dormouse_tables::latency::{Distribution, Latency};
use dormouse_tables::traffic::Traffic;

/// Everything that answers are made of.
pub(super) struct View {
    counters: shared::View,
    pub(super) backends: Backends,
    pub(super) traffic: Traffic,
    state: Option<Box<State>>,
    /// Routes and backends.
    pub(super) listed: Listing,
    /// Connections by age.
    pub(super) ages: Ages,
    /// The parts of the next lists that have come.
    next_listed: Listing,
    /// Whether all parts of the first lists have come.
    has_lists: bool,
    main_gone: bool,
    pub(super) restarts: u32,
    pub(super) born_ms: u64,
}

/// A worker's current state.
pub(super) struct WorkerView {
    pub(super) pid: i32,
    pub(super) alive: bool,
    pub(super) born_ms: u64,
    /// How the previous worker ended, and when.
    pub(super) last_death: Option<(String, u64)>,
}

impl View {
    pub(super) fn new(
        counters: shared::View,
        backends: Backends,
        traffic: Traffic,
        restarts: u32,
    ) -> View {
        View {
            counters,
            backends,
            traffic,
            state: None,
            listed: Listing::default(),
            ages: Ages::default(),
            next_listed: Listing::default(),
            has_lists: false,
            main_gone: false,
            restarts,
            born_ms: process::boottime_ms(),
        }
    }

    pub(super) fn set_state(&mut self, state: Box<State>) {
        self.state = Some(state);
    }

    /// Takes a part of the lists, which replace the former ones when they are complete.
    pub(super) fn list(&mut self, part: Listing) {
        let is_last = part.is_last;
        match part.is_first {
            true => self.next_listed = part,
            false => {
                self.next_listed.routes.extend(part.routes);
                self.next_listed.backends.extend(part.backends);
            }
        }
        if is_last {
            self.listed = std::mem::take(&mut self.next_listed);
            self.has_lists = true;
        }
    }

    pub(super) fn note_main_death(&mut self) {
        self.main_gone = true;
    }

    /// Main's last report. `None` for a moment after the start.
    pub(super) fn state(&self) -> Option<&State> {
        self.state.as_deref()
    }

    /// Whether answers are complete: main has reported its state and all lists. After its death there is no more to come.
    pub(super) fn is_complete(&self) -> bool {
        self.main_gone || self.state.is_some() && self.has_lists
    }

    pub(super) fn main_alive(&self) -> bool {
        !self.main_gone
    }

    pub(super) fn workers(&self) -> usize {
        self.counters.workers()
    }

    pub(super) fn common(&self, common: Common) -> u64 {
        self.counters.common(common as usize)
    }

    /// Distribution of a latency over all workers.
    pub(super) fn latency(&self, latency: Latency) -> Distribution {
        latency.distribution(&self.counters)
    }

    pub(super) fn sum(&self, count: Count) -> u64 {
        self.counters.sum(count as usize)
    }

    pub(super) fn of_worker(&self, worker: usize, count: Count) -> u64 {
        self.counters.load(worker, count as usize)
    }

    pub(super) fn worker(&self, worker: usize) -> WorkerView {
        let pid = self.of_worker(worker, Count::WorkerPid) as i32;
        let died_ms = self.of_worker(worker, Count::DiedMs);
        let died_of = self.of_worker(worker, Count::DiedOf);
        WorkerView {
            pid,
            alive: is_alive(pid),
            born_ms: self.of_worker(worker, Count::WorkerBornMs),
            last_death: (died_ms > 0).then(|| (ended_in_words(died_of), died_ms)),
        }
    }

    pub(super) fn workers_alive(&self) -> usize {
        let all = (0..self.workers()).map(|worker| self.worker(worker));
        all.filter(|worker| worker.alive).count()
    }

    /// Whether any worker or keeper still runs.
    pub(super) fn is_any_process_serving(&self) -> bool {
        let keepers = self.state.iter().flat_map(|state| &state.keepers);
        let mut keepers = keepers.filter(|keeper| keeper.ended.is_none());
        self.workers_alive() > 0 || keepers.any(|keeper| is_alive(keeper.pid))
    }

    /// Whether new connections are accepted.
    pub(super) fn is_accepting(&self) -> bool {
        let ready = |state: &State| state.phase == Phase::Ready;
        self.main_alive() && self.state().is_some_and(ready) && self.workers_alive() > 0
    }
}

/// Whether a process runs. A zombie does not.
pub(super) fn is_alive(pid: i32) -> bool {
    process::runs(Pid(pid))
}
