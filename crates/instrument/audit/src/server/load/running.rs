//! A part of the load while it runs, and the steps that several parts have in common.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::backlog::Backlog;
use super::budget::{Budget, CONNECTIONS_MIN};
use super::heap_reader::{Collection, HeapReader};
use super::schedule::Slot;
use super::serving;
use crate::model::{MemoryPhase, MissingPart};
use crate::server::spec::Sizes;
use dormouse_bench::Session;
use dormouse_bench::load::{Cycle, Order, Tally};
use dormouse_census::{Detail, ManagedHeap, Snapshot};
use dormouse_measure::{Error, KernelMemory};

/// Time between two looks at a server that still accepts and closes connections, and time after which one that does
/// neither keeps them.
const DRAIN_EVERY: Duration = Duration::from_millis(100);
const DRAIN_FOR: Duration = Duration::from_secs(1);

/// Maximum wait for a full collection that the audit asks for, and for one that a runtime makes on its own; also limited
/// by the remaining time.
const COLLECTION_WAIT: Duration = Duration::from_secs(120);
const GARBAGE_FOR: Duration = Duration::from_secs(8);
const MOMENTS: u32 = 8;

/// What a part has found, and why it ended early.
pub(super) type Partly<T> = (T, Result<(), Error>);

/// A part of the load: its session with the server, the reader of the server's heap, and its limits.
pub(super) struct RunningPart<'a, 's> {
    pub(super) session: &'a mut Session<'s>,
    pub(super) heap: &'a mut HeapReader,
    pub(super) sizes: Sizes,
    pub(super) budget: Budget,
    pub(super) slot: Slot,
    /// Whether the server echoes.
    pub(super) echoes: bool,
    /// Whether the server answers nothing that the audit could send.
    pub(super) is_silent: bool,
    /// Maximum number of concurrent handshakes while connections are opened.
    pub(super) in_flight_max: u32,
    /// Time without a new connection after which the server is at its limit.
    pub(super) stall: Duration,
    /// When the audit began.
    pub(super) began: Instant,
    /// What of the part is missing, and why.
    pub(super) missing: Vec<MissingPart>,
}

impl RunningPart<'_, '_> {
    /// Whether the next parts need the remaining time.
    pub(super) fn is_late(&self) -> bool {
        self.slot.is_late(Instant::now())
    }

    /// Whether a step of this length ends within the part's time.
    pub(super) fn has_room(&self, took: Duration) -> bool {
        self.slot.has_room(Instant::now(), took)
    }

    /// How long a step may wait within the part's time.
    pub(super) fn limit(&self, patience: Duration) -> Duration {
        self.slot.end.limit(Instant::now(), patience)
    }

    /// Fails if the load ended early.
    pub(super) fn go_on(&self) -> Result<(), Error> {
        match self.session.is_over() {
            true => Err(Error::lost("the load ended early")),
            false => Ok(()),
        }
    }

    /// The server's processes.
    pub(super) fn pids(&self) -> Vec<i32> {
        let server = self.session.server.as_ref();
        server
            .and_then(|server| server.tree.pids().ok())
            .unwrap_or_default()
    }

    pub(super) fn backlog(&self) -> Backlog {
        Backlog::of(self.session)
    }

    pub(super) fn open(&mut self, stage: &str, alive: u64) -> Result<(), Error> {
        self.open_at_once(stage, alive, self.in_flight_max)
    }

    /// Opens connections, at most `in_flight_max` at once.
    pub(super) fn open_at_once(
        &mut self,
        stage: &str,
        alive: u64,
        in_flight_max: u32,
    ) -> Result<(), Error> {
        let report = self
            .session
            .hold(stage, (alive, in_flight_max), self.stall)?;
        report.ensure_complete()?;
        self.go_on()?;
        match report.of.tally.alive {
            open if open < alive => Err(failed_to_open(open, alive, &report.of.failures)),
            _ => Ok(()),
        }
    }

    /// Opens `wanted` connections. If the server accepts no more or is too slow for so many at a time, closes them, and
    /// returns a number of which the server can hold twice as many, with some beside them.
    pub(super) fn open_or_close(&mut self, stage: &str, wanted: u64) -> Result<Option<u64>, Error> {
        let Err(error) = self.open(stage, wanted) else {
            return Ok(None);
        };
        if self.session.is_over() {
            return Err(error);
        }
        let fewer = (self.session.fleet.alive() * 2 / 5).max(CONNECTIONS_MIN.min(wanted));
        self.close_all()?;
        self.drain(Backlog::default());
        self.session
            .run
            .note(format!("{}; the audit held {fewer}", error.message));
        Ok(Some(fewer))
    }

    pub(super) fn close_all(&mut self) -> Result<(), Error> {
        let closed = self
            .session
            .order("closing", None, &Order::Close, |tally| tally.closed);
        closed.map(drop)
    }

    /// Waits while the server still accepts and closes connections of a round. What it leaves costs the later parts more
    /// time than waiting does. Connections of others come and go, so only the least that was ever left is progress.
    pub(super) fn drain(&mut self, before: Backlog) {
        let (mut now, mut went_on) = (self.backlog(), Instant::now());
        let mut least = now;
        while !now.is_done(before)
            && went_on.elapsed() < DRAIN_FOR
            && !self.slot.end.is_over(Instant::now())
        {
            self.session.pause("the server closes", DRAIN_EVERY, 0);
            now = self.backlog();
            if now < least {
                (least, went_on) = (now, Instant::now());
            }
        }
    }

    /// Opens and closes this many connections.
    pub(super) fn cycle(&mut self, stage: &str, connections: u64) -> Result<Tally, Error> {
        self.cycle_for(stage, connections, None)
    }

    /// The same, and fewer if that takes longer than half of the time.
    pub(super) fn cycle_for(
        &mut self,
        stage: &str,
        connections: u64,
        time: Option<Duration>,
    ) -> Result<Tally, Error> {
        let order = Order::Cycle(Cycle {
            for_ms: time.map_or(0, half_ms),
            ..Cycle::once(connections, self.sizes.lanes)
        });
        let before = self.backlog();
        let report = self
            .session
            .order(stage, Some(connections), &order, |tally| tally.closed)?;
        report.ensure_complete()?;
        self.drain(before);
        self.go_on()?;
        Ok(report.of.tally)
    }

    /// Makes language runtimes collect, and counts the objects that survive.
    pub(super) fn objects(&self, detail: Detail) -> ManagedHeap {
        match self.heap.collection {
            Collection::TooSlow => ManagedHeap::default(),
            _ => ManagedHeap::after_collection(&self.pids(), detail, self.limit(COLLECTION_WAIT)),
        }
    }

    /// Waits for a garbage collection where a census counts only objects that survive one. `held`: connections that are
    /// open.
    pub(super) fn await_collection(&mut self, held: u64) -> bool {
        if self.heap.no_census.is_some() {
            return true;
        }
        let left = self.slot.end.left(Instant::now());
        let patience = left.map_or(GARBAGE_FOR, |left| left / MOMENTS);
        self.session.await_collection(held, patience)
            && ManagedHeap::collect_buffers(&self.pids(), self.limit(COLLECTION_WAIT))
    }

    /// Counts the blocks in use.
    pub(super) fn census(&mut self, connections: u64) -> Option<Snapshot> {
        if self.heap.no_census.is_some() {
            return None;
        }
        let counted = self.session.census(connections);
        counted.map_err(|why| self.heap.no_census = Some(why)).ok()
    }

    /// Reads the memory once it has settled.
    pub(super) fn phase(
        &mut self,
        name: &str,
        title: &str,
        connections: u64,
    ) -> Option<MemoryPhase> {
        let sample = self.session.settled(connections)?;
        Some(MemoryPhase {
            name: name.to_owned(),
            title: title.to_owned(),
            at_s: self.began.elapsed().as_secs_f64(),
            connections,
            processes: sample.processes,
            serving: serving::among(&self.pids(), &self.session.spec.target, connections),
            memory: sample.memory,
            kernel: KernelMemory::now(),
        })
    }
}

/// Half of a time, in milliseconds, and at least one.
pub(super) fn half_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 2).unwrap_or(0).max(1)
}

pub(super) fn failed_to_open(open: u64, asked: u64, failures: &BTreeMap<String, u64>) -> Error {
    let reasons: Vec<_> = failures.keys().map(String::as_str).collect();
    let reasons = reasons.join("; ");
    Error::target(format!(
        "only {open} of {asked} connections are open: {reasons}"
    ))
}

/// A part that is missing because of an error.
pub(super) fn missing(part: &str, error: &Error) -> MissingPart {
    MissingPart {
        part: part.to_owned(),
        why: error.message.clone(),
    }
}
