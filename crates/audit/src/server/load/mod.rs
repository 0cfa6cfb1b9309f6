//! Cost of a server under load: rounds of churn, memory of idle connections, CPU time.
//!
//! Churn comes first: the held connections inflate the heap, and a leak in later rounds would disappear in its free
//! blocks. Each part records its own results, so a part that fails does not cost the figures of the others.

mod budget;
mod cpu_profile;
mod lock_waits;
mod log;
mod parallel;
mod polling;
mod steps;

use std::time::{Duration, Instant};

pub(super) use self::budget::Budget;
use self::budget::CENSUSES_HELD;
use self::log::{LoadLog, title};
use self::steps::LoadSteps;
use super::spec::{ServerSpec, Sizes};
use crate::model::{CpuFigures, Measured, MemoryFigures, MissingPart, Reference, Trials};
use dormouse_bench::load::{Expect, Launcher, Tls, TlsVersion, Traffic};
use dormouse_bench::model::{Run, Sample};
use dormouse_bench::{Churn, Console, Mode, Session, Spec};
use dormouse_census::CensusReport;
use dormouse_measure::{Blame, Error, ServerSource};

/// Load on a server, with everything that the parts need.
pub(super) struct Load<'a> {
    pub(super) spec: &'a ServerSpec,
    pub(super) launcher: &'a Launcher,
    pub(super) console: &'a mut dyn Console,
    /// The server's root process.
    pub(super) root: i32,
    pub(super) talk: Traffic,
    pub(super) sizes: Sizes,
    pub(super) budget: Budget,
    /// Whether the server's runtime collects garbage.
    pub(super) collects: bool,
    /// Versions that resume, of those tried.
    pub(super) resuming: Vec<TlsVersion>,
    pub(super) reference: Reference,
    /// Time of one handshake, if it is known.
    pub(super) handshake_took: Option<Duration>,
    pub(super) began: Instant,
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
        let mut log = LoadLog::default();
        self.sizes.lanes = self.sizes.lanes.min(self.in_flight_max());
        let end = self.parts(&mut log);
        if let Err(error) = &end {
            let resumes = !self.resuming.is_empty();
            let planned = PARTS.iter().filter(|part| resumes || **part != RESUMED);
            for part in planned {
                if !log.attempted.contains(part) {
                    log.missing(part, error);
                }
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

    /// Runs the parts one after the other. Fails only when no further part can run.
    fn parts(&mut self, log: &mut LoadLog) -> Result<(), Error> {
        let http = matches!(self.talk, Traffic::Http { .. });
        let talk = self.talk.clone();
        self.part(SPEED, &talk, log, |load, session, log| {
            load.try_out(session, log)
        })?;
        self.fit(log);
        self.part(GROWTH, &talk, log, |load, session, log| {
            load.churn(session, log)
        })?;
        self.churn_broken(log)?;
        if http {
            self.hold_http(&talk, log)?;
        } else {
            self.part(IDLE, &talk, log, |load, session, log| {
                load.hold(session, log, true)
            })?;
        }
        self.part(THROUGHPUT, &talk, log, |load, session, log| {
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
        let affords = |count| self.budget.affords(now, log.census_took, count);
        if !affords(CENSUSES_HELD) && log.no_census.is_none() {
            let s = log.census_took.as_secs_f64();
            log.no_census = Some(format!(
                "one takes {s:.1} s in so large a heap, too long for the time limit; --time raises it"
            ));
        }
        log.counts_rounds = affords(CENSUSES_HELD + self.sizes.rounds);
        let census = if log.counts_rounds {
            log.census_took
        } else {
            Duration::ZERO
        };
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
            HOLD_SHARE / 2.0,
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
        self.part(IDLE, talk, log, |load, session, log| {
            if log.silence_refused.is_some() {
                load.hold(session, log, false)?;
            }
            load.hold_requests(session, log)
        })
    }

    /// Runs rounds of connections that end during the handshake, where a census counts what they leave behind.
    fn churn_broken(&mut self, log: &mut LoadLog) -> Result<(), Error> {
        if !log.counts_rounds || log.no_census.is_some() || self.spec.starttls.is_some() {
            return Ok(());
        }
        let done = self.session(
            &no_answer(),
            Connects::WithoutTls,
            BROKEN_SHARE,
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
            REST_SHARE,
            log,
            |load, session, log| {
                of_version = Some(load.resume(session, log)?);
                if is_older {
                    load.churn_older(session, log)?;
                }
                Ok(())
            },
        );
        self.kept(RESUMED, done, log)?;
        let Some((us, of)) = of_version else {
            return Ok(());
        };
        let share = of.share();
        let us = if share > 0.9 {
            Measured::Value(us)
        } else {
            let percent = 100.0 * share;
            Measured::not(format!(
                "only {percent:.0} % of the handshakes were resumed"
            ))
        };
        log.resumed_us.insert(title(version).to_owned(), us);
        log.trials.push((version, of));
        Ok(())
    }

    /// Runs a part in a session of its own.
    fn part(
        &mut self,
        name: &'static str,
        talk: &Traffic,
        log: &mut LoadLog,
        work: impl FnOnce(&LoadSteps, &mut Session<'_>, &mut LoadLog) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let share = match name {
            SPEED => SPEED_SHARE,
            GROWTH => GROWTH_SHARE,
            _ => HOLD_SHARE,
        };
        let done = self.session(talk, Connects::Freshly, share, log, work);
        self.kept(name, done, log)
    }

    /// Records why a part is missing. The load continues after a failure that the server caused, if time is left.
    fn kept(
        &self,
        name: &'static str,
        done: Result<(), Error>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        log.attempted.push(name);
        let Err(error) = done else { return Ok(()) };
        log.missing(name, &error);
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
            server: ServerSource::Pid(self.root),
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

    /// Runs `work` in a session whose connections send `talk`. The part should use no more than a share of the remaining
    /// time.
    fn session(
        &mut self,
        talk: &Traffic,
        connects: Connects,
        share: f64,
        log: &mut LoadLog,
        work: impl FnOnce(&LoadSteps, &mut Session<'_>, &mut LoadLog) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let spec = self.spec_of(talk.clone(), connects);
        let says =
            |what: Expect| matches!(&self.talk, Traffic::Message { expect, .. } if *expect == what);
        let steps = LoadSteps {
            sizes: self.sizes,
            budget: self.budget,
            until: self.budget.deadline.share(Instant::now(), share),
            echo: says(Expect::Echo),
            silent: says(Expect::Nothing),
            in_flight_max: self.in_flight_max(),
            collects: self.collects,
            began: self.began,
        };
        let most = 4 * self.sizes.n.max(u64::from(self.sizes.lanes));
        let mut run = Run::begin("audit", &spec.label, &spec.target);
        let offset = self.began.elapsed().as_secs_f64();
        let mut session = Session::open(&spec, self.launcher, &mut *self.console, most, &mut run)?;
        if let Some(until) = self.budget.deadline.instant() {
            session.end_by(until);
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

/// Parts of the load, in order.
const PARTS: [&str; 5] = [SPEED, GROWTH, IDLE, THROUGHPUT, RESUMED];
const SPEED: &str = "speed";
/// Connections that open and close in rounds.
const GROWTH: &str = "growth";
const IDLE: &str = "idle connections";
const THROUGHPUT: &str = "throughput";
const RESUMED: &str = "resumed handshakes";
/// Share of the remaining time for each part, taken when the part begins.
const SPEED_SHARE: f64 = 0.15;
const GROWTH_SHARE: f64 = 0.45;
const HOLD_SHARE: f64 = 0.7;
const REST_SHARE: f64 = 0.5;
const BROKEN_SHARE: f64 = 0.15;

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
