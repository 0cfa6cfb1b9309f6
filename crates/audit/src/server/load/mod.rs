//! Cost of a server under load: rounds of churn, memory of idle connections, CPU time.
//!
//! Churn comes first: the held connections inflate the heap, and a leak in later rounds would disappear in its free
//! blocks. Each part records its own results, so a part that fails does not cost the figures of the others.

mod backlog;
mod budget;
mod cpu_profile;
mod held;
mod lock_waits;
mod log;
mod old_garbage;
mod parallel;
mod polling;
mod rounds;
mod schedule;
mod serving;
mod steps;
mod survivors;

use std::time::{Duration, Instant};

pub(super) use self::budget::Budget;
use self::budget::{CENSUSES_HELD, COLLECTIONS_HELD};
use self::log::LoadLog;
use self::schedule::Part;
pub(super) use self::schedule::Schedule;
use self::steps::LoadSteps;
use super::spec::{ServerSpec, Sizes};
use crate::model::{CpuFigures, Measured, MemoryFigures, MissingPart, Reference, Trials};
use dormouse_bench::load::{Expect, Launcher, Tls, TlsVersion, Traffic};
use dormouse_bench::model::{Run, Sample};
use dormouse_bench::{Churn, Console, Mode, Session, Spec};
use dormouse_census::CensusReport;
use dormouse_measure::{Blame, Error, ProcessTree, ServerSource};

/// Load on a server, with everything that the parts need.
pub(super) struct Load<'a> {
    pub(super) spec: &'a ServerSpec,
    pub(super) launcher: &'a Launcher,
    pub(super) console: &'a mut dyn Console,
    /// The server's processes.
    pub(super) tree: ProcessTree,
    pub(super) talk: Traffic,
    pub(super) sizes: Sizes,
    pub(super) budget: Budget,
    /// Whether the server's runtime collects garbage.
    pub(super) collects: bool,
    /// Versions that resume, of those tried.
    pub(super) resuming: Vec<TlsVersion>,
    /// Whether resumed connections of TLS 1.3 get new tickets, as far as is known.
    pub(super) renews_tickets: bool,
    pub(super) reference: Reference,
    /// Time of one handshake, if it is known.
    pub(super) handshake_took: Option<Duration>,
    pub(super) began: Instant,
    /// The server's memory before the load, once it is known.
    pub(super) base_bytes: Option<u64>,
    /// The parts to come, once the load runs.
    pub(super) schedule: Schedule,
}

pub(super) struct LoadFigures {
    pub(super) memory: Measured<MemoryFigures>,
    pub(super) census: Measured<CensusReport>,
    pub(super) cpu: Measured<CpuFigures>,
    /// Connections that offered a session under load, by version.
    pub(super) trials: Vec<(TlsVersion, Trials)>,
    pub(super) samples: Vec<Sample>,
    pub(super) notes: Vec<String>,
    pub(super) incomplete: Vec<MissingPart>,
    /// Why the load ended early: nothing else can be tried with this server after such an error.
    pub(super) end: Result<(), Error>,
}

impl Load<'_> {
    /// Makes all possible measurements.
    pub(super) fn run(mut self) -> LoadFigures {
        let mut log = LoadLog {
            collects: self.collects,
            ..LoadLog::default()
        };
        self.sizes.lanes = self.sizes.lanes.min(self.in_flight_max());
        self.schedule = Schedule::new(self.budget.deadline, self.planned());
        let end = self.parts(&mut log);
        if let Err(error) = &end {
            for part in self.schedule.ahead() {
                log.missing(part.name(), error);
            }
        }
        LoadFigures {
            census: log.census(),
            memory: log.memory(),
            cpu: log.cpu(self.reference),
            trials: log.trials,
            samples: log.samples,
            notes: log.notes,
            incomplete: log.incomplete,
            end,
        }
    }

    /// All parts, in order.
    fn planned(&self) -> Vec<Part> {
        let mut parts = vec![Part::Speed, Part::Growth];
        parts.extend(self.spec.starttls.is_none().then_some(Part::Broken));
        parts.extend(self.is_http().then_some(Part::Silent));
        parts.extend([Part::Idle, Part::Throughput]);
        parts.extend(self.resuming.iter().map(|_| Part::Resumed));
        parts
    }

    fn is_http(&self) -> bool {
        matches!(self.talk, Traffic::Http { .. })
    }

    /// Runs the parts one after the other. Fails only when no further part can run.
    fn parts(&mut self, log: &mut LoadLog) -> Result<(), Error> {
        let talk = self.talk.clone();
        self.part(Part::Speed, &talk, log, |load, session, log| {
            load.try_out(session, log)
        })?;
        self.fit(log);
        self.part(Part::Growth, &talk, log, |load, session, log| {
            load.churn(session, log)
        })?;
        self.churn_broken(log)?;
        if self.is_http() {
            self.hold_http(&talk, log)?;
        } else {
            self.part(Part::Idle, &talk, log, |load, session, log| {
                load.hold(session, log, true)
            })?;
        }
        self.part(Part::Throughput, &talk, log, |load, session, log| {
            load.bulk(session, log)
        })?;
        for version in self.resuming.clone() {
            self.resume(version, log)?;
        }
        Ok(())
    }

    /// Adapts the numbers of connections and censuses to the server's speed and the size of its heap.
    fn fit(&mut self, log: &mut LoadLog) {
        let now = Instant::now();
        let affords = |count| self.budget.affords_censuses(now, log.census_took, count);
        let collections = self.sizes.rounds + COLLECTIONS_HELD;
        let affords_of = |took| self.budget.affords_collections(now, took, collections);
        if !affords(CENSUSES_HELD) && log.no_census.is_none() {
            let s = log.census_took.as_secs_f64();
            log.no_census = Some(format!(
                "one takes {s:.1} s in so large a heap, too long for the time limit; --time raises it"
            ));
        }
        log.counts_rounds = affords(CENSUSES_HELD + self.sizes.rounds);
        if let Some(took) = log.collection_took
            && !affords_of(took)
        {
            log.collects_too_slowly = true;
            log.collection_took = None;
            log.notes.push(format!(
                "a collection of the server's garbage takes {:.1} s, too long for the time limit; --time raises it",
                took.as_secs_f64()
            ));
        }
        let census = log.counts_rounds.then_some(log.census_took);
        let census = census.unwrap_or_default() + log.collection_took.unwrap_or_default();
        let versions = u32::try_from(self.resuming.len()).unwrap_or(2);
        let sizes = log.fitted(self.sizes);
        self.sizes = self.budget.fit(now, sizes, (log.each, census), versions);
        log.sizes = Some(self.sizes);
    }

    /// Holds HTTP connections first without a request and then with one. Some servers close connections without a
    /// request.
    fn hold_http(&mut self, talk: &Traffic, log: &mut LoadLog) -> Result<(), Error> {
        let held = self.session(
            &no_answer(),
            Connects::Freshly,
            Part::Silent,
            log,
            |load, session, log| load.hold(session, log, false),
        );
        if let Err(error) = held {
            if error.blame != Blame::Target {
                return Err(error);
            }
            log.forget_held();
            log.silence_refused = Some(error.message);
        }
        self.part(Part::Idle, talk, log, |load, session, log| {
            if log.silence_refused.is_some() {
                load.hold(session, log, false)?;
            }
            load.hold_requests(session, log)
        })
    }

    /// Runs rounds of connections that end during the handshake, where a census counts what they leave behind.
    fn churn_broken(&mut self, log: &mut LoadLog) -> Result<(), Error> {
        if !log.counts_growth() || self.spec.starttls.is_some() {
            return Ok(());
        }
        let done = self.session(
            &no_answer(),
            Connects::WithoutTls,
            Part::Broken,
            log,
            |load, session, log| load.churn_broken(session, log),
        );
        // A server that blocks clients without a handshake has shown enough.
        match done {
            Err(error) if error.blame != Blame::Target => Err(error),
            _ => Ok(()),
        }
    }

    fn resume(&mut self, version: TlsVersion, log: &mut LoadLog) -> Result<(), Error> {
        let is_older = version == TlsVersion::V12 && self.resuming.contains(&TlsVersion::V13);
        let mut of_version = None;
        let talk = self.talk.clone();
        let done = self.session(
            &talk,
            Connects::Resuming(version),
            Part::Resumed,
            log,
            |load, session, log| {
                of_version = Some(load.resume(session, log)?);
                if is_older {
                    load.churn_older(session, log)?;
                }
                Ok(())
            },
        );
        self.kept(Part::Resumed, done, log)?;
        let Some((us, of)) = of_version else {
            return Ok(());
        };
        let share = of.share();
        let us = if share > 0.9 {
            Measured::Value(us)
        } else {
            let percent = 100.0 * share;
            let why = if version == TlsVersion::V13 && !self.renews_tickets {
                ": the server sends no ticket with a resumed handshake, and a client offers each ticket once"
            } else {
                ""
            };
            Measured::not(format!(
                "only {percent:.0} % of the handshakes were resumed{why}"
            ))
        };
        log.resumed_us.insert(version.name().to_owned(), us);
        log.trials.push((version, of));
        Ok(())
    }

    /// Runs a part in a session of its own.
    fn part(
        &mut self,
        part: Part,
        talk: &Traffic,
        log: &mut LoadLog,
        work: impl FnOnce(&LoadSteps, &mut Session<'_>, &mut LoadLog) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let done = self.session(talk, Connects::Freshly, part, log, work);
        self.kept(part, done, log)
    }

    /// Records why a part is missing. The load continues after a failure that the server caused, if time is left.
    fn kept(&self, part: Part, done: Result<(), Error>, log: &mut LoadLog) -> Result<(), Error> {
        let Err(error) = done else { return Ok(()) };
        log.missing(part.name(), &error);
        match error.blame {
            Blame::Target if !self.budget.deadline.is_over(Instant::now()) => Ok(()),
            _ => Err(error),
        }
    }

    fn in_flight_max(&self) -> u32 {
        budget::in_flight_max(self.handshake_took, self.sizes.timeout)
    }

    fn spec_of(&self, talk: Traffic, connects: Connects) -> Spec {
        let resumes = match connects {
            Connects::Resuming(version) => Some(version),
            _ => None,
        };
        Spec {
            target: self.spec.target.clone(),
            label: self.spec.label.clone(),
            server: ServerSource::Tree(self.tree.clone()),
            tls: (connects != Connects::WithoutTls).then(|| Tls {
                server_name: self.spec.server_name.clone(),
                trust: self.spec.trust.clone(),
                version: resumes,
                resume: resumes.is_some(),
                post_quantum: false,
                identity: self.spec.identity.clone(),
                starttls: self.spec.starttls,
            }),
            talk,
            sources: Vec::new(),
            timeout: self.sizes.timeout,
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

    /// Runs the work of a part in a session whose connections send `talk`.
    fn session(
        &mut self,
        talk: &Traffic,
        connects: Connects,
        part: Part,
        log: &mut LoadLog,
        work: impl FnOnce(&LoadSteps, &mut Session<'_>, &mut LoadLog) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let spec = self.spec_of(talk.clone(), connects);
        let says =
            |what: Expect| matches!(&self.talk, Traffic::Message { expect, .. } if *expect == what);
        let steps = LoadSteps {
            sizes: self.sizes,
            budget: self.budget,
            slot: self.schedule.begin(part, Instant::now()),
            echo: says(Expect::Echo),
            silent: says(Expect::Nothing),
            in_flight_max: self.in_flight_max(),
            stall: budget::stall(self.handshake_took, self.sizes.timeout),
            collects: self.collects,
            began: self.began,
        };
        let most = 4 * self.sizes.n.max(u64::from(self.sizes.lanes));
        let mut run = Run::begin("audit", &spec.label, &spec.target);
        let offset = self.began.elapsed().as_secs_f64();
        let mut session = Session::open(&spec, self.launcher, &mut *self.console, most, &mut run)?;
        if let Some(end) = steps.slot.end.instant() {
            session.end_by(end);
        }
        let now = || Some(session.now(0)?.memory.pss);
        self.base_bytes = self.base_bytes.or_else(now);
        if let Some(base) = self.base_bytes {
            let most = base.saturating_add(self.budget.memory_bytes);
            session.end_above(most, self.budget.too_large());
        }
        let done = work(&steps, &mut session, log);
        let early = session.early_end();
        let run = session.finish();
        log.notes.extend(run.notes);
        log.samples
            .extend(run.samples.into_iter().map(|sample| Sample {
                at_s: sample.at_s + offset,
                ..sample
            }));
        early.map_or(done, Err)
    }
}

/// How the connections of a session begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connects {
    /// With a full handshake.
    Freshly,
    /// With a session, in this version.
    Resuming(TlsVersion),
    /// Without TLS.
    WithoutTls,
}

/// A few bytes to which no answer is awaited.
fn no_answer() -> Traffic {
    Traffic::Message {
        message: b"-".to_vec(),
        expect: Expect::Nothing,
        greeting: false,
    }
}
