//! What a server costs under load: memory phase by phase, rounds of churn, CPU time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::garbage::{self, ChurnRounds};
use super::spec::{ServerSpec, Sizes};
use crate::census::{self, CensusReport, ManagedHeap, PageSample, Snapshot};
use crate::model::{
    CollectedRounds, CpuFigures, GROWTH_BYTES, Measured, MemoryFigures, MemoryPhase, Reference,
    Trials,
};
use dormouse_bench::load::{
    Cycle, Expect, FleetReport, Launcher, Order, Speak, Talk, Tally, Tls, TlsVersion,
};
use dormouse_bench::model::{Run, Sample};
use dormouse_bench::{Churn, Mode, Spec};
use dormouse_bench::{Console, Session};
use dormouse_measure::ServerSource;
use dormouse_measure::{Blame, Error};
use dormouse_measure::{CpuTime, KernelMemory};
use dormouse_measure::{Growth, Verdict};

/// Opened at once in a phase.
const IN_FLIGHT: u32 = 32;
/// Messages per second when all held connections speak once.
const SPEAK_PER_S: f64 = 3000.0;
/// A large record: 16 kB of plaintext, nearly the most that one holds (2^14).
const LARGE_BYTES: u64 = 16_000;

/// What is needed to load a server.
pub(super) struct Load<'a> {
    pub(super) spec: &'a ServerSpec,
    pub(super) launcher: &'a Launcher,
    pub(super) console: &'a mut dyn Console,
    /// The server's first process.
    pub(super) root: i32,
    pub(super) talk: Talk,
    pub(super) sizes: Sizes,
    /// Whether its runtime collects garbage.
    pub(super) collects: bool,
    /// Versions which resume, of those that were tried.
    pub(super) resuming: Vec<TlsVersion>,
    pub(super) reference: Reference,
    pub(super) began: Instant,
}

/// What came of it.
pub(super) struct LoadFigures {
    pub(super) memory: MemoryFigures,
    pub(super) census: Measured<CensusReport>,
    pub(super) cpu: CpuFigures,
    /// Connections which offered a session under load, by version.
    pub(super) trials: Vec<(TlsVersion, Trials)>,
    pub(super) samples: Vec<Sample>,
}

/// What is gathered on the way.
#[derive(Default)]
struct LoadLog {
    /// Why connections cannot be held which have not asked for anything.
    silence_refused: Option<String>,
    phases: Vec<MemoryPhase>,
    snapshots: Vec<(&'static str, Snapshot)>,
    no_census: Option<String>,
    /// What runtimes told of their heaps at none and at 2N connections.
    told: [Option<ManagedHeap>; 2],
    /// A sample of pages, where malloc's heap explains little.
    pages: Option<Result<PageSample, String>>,
    samples: Vec<Sample>,
    idle_us: Option<f64>,
    per_gigabyte_s: Option<f64>,
    growth: Option<Growth>,
    growth_resumed: Option<Growth>,
    collected: Option<CollectedRounds>,
    full: Option<(CpuTime, u64)>,
}

impl LoadLog {
    fn pss(&self, name: &str) -> Option<f64> {
        let phase = self.phases.iter().find(|phase| phase.name == name)?;
        Some(phase.memory.pss as f64)
    }

    fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.snapshots
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, snapshot)| snapshot)
    }

    /// Whether it grows by so much that it is looked into.
    fn grew(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| {
            growth.verdict == Verdict::Grows && growth.bytes_per_connection() > Some(GROWTH_BYTES)
        })
    }
}

impl Load<'_> {
    /// Makes all measurements.
    pub(super) fn run(&mut self) -> Result<LoadFigures, Error> {
        let mut log = LoadLog::default();
        let http = matches!(self.talk, Talk::Http { .. });
        let silent = Talk::Say {
            message: b"-".to_vec(),
            expect: Expect::Nothing,
            greeting: false,
        };
        let first_talk = if http { silent } else { self.talk.clone() };
        let (spec, talk) = (self.spec_of(first_talk, None, false), self.talk.clone());
        let held = self.session(&spec, &mut log, |load, session, log| {
            load.hold(session, log, !http)
        });
        match held {
            Err(error) if http && error.blame == Blame::Target => {
                // To some a connection which asked nothing is one that keeps a thread waiting.
                log = LoadLog {
                    silence_refused: Some(error.message),
                    ..LoadLog::default()
                };
            }
            other => other?,
        }
        let spec = self.spec_of(talk, None, false);
        self.session(&spec, &mut log, |load, session, log| {
            if log.silence_refused.is_some() {
                load.hold(session, log, false)?;
            }
            if http {
                load.hold_requests(session, log)?;
            }
            load.churn(session, log)?;
            load.bulk(session, log)
        })?;
        let mut resumed_us = BTreeMap::new();
        let mut trials = Vec::new();
        for version in self.resuming.clone() {
            let spec = self.spec_of(self.talk.clone(), Some(version), true);
            let mut of_version = None;
            self.session(&spec, &mut log, |load, session, log| {
                of_version = Some(load.resume(session, log)?);
                Ok(())
            })?;
            if let Some((us, of)) = of_version {
                let share = of.share();
                let us = if share > 0.9 {
                    Measured::Measured(us)
                } else {
                    Measured::not(format!(
                        "only {:.0} % of the handshakes were resumed",
                        100.0 * share
                    ))
                };
                resumed_us.insert(title(version).to_owned(), us);
                trials.push((version, of));
            }
        }
        for version in [TlsVersion::V13, TlsVersion::V12] {
            let none = || Measured::not("no session was resumed");
            resumed_us
                .entry(title(version).to_owned())
                .or_insert_with(none);
        }
        Ok(self.conclude(log, resumed_us, trials))
    }

    fn spec_of(&self, talk: Talk, version: Option<TlsVersion>, resume: bool) -> Spec {
        Spec {
            target: self.spec.target.clone(),
            label: self.spec.label.clone(),
            server: ServerSource::Pid(self.root),
            tls: Some(Tls {
                server_name: self.spec.server_name.clone(),
                trust: self.spec.trust.clone(),
                version,
                resume,
                post_quantum: false,
                identity: self.spec.identity.clone(),
            }),
            talk,
            sources: Vec::new(),
            timeout: Duration::from_secs(15),
            own_server: self.spec.own_server,
            settle: self.sizes.settle,
            per_process: None,
            mode: Mode::Churn(Churn {
                connections: self.sizes.per_round,
                concurrency: self.sizes.lanes,
                rounds: self.sizes.rounds,
                exchange: true,
                after_s: 0.0,
            }),
        }
    }

    fn session(
        &mut self,
        spec: &Spec,
        log: &mut LoadLog,
        work: impl FnOnce(&LoadSteps, &mut Session<'_>, &mut LoadLog) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let parts = LoadSteps {
            sizes: self.sizes,
            echo: matches!(
                self.talk,
                Talk::Say {
                    expect: Expect::Echo,
                    ..
                }
            ),
            silent: matches!(
                self.talk,
                Talk::Say {
                    expect: Expect::Nothing,
                    ..
                }
            ),
            collects: self.collects,
            began: self.began,
        };
        let most = 2 * self.sizes.n.max(u64::from(self.sizes.lanes));
        let mut run = Run::begin("audit", &spec.label, &spec.target);
        let offset = self.began.elapsed().as_secs_f64();
        let mut session = Session::open(spec, self.launcher, &mut *self.console, most, &mut run)?;
        let done = work(&parts, &mut session, log);
        let early = session.early_end();
        let run = session.finish();
        log.samples
            .extend(run.samples.into_iter().map(|sample| Sample {
                at_s: sample.at_s + offset,
                ..sample
            }));
        early.map_or(done, Err)
    }

    fn conclude(
        &self,
        log: LoadLog,
        resumed_us: BTreeMap<String, Measured<f64>>,
        trials: Vec<(TlsVersion, Trials)>,
    ) -> LoadFigures {
        let two_n = 2.0 * self.sizes.n as f64;
        let before = log.pss("before").unwrap_or(0.0);
        let per = |name: &str, why: &str| match log.pss(name) {
            Some(pss) => Measured::Measured((pss - before) / two_n),
            None => Measured::not(why),
        };
        let silent =
            "the server does not answer what is said to it: give --http, --say or --expect";
        let not_echo = "the server does not echo, so it cannot be made to send a record of 16 kB";
        let kernel = |name: &str| {
            let phase = log.phases.iter().find(|phase| phase.name == name)?;
            phase.kernel.slab_bytes
        };
        let kernel_bytes = match (kernel("before"), kernel("2n")) {
            (Some(before), Some(at)) if at > before => {
                Measured::Measured((at - before) as f64 / two_n)
            }
            (Some(_), Some(_)) => Measured::not(
                "others closed sockets meanwhile: the kernel counts for the whole machine",
            ),
            _ => Measured::not("/proc/slabinfo may only be read by root"),
        };
        let full = log.full.unwrap_or_default();
        let us = |ns: u64| ns as f64 / 1e3 / full.1.max(1) as f64;
        let memory = MemoryFigures {
            after_handshake_bytes: match &log.silence_refused {
                Some(why) => Measured::not(format!("connections without a request: {why}")),
                None => per("2n", "the load did not come so far"),
            },
            after_exchange_bytes: per("after_exchange", silent),
            after_large_records_bytes: per("after_large_records", not_echo),
            after_quiet_bytes: per("after_quiet", "the connections were not held"),
            kernel_bytes,
            left_bytes: log.pss("after_close").unwrap_or(before) - before,
            growth: log
                .growth
                .clone()
                .map_or_else(|| Measured::not("there were no rounds"), Measured::Measured),
            growth_resumed: match &log.growth_resumed {
                Some(growth) => Measured::Measured(growth.clone()),
                None => {
                    Measured::not("full handshakes leave nothing behind, or no session was resumed")
                }
            },
            growth_collected: match &log.collected {
                Some(collected) => Measured::Measured(collected.clone()),
                None => Measured::not("nothing grows, or there is no collector of garbage in it"),
            },
            phases: log.phases.clone(),
        };
        let cpu = CpuFigures {
            full_us: us(full.0.total_ns),
            full_system_us: us(full.0.system_ns),
            resumed_us,
            reference: self.reference.clone(),
            per_gigabyte_s: log
                .per_gigabyte_s
                .map_or_else(|| Measured::not(not_echo), Measured::Measured),
            idle_us_per_connection_s: log.idle_us.map_or_else(
                || Measured::not("the connections were not held"),
                Measured::Measured,
            ),
        };
        LoadFigures {
            census: census_of(&log, 2 * self.sizes.n),
            memory,
            cpu,
            trials,
            samples: log.samples,
        }
    }
}

fn title(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::V12 => "TLS 1.2",
        TlsVersion::V13 => "TLS 1.3",
    }
}

fn census_of(log: &LoadLog, connections: u64) -> Measured<CensusReport> {
    // What a connection keeps is what it still has after an exchange and a while of quiet.
    let last = log.snapshot("after_quiet").or_else(|| log.snapshot("2n"));
    let (Some(none), Some(n), Some(two_n)) = (log.snapshot("before"), log.snapshot("n"), last)
    else {
        return match (&log.pages, &log.no_census) {
            (Some(_), Some(why)) => {
                let mut report = census::without_malloc(why);
                add_told(&mut report, log, connections);
                Measured::Measured(report)
            }
            (None, Some(why)) => Measured::not(why.clone()),
            (_, None) => Measured::not("the load did not come so far"),
        };
    };
    let later: Vec<_> = log
        .snapshots
        .iter()
        .filter(|(name, _)| !["before", "n", "after_quiet"].contains(name))
        .map(|(name, snapshot)| (*name, snapshot))
        .collect();
    let mut report = census::compare(none, n, two_n, &later);
    if let (Some(first), Some(last)) = (log.snapshot("round_first"), log.snapshot("round_last")) {
        report.grown = census::grown(first, last);
    }
    add_told(&mut report, log, connections);
    Measured::Measured(report)
}

/// Adds what is known of memory that is not malloc's.
fn add_told(report: &mut CensusReport, log: &LoadLog, connections: u64) {
    if let [Some(none), Some(two_n)] = &log.told {
        census::add_classes(report, none, two_n, connections);
    }
    if let Some(sample) = &log.pages {
        census::add_pages(report, sample.clone());
    }
}

/// What the steps need to know.
struct LoadSteps {
    sizes: Sizes,
    echo: bool,
    silent: bool,
    collects: bool,
    began: Instant,
}

impl LoadSteps {
    /// No, N and 2N connections, and what they do.
    fn hold(
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
        log.told[0] = Some(census::ask(&pids(session)));
        for (count, name, title) in [(n, "n", "N connections"), (2 * n, "2n", "2N connections")] {
            open(session, "opening", count)?;
            self.phase(session, log, (name, title), count);
            self.census(session, log, name, count);
        }
        let pids = pids(session);
        log.told[1] = Some(census::ask(&pids));
        if log.no_census.is_some() || explains_little(log, n) {
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
    fn hold_requests(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
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

    /// ChurnRounds of connections which come and go.
    fn churn(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
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
    fn bulk(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
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
        whole(&harvest)?;
        let spent = session.server_cpu() - before;
        let heard = harvest.of.tally.bytes_heard;
        log.per_gigabyte_s = (heard > 0).then(|| spent.total_ns as f64 / heard as f64);
        Ok(())
    }

    /// Handshakes that resume; and when full ones left something behind, whether these do.
    fn resume(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(f64, Trials), Error> {
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
        whole(&harvest)?;
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

/// ChurnRounds like those of churn, with collections of garbage between them.
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

/// Whether most of what connections cost is not in malloc's heap.
fn explains_little(log: &LoadLog, n: u64) -> bool {
    let (Some(before), Some(at)) = (log.pss("before"), log.pss("2n")) else {
        return false;
    };
    let (Some(none), Some(two_n)) = (log.snapshot("before"), log.snapshot("2n")) else {
        return false;
    };
    let heap = two_n.in_use_bytes.saturating_sub(none.in_use_bytes) as f64;
    let grown = at - before;
    grown / (2 * n) as f64 > 2048.0 && heap < grown / 2.0
}

fn open(session: &mut Session<'_>, stage: &str, alive: u64) -> Result<(), Error> {
    let order = Order::Open {
        alive,
        per_s: 0.0,
        in_flight_max: IN_FLIGHT,
    };
    let harvest = session.order(stage, Some(alive), &order, |tally| tally.alive)?;
    whole(&harvest)?;
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
    let order = Order::Speak(Speak {
        per_s: SPEAK_PER_S,
        messages,
        for_ms: 0,
        among: 0,
        bytes,
        name: "exchange".into(),
    });
    let harvest = session.order(stage, Some(messages), &order, |tally| tally.answers)?;
    whole(&harvest)?;
    go_on(session)
}

fn whole(harvest: &FleetReport) -> Result<(), Error> {
    match &harvest.of.gave_up {
        None => Ok(()),
        Some(why) => {
            let reason = harvest.of.failures.keys().next();
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            Err(Error::target(format!("{why}{reason}")))
        }
    }
}

fn go_on(session: &Session<'_>) -> Result<(), Error> {
    if session.is_over() {
        return Err(Error::lost("it ended early"));
    }
    Ok(())
}
