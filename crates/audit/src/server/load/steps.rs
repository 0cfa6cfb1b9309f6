//! Steps of load on a server: first connections, held connections, streams.

use std::time::{Duration, Instant};

use super::backlog::Backlog;
use super::budget::{Budget, CONNECTIONS_MIN};
use super::log::{LoadLog, ManagedMoments};
use super::parallel;
use super::polling::Activity;
use super::schedule::Slot;
use super::serving;
use crate::model::MemoryPhase;
use crate::server::spec::Sizes;
use dormouse_bench::Session;
use dormouse_bench::load::{Cycle, Messages, Order, Tally};
use dormouse_census::{self as census, Collector, Detail, ManagedHeap};
use dormouse_measure::{Error, KernelMemory};

/// Messages per second when every held connection sends one.
const SPEAK_PER_S: f64 = 3000.0;

/// A large record: 16 kB of plaintext, close to the maximum of 2^14 bytes.
const LARGE_BYTES: u64 = 16_000;

/// Connections that measure the server's speed and let it complete its one-time setup.
const FIRST: u64 = 100;

/// Time between two looks at a server that still accepts and closes connections, and time after which one that does
/// neither keeps them.
const DRAIN_EVERY: Duration = Duration::from_millis(100);
const DRAIN_FOR: Duration = Duration::from_secs(1);

/// Maximum wait for a full collection that the audit asks for, and for one that a runtime makes on its own; also limited
/// by the remaining time.
const COLLECTION_WAIT: Duration = Duration::from_secs(120);
const GARBAGE_FOR: Duration = Duration::from_secs(8);
const MOMENTS: u32 = 8;

/// Steps of load and their settings.
pub(super) struct LoadSteps {
    pub(super) sizes: Sizes,
    pub(super) budget: Budget,
    pub(super) slot: Slot,
    pub(super) echo: bool,
    pub(super) silent: bool,
    /// Maximum number of concurrent handshakes while connections are opened.
    pub(super) in_flight_max: u32,
    /// Time without a new connection after which the server is at its limit.
    pub(super) stall: Duration,
    pub(super) collects: bool,
    pub(super) began: Instant,
}

impl LoadSteps {
    /// Opens the first connections: measures the time per connection and how many the server serves at a time.
    pub(super) fn try_out(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        let lanes = u64::from(self.sizes.lanes);
        let few = lanes.min(16);
        let order = Order::Open {
            alive: few,
            per_s: 0.0,
            in_flight_max: self.in_flight_max,
        };
        let report = session.order("trying", Some(few), &order, |tally| tally.alive)?;
        let alive = report.of.tally.alive;
        if alive == 0 {
            report.ensure_complete()?;
            return Err(failed_to_open(0, few, &report.of.failures));
        }
        session.order("trying", None, &Order::Close, |tally| tally.closed)?;
        if alive < few {
            log.served_at_once = Some(alive);
        }
        let left = self.slot.until.left(Instant::now());
        let order = Order::Cycle(Cycle {
            for_ms: left.map_or(0, half_ms),
            ..Cycle::once(FIRST, u32::try_from(alive).unwrap_or(1))
        });
        let began = Instant::now();
        let report = session.order("warming up", Some(FIRST), &order, |tally| tally.closed)?;
        let closed = report.of.tally.closed.max(1);
        log.each = began.elapsed().div_f64(closed as f64);
        report.ensure_complete()?;
        let lanes = u32::try_from(alive).unwrap_or(1);
        log.parallel = Some(if self.is_late() {
            Err("the time was too short; --time raises the limit".into())
        } else {
            parallel::measure(session, lanes, &pids(session))?
        });
        if self.collects {
            let began = Instant::now();
            let heap = self.managed(session, log, Detail::Bytes);
            log.collection_took = heap.bytes().map(|_| began.elapsed());
        }
        let began = Instant::now();
        let patience = self.slot.end.limit(began, census::PATIENCE);
        log.no_census = census::take_within(patience, &pids(session), 0).err();
        log.census_took = began.elapsed();
        go_on(session)
    }

    /// Holds 0, N and 2N connections and makes them exchange data.
    pub(super) fn hold(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        exchanges: bool,
    ) -> Result<(), Error> {
        if log.served_at_once == Some(1) {
            return Err(Error::target(
                "the server serves one connection at a time, so idle connections cannot be held",
            ));
        }
        let n = self.sizes.n;
        // Before connections are held: while their memory is counted, the server must do nothing else.
        log.returns_large = self.returns_large(session, log)?;
        // V8 keeps a list of all its objects after the first snapshot, in blocks of malloc: before a census counts these.
        let detail = if self.slot.has_much_room(Instant::now(), log.classes_took) {
            Detail::Classes
        } else {
            Detail::Bytes
        };
        log.closed_early = None;
        self.none_held(session, log, detail);
        let mut n = self.open_as_many(session, log, detail, n)?;
        self.held(session, log, ("n", "N connections"), n);
        if self.is_late() {
            let note = "the time was too short to open twice as many connections";
            session.run.note(note);
        } else if self.budget.is_exceeded_by_twice(log.grown("n")) {
            let note = "twice as many connections would exceed the memory limit (--memory)";
            session.run.note(note);
        } else if let Err(error) = self.open(session, "opening", 2 * n) {
            go_on(session)?;
            log.missing("twice as many idle connections", &error);
            session.order("closing", None, &Order::Close, |tally| tally.closed)?;
            self.drain(session, Backlog::default());
            self.none_held(session, log, detail);
            n = self.open_as_many(session, log, detail, n)?;
            self.held(session, log, ("n", "N connections"), n);
        } else {
            self.held(session, log, ("2n", "2N connections"), 2 * n);
            self.hold_more(session, log, 4 * n)?;
            let has_room = |took: &Duration| self.slot.has_room(Instant::now(), *took);
            if log.collection_took.filter(has_room).is_some() {
                log.managed.opened = Some(self.managed(session, log, Detail::Bytes));
            }
        }
        let held = log.held;
        if (log.no_census.is_some() || log.explains_little(held)) && !self.is_late() {
            log.pages = Some(census::sample_pages(&pids(session), held));
        }
        if exchanges {
            self.exchange(session, log, n)?;
        }
        let detail = log.managed.detail_of_held(log.classes_took, |took| {
            self.slot.has_room(Instant::now(), took)
        });
        self.managed_held(session, log, detail);
        self.close(session, log)
    }

    /// Opens this many connections, or fewer if the server accepts no more. Returns their number.
    fn open_as_many(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        detail: Detail,
        wanted: u64,
    ) -> Result<u64, Error> {
        let Some(fewer) = self.open_or_close(session, "opening", wanted)? else {
            return Ok(wanted);
        };
        // What the failed attempts left behind belongs to no connection, unless it is a process for each.
        if !log.has_process_each(pids(session).len() as u64, fewer) {
            self.none_held(session, log, detail);
        }
        self.open_at_once(session, "opening one at a time", (fewer, 1))?;
        Ok(fewer)
    }

    /// Reads the memory of the server without connections.
    fn none_held(&self, session: &mut Session<'_>, log: &mut LoadLog, detail: Detail) {
        log.before_held = Backlog::of(session);
        let none = self.managed(session, log, detail);
        log.managed = ManagedMoments {
            none: Some(none),
            ..ManagedMoments::default()
        };
        log.uncollected = !self.await_collection(session, log);
        self.phase(session, log, ("before", "before"), 0);
        self.census(session, log, "before", 0);
    }

    /// Makes all held connections exchange data, and then leaves them idle. `n`: half of them.
    fn exchange(&self, session: &mut Session<'_>, log: &mut LoadLog, n: u64) -> Result<(), Error> {
        let held = log.held;
        log.is_silent = self.silent;
        if !self.silent {
            speak(session, "an exchange on each", held, 0)?;
            self.read_open(session, log, ("after_exchange", "after an exchange"), false);
        }
        let is_large = log.returns_large && !self.is_late();
        if is_large {
            speak(session, "16 kB each way", held, LARGE_BYTES)?;
            let large = ("after_large_records", "after 16 kB each way");
            self.read_open(session, log, large, false);
        }
        self.quiet(session, log, self.sizes.quiet);
        self.hold_again(session, log, n, |session, all| {
            if !self.silent {
                speak(session, "an exchange on each", all, 0)?;
            }
            if is_large {
                speak(session, "16 kB each way", all, LARGE_BYTES)?;
            }
            Ok(())
        })
    }

    /// Tries one connection of its own with a large message: a server of lines may have a limit, and would end all held
    /// connections.
    fn returns_large(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<bool, Error> {
        if !self.echo || log.large_refused.is_some() || self.is_late() {
            return Ok(false);
        }
        let cycle = Cycle {
            bulk_bytes: LARGE_BYTES,
            ..Cycle::once(1, 1)
        };
        let harvest = session.order("16 kB on one", Some(1), &Order::Cycle(cycle), |tally| {
            tally.answers
        })?;
        go_on(session)?;
        if harvest.of.tally.answers > 0 {
            return Ok(true);
        }
        let why = harvest.of.failures.keys().next();
        let why = why.map_or("no answer", String::as_str);
        log.large_refused = Some(format!(
            "the server does not echo 16 kB sent at once ({why})"
        ));
        Ok(false)
    }

    /// Opens more connections if the server's own pools had free blocks for the first ones: only connections beyond
    /// these take blocks that a census can count.
    fn hold_more(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        count: u64,
    ) -> Result<(), Error> {
        // Twice as many connections take twice as long.
        let has_time = self
            .slot
            .has_room(Instant::now(), 2 * log.second_half_took());
        let is_too_much = self.budget.is_exceeded_by_twice(log.grown("2n"));
        if !log.hides_much() || !has_time || is_too_much {
            return Ok(());
        }
        let held = log.held;
        if self.open(session, "opening", count).is_ok() {
            self.held(session, log, ("4n", "4N connections"), count);
            return Ok(());
        }
        // The readings so far stay valid with the connections that they are about.
        go_on(session)?;
        session.order("closing", None, &Order::Close, |tally| tally.closed)?;
        self.open(session, "opening", held)
    }

    /// Holds more connections if CPython has freed old garbage since the last ones were opened: then the memory before
    /// all connections included garbage, and only the additional ones show what each uses. They exchange the same data.
    fn hold_again(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        more: u64,
        exchange: impl FnOnce(&mut Session<'_>, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let grown = log.grown("after_quiet");
        let has_room = !self.is_late() && !self.budget.is_exceeded_by_twice(grown);
        if !has_room || log.closed_early.is_some() || !log.is_garbage_lost() {
            return Ok(());
        }
        let all = log.held + more;
        self.open(session, "opening more", all)?;
        exchange(session, all)?;
        session.pause("quiet", self.sizes.quiet, all);
        self.await_collection(session, log);
        self.census(session, log, "again", all);
        Ok(())
    }

    /// Holds HTTP connections, of which each has received a response.
    pub(super) fn hold_requests(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        let held = log.held.max(1);
        log.closed_early = None;
        log.before_held = Backlog::of(session);
        // Connections that were held before without a request may be garbage now.
        if let Some(Collector::Python(_)) = session.collector() {
            self.census(session, log, "before_requests", 0);
        }
        if let Some(fewer) = self.open_or_close(session, "opening with a request", held)? {
            // What the failed attempts left behind belongs to no connection, unless it is a process for each.
            if !log.has_process_each(pids(session).len() as u64, fewer) {
                self.phase(session, log, ("before_requests", "before requests"), 0);
                self.census(session, log, "before_requests", 0);
            }
            self.open_at_once(session, "opening one at a time", (fewer, 1))?;
            log.held = fewer;
        }
        let held = log.held;
        self.read_open(session, log, ("after_exchange", "after a request"), false);
        self.quiet(session, log, self.sizes.quiet);
        self.hold_again(session, log, held, |_, _| Ok(()))?;
        self.managed_held(session, log, Detail::Classes);
        self.close(session, log)
    }

    /// Reads the memory right after connections were opened.
    fn held(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        (name, title): (&'static str, &str),
        count: u64,
    ) {
        log.held = count;
        self.read_open(session, log, (name, title), true);
    }

    /// Reads the memory of the connections that are open, and if `counts`, their blocks in use. A reading during which the
    /// server closed some is dropped: it is not known how many it counted.
    fn read_open(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        (name, title): (&'static str, &str),
        counts: bool,
    ) {
        let open = self.still_open(session, log);
        if open == 0 {
            return;
        }
        self.phase(session, log, (name, title), open);
        if counts {
            log.uncollected |= !self.await_collection(session, log);
            self.census(session, log, name, open);
        }
        if self.still_open(session, log) < open {
            log.forget(name);
        }
    }

    fn quiet(&self, session: &mut Session<'_>, log: &mut LoadLog, length: Duration) {
        let alive = self.still_open(session, log);
        if alive == 0 {
            return;
        }
        let (began, before) = (Instant::now(), session.server_cpu());
        let activity = Activity::of(&pids(session));
        session.pause("quiet", length, alive);
        let activity = activity.since();
        log.polling = Some(activity.polling);
        let spent = session.server_cpu() - before;
        let spent_ns = activity.of_program_ns.unwrap_or(spent.total_ns);
        let seconds = began.elapsed().as_secs_f64() * alive as f64;
        let left = self.still_open(session, log);
        // Closing connections takes CPU time, so it is no longer that of idle ones.
        log.idle_us = (left == alive).then(|| spent_ns as f64 / 1e3 / seconds.max(1e-9));
        let quiet = ("after_quiet", "after being quiet");
        self.read_open(session, log, quiet, true);
    }

    /// Number of held connections that the server has not closed: it may close idle ones, or those without a login.
    fn still_open(&self, session: &mut Session<'_>, log: &mut LoadLog) -> u64 {
        let order = Order::Open {
            alive: 0,
            per_s: 0.0,
            in_flight_max: 1,
        };
        let report = session.order("counting", None, &order, |tally| tally.alive);
        let open = report.map_or(0, |report| report.of.tally.alive);
        if open < log.held && !session.is_over() {
            log.closed_early = Some(format!(
                "the server closed {} of {} idle connections",
                log.held - open,
                log.held
            ));
        }
        open
    }

    /// Counts the objects of a language runtime while all connections are still open.
    fn managed_held(&self, session: &Session<'_>, log: &mut LoadLog, detail: Detail) {
        log.managed.held = match log.closed_early {
            None => Some(self.managed(session, log, detail)),
            Some(_) => log.managed.opened.take(),
        };
    }

    fn close(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        session.order("closing", None, &Order::Close, |tally| tally.closed)?;
        session.run.notes.extend(
            log.closed_early
                .as_ref()
                .map(|what| format!("{what}: later figures, if any, are those of the others")),
        );
        session.pause("after closing", self.sizes.after, 0);
        // Memory of connections that the server has yet to close would seem to outlive them.
        self.drain(session, log.before_held);
        self.phase(session, log, ("after_close", "all closed"), 0);
        self.await_collection(session, log);
        self.census(session, log, "after_close", 0);
        Ok(())
    }

    /// Streams bytes over echo connections.
    pub(super) fn bulk(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        if !self.returns_large(session, log)? {
            return Ok(());
        }
        let lanes = 4.min(self.sizes.lanes);
        let cycle = Cycle {
            bulk_bytes: self.sizes.bulk_bytes,
            ..Cycle::once(u64::from(lanes), lanes)
        };
        let before = session.server_cpu();
        let harvest = session.order("streaming", None, &Order::Cycle(cycle), |tally| {
            tally.bytes_heard
        })?;
        harvest.ensure_complete()?;
        let spent = session.server_cpu() - before;
        let heard = harvest.of.tally.bytes_heard;
        log.per_gigabyte_s = (heard > 0).then(|| spent.total_ns as f64 / heard as f64);
        Ok(())
    }

    fn open(&self, session: &mut Session<'_>, stage: &str, alive: u64) -> Result<(), Error> {
        self.open_at_once(session, stage, (alive, self.in_flight_max))
    }

    /// Opens connections, at most `in_flight_max` at once.
    fn open_at_once(
        &self,
        session: &mut Session<'_>,
        stage: &str,
        (alive, in_flight_max): (u64, u32),
    ) -> Result<(), Error> {
        let harvest = session.hold(stage, (alive, in_flight_max), self.stall)?;
        harvest.ensure_complete()?;
        go_on(session)?;
        if harvest.of.tally.alive < alive {
            let open = harvest.of.tally.alive;
            return Err(failed_to_open(open, alive, &harvest.of.failures));
        }
        Ok(())
    }

    /// Opens `wanted` connections. If the server accepts no more or is too slow for so many at a time, closes them, and
    /// returns a number of which the server can hold twice as many, with some beside them.
    fn open_or_close(
        &self,
        session: &mut Session<'_>,
        stage: &str,
        wanted: u64,
    ) -> Result<Option<u64>, Error> {
        let Err(error) = self.open(session, stage, wanted) else {
            return Ok(None);
        };
        if session.is_over() {
            return Err(error);
        }
        let fewer = (session.fleet.alive() * 2 / 5).max(CONNECTIONS_MIN.min(wanted));
        session.order("closing", None, &Order::Close, |tally| tally.closed)?;
        self.drain(session, Backlog::default());
        session
            .run
            .note(format!("{}; the audit held {fewer}", error.message));
        Ok(Some(fewer))
    }

    /// Waits while the server still accepts and closes connections of a round. What it leaves costs the later parts more
    /// time than waiting does. Connections of others come and go, so only the least that was ever left is progress.
    fn drain(&self, session: &mut Session<'_>, before: Backlog) {
        let (mut now, mut went_on) = (Backlog::of(session), Instant::now());
        let mut least = now;
        let is_over = || self.slot.end.is_over(Instant::now());
        while !now.is_done(before) && went_on.elapsed() < DRAIN_FOR && !is_over() {
            session.pause("the server closes", DRAIN_EVERY, 0);
            now = Backlog::of(session);
            if now < least {
                (least, went_on) = (now, Instant::now());
            }
        }
    }

    /// Makes language runtimes collect, and counts the objects that survive.
    pub(super) fn managed(
        &self,
        session: &Session<'_>,
        log: &LoadLog,
        detail: Detail,
    ) -> ManagedHeap {
        if log.collects_too_slowly {
            return ManagedHeap::default();
        }
        let patience = self.slot.end.limit(Instant::now(), COLLECTION_WAIT);
        ManagedHeap::after_collection(&pids(session), detail, patience)
    }

    /// Whether the next parts need the remaining time.
    pub(super) fn is_late(&self) -> bool {
        self.slot.is_late(Instant::now())
    }

    /// Waits for a garbage collection where a census counts only objects that survive one.
    pub(super) fn await_collection(&self, session: &mut Session<'_>, log: &LoadLog) -> bool {
        log.no_census.is_some() || {
            let left = self.slot.end.left(Instant::now());
            let patience = left.map_or(GARBAGE_FOR, |left| left / MOMENTS);
            session.await_collection(log.held, patience) && {
                let patience = self.slot.end.limit(Instant::now(), COLLECTION_WAIT);
                ManagedHeap::collect_buffers(&pids(session), patience)
            }
        }
    }

    /// Opens and closes this many connections.
    pub(super) fn cycle(
        &self,
        session: &mut Session<'_>,
        stage: &str,
        connections: u64,
    ) -> Result<Tally, Error> {
        self.cycle_for(session, stage, connections, None)
    }

    /// The same, and fewer if that takes longer than half of the time.
    pub(super) fn cycle_for(
        &self,
        session: &mut Session<'_>,
        stage: &str,
        connections: u64,
        time: Option<Duration>,
    ) -> Result<Tally, Error> {
        let order = Order::Cycle(Cycle {
            for_ms: time.map_or(0, half_ms),
            ..Cycle::once(connections, self.sizes.lanes)
        });
        let before = Backlog::of(session);
        let harvest = session.order(stage, Some(connections), &order, |tally| tally.closed)?;
        harvest.ensure_complete()?;
        self.drain(session, before);
        go_on(session)?;
        Ok(harvest.of.tally)
    }

    /// Reads the memory once it has settled. The reading replaces an earlier one of this name.
    pub(super) fn phase(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        (name, title): (&str, &str),
        connections: u64,
    ) {
        let Some(sample) = session.settled(connections) else {
            return;
        };
        log.phases.retain(|phase| phase.name != name);
        log.phases.push(MemoryPhase {
            name: name.to_owned(),
            title: title.to_owned(),
            at_s: self.began.elapsed().as_secs_f64(),
            connections,
            processes: sample.processes,
            serving: serving::among(&pids(session), &session.spec.target, connections),
            memory: sample.memory,
            kernel: KernelMemory::now(),
        });
    }

    /// Counts the blocks in use. The census replaces an earlier one of this name.
    pub(super) fn census(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        name: &'static str,
        connections: u64,
    ) {
        if log.no_census.is_some() {
            return;
        }
        match session.census(connections) {
            Ok(snapshot) => {
                log.snapshots.retain(|(known, _)| *known != name);
                log.snapshots.push((name, snapshot));
            }
            Err(why) => log.no_census = Some(why),
        }
    }
}

/// Half of a time, in milliseconds, and at least one.
fn half_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 2).unwrap_or(0).max(1)
}

pub(super) fn pids(session: &Session<'_>) -> Vec<i32> {
    let server = session.server.as_ref();
    server
        .and_then(|server| server.tree.pids().ok())
        .unwrap_or_default()
}

fn failed_to_open(
    open: u64,
    asked: u64,
    failures: &std::collections::BTreeMap<String, u64>,
) -> Error {
    let reasons: Vec<_> = failures.keys().map(String::as_str).collect();
    Error::target(format!(
        "only {open} of {asked} connections are open: {}",
        reasons.join("; ")
    ))
}

fn speak(session: &mut Session<'_>, stage: &str, messages: u64, bytes: u64) -> Result<(), Error> {
    let order = Order::Messages(Messages {
        per_s: SPEAK_PER_S,
        messages,
        for_ms: 0,
        among: 0,
        bytes,
        name: "exchange".into(),
    });
    let harvest = session.order(stage, Some(messages), &order, |tally| tally.answers)?;
    harvest.ensure_complete()?;
    go_on(session)
}

fn go_on(session: &Session<'_>) -> Result<(), Error> {
    if session.is_over() {
        return Err(Error::lost("the load ended early"));
    }
    Ok(())
}
