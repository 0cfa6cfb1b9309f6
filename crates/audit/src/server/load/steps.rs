//! The steps of load on a server: connections held, opened and closed, streamed over, resumed.

use std::time::{Duration, Instant};

use super::log::LoadLog;
use crate::census::{self, ManagedHeap};
use crate::model::{MemoryPhase, Trials};
use crate::server::garbage::{self, ChurnRounds};
use crate::server::spec::Sizes;
use dormouse_bench::Session;
use dormouse_bench::load::{Cycle, Messages, Order, Tally};
use dormouse_measure::{CpuTime, Error, Growth, KernelMemory, Verdict};

/// Opened at once in a phase.
const IN_FLIGHT: u32 = 32;

/// Messages per second when all held connections speak once.
const SPEAK_PER_S: f64 = 3000.0;

/// A large record: 16 kB of plaintext, nearly the most that one holds (2^14).
const LARGE_BYTES: u64 = 16_000;

/// Steps of load, and what they need to know.
pub(super) struct LoadSteps {
    pub(super) sizes: Sizes,
    pub(super) echo: bool,
    pub(super) silent: bool,
    pub(super) collects: bool,
    pub(super) began: Instant,
}

impl LoadSteps {
    /// No, N and 2N connections, and what they do.
    pub(super) fn hold(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        exchanges: bool,
    ) -> Result<(), Error> {
        let Sizes { n, quiet, .. } = self.sizes;
        // Whatever a server sets up once is not the price of a connection.
        open(session, "warming up", n.min(100))?;
        session.order("warming up", None, &Order::Close, |tally| tally.closed)?;
        self.phase(session, log, ("before", "before"), 0);
        self.census(session, log, "before", 0);
        log.managed[0] = Some(ManagedHeap::of(&pids(session)));
        for (count, name, title) in [(n, "n", "N connections"), (2 * n, "2n", "2N connections")] {
            open(session, "opening", count)?;
            self.phase(session, log, (name, title), count);
            self.census(session, log, name, count);
        }
        let pids = pids(session);
        log.managed[1] = Some(ManagedHeap::of(&pids));
        if log.no_census.is_some() || log.explains_little(n) {
            log.pages = Some(census::sample_pages(&pids, 2 * n));
        }
        if exchanges && !self.silent {
            speak(session, "an exchange on each", 2 * n, 0)?;
            self.phase(session, log, ("after_exchange", "after an exchange"), 2 * n);
        }
        if exchanges && self.echo {
            speak(session, "16 kB each way", 2 * n, LARGE_BYTES)?;
            self.phase(
                session,
                log,
                ("after_large_records", "after 16 kB each way"),
                2 * n,
            );
        }
        if exchanges {
            self.quiet(session, log, quiet);
        }
        self.close(session, log)
    }

    /// The same for HTTP, where a held connection has had an answer.
    pub(super) fn hold_requests(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        let n = self.sizes.n;
        open(session, "opening with a request", 2 * n)?;
        self.phase(session, log, ("after_exchange", "after a request"), 2 * n);
        self.quiet(session, log, self.sizes.quiet);
        self.close(session, log)
    }

    fn quiet(&self, session: &mut Session<'_>, log: &mut LoadLog, length: Duration) {
        let alive = 2 * self.sizes.n;
        let (began, before) = (Instant::now(), session.server_cpu());
        session.pause("quiet", length, alive);
        let spent = session.server_cpu() - before;
        let seconds = began.elapsed().as_secs_f64() * alive as f64;
        log.idle_us = Some(spent.total_ns as f64 / 1e3 / seconds.max(1e-9));
        self.phase(session, log, ("after_quiet", "after being quiet"), alive);
        self.census(session, log, "after_quiet", alive);
    }

    fn close(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        session.order("closing", None, &Order::Close, |tally| tally.closed)?;
        session.pause("after closing", self.sizes.after, 0);
        log.phases.retain(|phase| phase.name != "after_close");
        log.snapshots.retain(|(name, _)| *name != "after_close");
        self.phase(session, log, ("after_close", "all closed"), 0);
        self.census(session, log, "after_close", 0);
        Ok(())
    }

    /// Rounds of connections which come and go.
    pub(super) fn churn(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        let (mut after, mut spent, mut established) = (Vec::new(), CpuTime::default(), 0);
        for round in 1..=self.sizes.rounds {
            let before = session.server_cpu();
            let stage = format!("round {round} of {}", self.sizes.rounds);
            let tally = self.cycle(session, &stage, self.sizes.per_round)?;
            spent += session.server_cpu() - before;
            established += tally.established;
            let name = format!("round_{round}");
            self.phase(session, log, (&name, &format!("after round {round}")), 0);
            after.extend(log.phases.last().map(|phase| phase.memory.pss));
            if round == 1 {
                self.census(session, log, "round_first", 0);
            }
        }
        self.census(session, log, "round_last", 0);
        log.full = Some((spent, established));
        log.growth = Some(Growth::judge(&after, self.sizes.per_round));
        // A heap that breathes hides what stays in it.
        let unclear = log.growth.as_ref();
        let unclear = unclear.is_some_and(|growth| growth.verdict != Verdict::NoGrowth);
        if self.collects && unclear {
            let began = log.grew().then(|| after.get(1).copied().unwrap_or(0));
            let mut rounds = SessionRounds {
                work: self,
                session,
            };
            log.collected = garbage::watch(&mut rounds, self.sizes.per_round, began)?;
        }
        Ok(())
    }

    /// Echoed bytes.
    pub(super) fn bulk(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        if !self.echo {
            return Ok(());
        }
        let cycle = Cycle {
            bulk_bytes: self.sizes.bulk_bytes,
            ..self.cycle_of(4, 4)
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

    /// Handshakes that resume; and when full ones left something behind, whether these do.
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
        if log.grew() && log.growth_resumed.is_none() && trials.share() > 0.9 {
            let mut after = Vec::new();
            for round in 1..=self.sizes.rounds {
                let stage = format!("resumed round {round} of {}", self.sizes.rounds);
                self.cycle(session, &stage, self.sizes.per_round)?;
                after.extend(session.settled(0).map(|sample| sample.memory.pss));
            }
            log.growth_resumed = Some(Growth::judge(&after, self.sizes.per_round));
        }
        let us = spent.total_ns as f64 / 1e3 / tally.established.max(1) as f64;
        Ok((us, trials))
    }

    fn cycle_of(&self, connections: u64, lanes: u32) -> Cycle {
        Cycle {
            connections,
            lanes,
            exchanges: 1,
            exchanges_max: 0,
            bytes_heard_max: 0,
            bulk_bytes: 0,
            for_ms: 0,
        }
    }

    fn cycle(
        &self,
        session: &mut Session<'_>,
        stage: &str,
        connections: u64,
    ) -> Result<Tally, Error> {
        let order = Order::Cycle(self.cycle_of(connections, self.sizes.lanes));
        let harvest = session.order(stage, Some(connections), &order, |tally| tally.closed)?;
        harvest.ensure_complete()?;
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

/// Rounds like those of churn, with collections of garbage between them.
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

    fn pids(&self) -> Vec<i32> {
        pids(self.session)
    }

    fn pss_bytes(&mut self) -> Option<u64> {
        Some(self.session.settled(0)?.memory.pss)
    }
}

/// The server's processes.
fn pids(session: &Session<'_>) -> Vec<i32> {
    let server = session.server.as_ref();
    server
        .and_then(|server| server.tree.pids().ok())
        .unwrap_or_default()
}

fn open(session: &mut Session<'_>, stage: &str, alive: u64) -> Result<(), Error> {
    let order = Order::Open {
        alive,
        per_s: 0.0,
        in_flight_max: IN_FLIGHT,
    };
    let harvest = session.order(stage, Some(alive), &order, |tally| tally.alive)?;
    harvest.ensure_complete()?;
    go_on(session)?;
    if harvest.of.tally.alive < alive {
        let reasons: Vec<_> = harvest.of.failures.keys().cloned().collect();
        return Err(Error::target(format!(
            "only {} of {alive} connections are open: {}",
            harvest.of.tally.alive,
            reasons.join("; ")
        )));
    }
    Ok(())
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
        return Err(Error::lost("it ended early"));
    }
    Ok(())
}
