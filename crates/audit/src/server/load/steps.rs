//! Steps of load on a server: hold connections, open and close them, stream data, resume sessions.

use std::time::{Duration, Instant};

use super::budget::{Budget, CONNECTIONS_MIN};
use super::cpu_profile::CpuProfile;
use super::log::{LoadLog, RoundsGrowth};
use super::parallel;
use super::polling::Activity;
use crate::model::{MemoryPhase, Trials};
use crate::server::deadline::Deadline;
use crate::server::garbage::{self, ChurnRounds};
use crate::server::spec::Sizes;
use dormouse_bench::Session;
use dormouse_bench::load::{Cycle, Messages, Order, Tally};
use dormouse_census::{self as census, ManagedHeap, Snapshot};
use dormouse_measure::{CpuTime, Error, KernelMemory, Verdict};

/// Messages per second when every held connection sends one.
const SPEAK_PER_S: f64 = 3000.0;

/// A large record: 16 kB of plaintext, close to the maximum of 2^14 bytes.
const LARGE_BYTES: u64 = 16_000;

/// Connections that measure the server's speed and let it complete its one-time setup.
const FIRST: u64 = 100;

/// Minimum number of rounds for a line fit, the first round not counted.
const ROUNDS_MIN: usize = 4;

/// Time between two looks at a server that still closes connections.
const DRAIN_EVERY: Duration = Duration::from_millis(250);

/// Maximum wait for a full collection that the audit asks for, and for one that a runtime makes on its own; also limited
/// by the remaining time.
const COLLECTION_WAIT: Duration = Duration::from_secs(120);
const GARBAGE_FOR: Duration = Duration::from_secs(8);
const MOMENTS: u32 = 4;

/// Steps of load and their settings.
pub(super) struct LoadSteps {
    pub(super) sizes: Sizes,
    pub(super) budget: Budget,
    /// Time by which this part should end, to leave time for the next ones.
    pub(super) until: Deadline,
    pub(super) echo: bool,
    pub(super) silent: bool,
    /// Maximum number of concurrent handshakes while connections are opened.
    pub(super) in_flight_max: u32,
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
        let left = self.until.left(Instant::now());
        let order = Order::Cycle(Cycle {
            for_ms: left.map_or(0, |left| {
                u64::try_from(left.as_millis() / 2).unwrap_or(0).max(1)
            }),
            ..Cycle::once(FIRST, u32::try_from(alive).unwrap_or(1))
        });
        let began = Instant::now();
        let report = session.order("warming up", Some(FIRST), &order, |tally| tally.closed)?;
        let closed = report.of.tally.closed.max(1);
        log.each = began.elapsed().div_f64(closed as f64);
        report.ensure_complete()?;
        let lanes = u32::try_from(alive).unwrap_or(1);
        log.parallel = Some(parallel::measure(session, lanes, &pids(session))?);
        let began = Instant::now();
        log.no_census = census::take(&pids(session), 0).err();
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
        let Sizes { n, quiet, .. } = self.sizes;
        log.uncollected = !self.await_collection(session, log);
        self.phase(session, log, ("before", "before"), 0);
        self.census(session, log, "before", 0);
        log.managed[0] = Some(self.managed(session));
        let n = self.open_as_many(session, n)?;
        self.held(session, log, ("n", "N connections"), n);
        let grown = log.pss("n").zip(log.pss("before"));
        let grown = grown.map_or(0.0, |(at, before)| at - before);
        if self.is_late() {
            session
                .run
                .note("the time was too short to open twice as many connections");
        } else if self.budget.is_exceeded_by_twice(grown) {
            session
                .run
                .note("twice as many connections would exceed the memory limit (--memory)");
        } else if let Err(error) = self.open(session, "opening", 2 * n) {
            // The readings of the first half stay valid; all connections are closed and the first half is opened
            // again.
            go_on(session)?;
            log.missing("twice as many idle connections", &error);
            session.order("closing", None, &Order::Close, |tally| tally.closed)?;
            self.open(session, "opening", n)?;
        } else {
            self.held(session, log, ("2n", "2N connections"), 2 * n);
            self.hold_more(session, log, 4 * n)?;
        }
        let held = log.held;
        let pids = pids(session);
        if log.no_census.is_some() || log.explains_little(held) {
            log.pages = Some(census::sample_pages(&pids, held));
        }
        if exchanges && !self.silent {
            speak(session, "an exchange on each", held, 0)?;
            self.phase(session, log, ("after_exchange", "after an exchange"), held);
        }
        if exchanges && self.echo && !self.is_late() {
            speak(session, "16 kB each way", held, LARGE_BYTES)?;
            let large = ("after_large_records", "after 16 kB each way");
            self.phase(session, log, large, held);
        }
        if exchanges {
            self.quiet(session, log, quiet);
        }
        log.managed[1] = Some(self.managed(session));
        self.close(session, log)
    }

    /// Opens more connections if the server's own pools had free blocks for the first ones: only connections beyond
    /// these take blocks that a census can count.
    fn hold_more(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        count: u64,
    ) -> Result<(), Error> {
        let grown = log.pss("2n").zip(log.pss("before"));
        let grown = grown.map_or(0.0, |(at, before)| at - before);
        let has_room = !self.is_late() && !self.budget.is_exceeded_by_twice(grown);
        if !log.hides_much() || !has_room {
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

    /// The same for HTTP, where each held connection has received a response.
    pub(super) fn hold_requests(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        let held = log.held.max(1);
        self.open(session, "opening with a request", held)?;
        self.phase(session, log, ("after_exchange", "after a request"), held);
        self.quiet(session, log, self.sizes.quiet);
        log.managed[1] = Some(self.managed(session));
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
        self.phase(session, log, (name, title), count);
        log.uncollected |= !self.await_collection(session, log);
        self.census(session, log, name, count);
    }

    fn quiet(&self, session: &mut Session<'_>, log: &mut LoadLog, length: Duration) {
        let alive = log.held;
        let (began, before) = (Instant::now(), session.server_cpu());
        let activity = Activity::of(&pids(session));
        session.pause("quiet", length, alive);
        log.polling = Some(activity.polling_since());
        let spent = session.server_cpu() - before;
        let seconds = began.elapsed().as_secs_f64() * alive as f64;
        log.idle_us = Some(spent.total_ns as f64 / 1e3 / seconds.max(1e-9));
        self.phase(session, log, ("after_quiet", "after being quiet"), alive);
        log.uncollected |= !self.await_collection(session, log);
        self.census(session, log, "after_quiet", alive);
    }

    fn close(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        session.order("closing", None, &Order::Close, |tally| tally.closed)?;
        session.pause("after closing", self.sizes.after, 0);
        log.phases.retain(|phase| phase.name != "after_close");
        log.snapshots.retain(|(name, _)| *name != "after_close");
        self.phase(session, log, ("after_close", "all closed"), 0);
        self.await_collection(session, log);
        self.census(session, log, "after_close", 0);
        Ok(())
    }

    /// Runs rounds of connections that open and close.
    pub(super) fn churn(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        let (mut resident, mut in_use) = (Vec::new(), Vec::new());
        let (mut spent, mut established) = (CpuTime::default(), 0);
        let mut profile = CpuProfile::start();
        for round in 1..=self.sizes.rounds {
            let before = session.server_cpu();
            let stage = format!("round {round} of {}", self.sizes.rounds);
            let tally = self.cycle(session, &stage, self.sizes.per_round)?;
            spent += session.server_cpu() - before;
            profile.add(&pids(session));
            established += tally.established;
            log.full = Some((spent, established));
            let name = format!("round_{round}");
            self.phase(session, log, (&name, &format!("after round {round}")), 0);
            resident.extend(log.phases.last().map(|phase| phase.memory.pss));
            // A census of Go's heap before a collection shows the figures of an earlier round.
            let is_collected = self.await_collection(session, log);
            log.snapshots.retain(|(name, _)| *name != "round_last");
            // The first round includes one-time setup, so growth by block size is counted from the second round on.
            let name = if round <= 2 {
                "round_first"
            } else {
                "round_last"
            };
            log.snapshots.retain(|(known, _)| *known != name);
            if log.counts_rounds && is_collected {
                self.census(session, log, name, 0);
                in_use.extend(counted(log.snapshot(name)));
            }
            if self.is_late() && resident.len() >= ROUNDS_MIN {
                break;
            }
        }
        log.profile = Some(profile.hot_spots(&pids(session)));
        let in_use = (in_use.len() == resident.len()).then_some(&*in_use);
        log.growth = RoundsGrowth::judge(&resident, in_use, self.sizes.per_round);
        // A heap whose size fluctuates hides a leak.
        let growth = log.growth.resident.as_ref();
        let unclear = growth.is_some_and(|growth| growth.verdict != Verdict::NoGrowth);
        if self.collects && in_use.is_none() && unclear {
            let began = log
                .growth
                .grew()
                .then(|| resident.get(1).copied().unwrap_or(0));
            let mut rounds = SessionRounds {
                work: self,
                session,
            };
            log.collected = garbage::watch(&mut rounds, self.sizes.per_round, began)?;
        }
        Ok(())
    }

    /// Streams bytes over echo connections.
    pub(super) fn bulk(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        if !self.echo {
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

    /// Measures resumed handshakes; if full handshakes left memory behind, also measures whether resumed ones do.
    pub(super) fn resume(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(f64, Trials), Error> {
        let lanes = u64::from(self.sizes.lanes);
        self.cycle(session, "first handshakes", lanes)?;
        let before = session.server_cpu();
        let tally = self.cycle(session, "resuming", self.sizes.resumed)?;
        let spent = session.server_cpu() - before;
        let trials = Trials {
            offered: tally.established,
            resumed: tally.resumed,
            outcomes: Vec::new(),
        };
        if log.growth.grew() && log.growth_resumed.resident.is_none() && trials.share() > 0.9 {
            log.growth_resumed = self.rounds(session, log, ("resumed", self.sizes.per_round))?;
        }
        let us = spent.total_ns as f64 / 1e3 / tally.established.max(1) as f64;
        Ok((us, trials))
    }

    /// The rounds of churn have the newest version. Resumed connections of an older one show what that leaves behind.
    pub(super) fn churn_older(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        if log.counts_rounds && !log.growth.grew() {
            let per_round = self.sizes.per_round.min(self.sizes.resumed);
            log.growth_older = self.rounds(session, log, ("resumed", per_round))?.in_use;
        }
        Ok(())
    }

    /// Connections that end before their handshake does. The session has no TLS, and each connection sends a few bytes.
    pub(super) fn churn_broken(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        log.growth_broken = self
            .rounds(session, log, ("broken", self.sizes.per_round))?
            .in_use;
        Ok(())
    }

    /// Runs rounds of connections of another kind than those of churn and judges the growth over them.
    fn rounds(
        &self,
        session: &mut Session<'_>,
        log: &LoadLog,
        (kind, per_round): (&str, u64),
    ) -> Result<RoundsGrowth, Error> {
        let (mut resident, mut in_use) = (Vec::new(), Vec::new());
        for round in 1..=self.sizes.rounds {
            let stage = format!("{kind} round {round} of {}", self.sizes.rounds);
            self.cycle(session, &stage, per_round)?;
            resident.extend(session.settled(0).map(|sample| sample.memory.pss));
            let is_collected = self.await_collection(session, log);
            if log.counts_rounds && is_collected {
                in_use.extend(counted(census::take(&pids(session), 0).ok().as_ref()));
            }
            if self.is_late() && resident.len() >= ROUNDS_MIN {
                break;
            }
        }
        let in_use = (in_use.len() == resident.len()).then_some(&*in_use);
        Ok(RoundsGrowth::judge(&resident, in_use, per_round))
    }

    fn open(&self, session: &mut Session<'_>, stage: &str, alive: u64) -> Result<(), Error> {
        let order = Order::Open {
            alive,
            per_s: 0.0,
            in_flight_max: self.in_flight_max,
        };
        let harvest = session.order(stage, Some(alive), &order, |tally| tally.alive)?;
        harvest.ensure_complete()?;
        go_on(session)?;
        if harvest.of.tally.alive < alive {
            let open = harvest.of.tally.alive;
            return Err(failed_to_open(open, alive, &harvest.of.failures));
        }
        Ok(())
    }

    /// Opens `wanted` connections, or fewer if the server accepts no more. Returns the number of open connections.
    fn open_as_many(&self, session: &mut Session<'_>, wanted: u64) -> Result<u64, Error> {
        let Err(error) = self.open(session, "opening", wanted) else {
            return Ok(wanted);
        };
        let held = session.fleet.alive() / 2;
        if session.is_over() || held < CONNECTIONS_MIN {
            return Err(error);
        }
        session.order("closing", None, &Order::Close, |tally| tally.closed)?;
        self.open(session, "opening", held)?;
        session
            .run
            .note(format!("{}; the audit held {held}", error.message));
        Ok(held)
    }

    /// Waits while the server still closes connections of a round, until it has as many descriptors as before: clients
    /// that leave early do not wait for it, and a server with a backlog would seem to keep their memory.
    fn drain(&self, session: &mut Session<'_>, before: u64) {
        let mut open = descriptors(session);
        while open > before && !self.is_late() {
            session.pause("the server closes", DRAIN_EVERY, 0);
            let now = descriptors(session);
            if now >= open {
                break;
            }
            open = now;
        }
    }

    /// Objects of language runtimes that survive a collection.
    fn managed(&self, session: &Session<'_>) -> ManagedHeap {
        let patience = self.budget.deadline.limit(Instant::now(), COLLECTION_WAIT);
        ManagedHeap::after_collection(&pids(session), patience)
    }

    /// Whether the next parts need the remaining time.
    fn is_late(&self) -> bool {
        self.until.is_over(Instant::now())
    }

    /// Waits for a garbage collection where a census counts only objects that survive one.
    fn await_collection(&self, session: &mut Session<'_>, log: &LoadLog) -> bool {
        log.no_census.is_some() || {
            let left = self.until.left(Instant::now());
            let patience = left.map_or(GARBAGE_FOR, |left| left / MOMENTS);
            session.await_collection(log.held, patience)
                && ManagedHeap::collect_buffers(&pids(session), patience)
        }
    }

    fn cycle(
        &self,
        session: &mut Session<'_>,
        stage: &str,
        connections: u64,
    ) -> Result<Tally, Error> {
        let order = Order::Cycle(Cycle::once(connections, self.sizes.lanes));
        let before = descriptors(session);
        let harvest = session.order(stage, Some(connections), &order, |tally| tally.closed)?;
        harvest.ensure_complete()?;
        self.drain(session, before);
        go_on(session)?;
        Ok(harvest.of.tally)
    }

    fn phase(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        (name, title): (&str, &str),
        connections: u64,
    ) {
        let Some(sample) = session.settled(connections) else {
            return;
        };
        log.phases.push(MemoryPhase {
            name: name.to_owned(),
            title: title.to_owned(),
            at_s: self.began.elapsed().as_secs_f64(),
            connections,
            processes: sample.processes,
            memory: sample.memory,
            kernel: KernelMemory::now(),
        });
    }

    fn census(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        name: &'static str,
        connections: u64,
    ) {
        if log.no_census.is_some() {
            return;
        }
        match census::take(&pids(session), connections) {
            Ok(snapshot) => log.snapshots.push((name, snapshot)),
            Err(why) => log.no_census = Some(why),
        }
    }
}

/// Bytes in use, where a census counts all of them.
fn counted(snapshot: Option<&Snapshot>) -> Option<u64> {
    let snapshot = snapshot.filter(|snapshot| snapshot.unread.is_empty())?;
    Some(snapshot.used_bytes())
}

/// Rounds like those of churn, with garbage collections between them.
struct SessionRounds<'w, 's, 'a> {
    work: &'w LoadSteps,
    session: &'s mut Session<'a>,
}

impl ChurnRounds for SessionRounds<'_, '_, '_> {
    type Error = Error;

    fn round(&mut self, title: &str) -> Result<(), Error> {
        let connections = self.work.sizes.per_round;
        self.work
            .cycle(self.session, title, connections)
            .map(|_| ())
    }

    fn managed(&self) -> ManagedHeap {
        self.work.managed(self.session)
    }

    fn is_late(&self) -> bool {
        self.work.is_late()
    }

    fn in_use_bytes(&self) -> Option<u64> {
        let taken = census::take(&pids(self.session), 0).ok();
        taken.map(|taken| taken.in_use_bytes)
    }

    fn pss_bytes(&mut self) -> Option<u64> {
        Some(self.session.settled(0)?.memory.pss)
    }
}

/// Open descriptors of the server.
fn descriptors(session: &Session<'_>) -> u64 {
    let server = session.server.as_ref();
    let sample = server.and_then(|server| server.sample().ok());
    sample.map_or(0, |sample| sample.descriptors)
}

fn pids(session: &Session<'_>) -> Vec<i32> {
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
