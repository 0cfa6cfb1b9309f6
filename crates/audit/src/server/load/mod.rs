//! Cost of a server under load: memory phase by phase, rounds of churn, CPU time.

mod log;
mod steps;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::log::LoadLog;
use self::steps::LoadSteps;
use super::spec::{ServerSpec, Sizes};
use crate::census::CensusReport;
use crate::model::{CpuFigures, Measured, MemoryFigures, Reference, Trials};
use dormouse_bench::load::{Expect, Launcher, Tls, TlsVersion, Traffic};
use dormouse_bench::model::{Run, Sample};
use dormouse_bench::{Churn, Console, Mode, Session, Spec};
use dormouse_measure::{Blame, Error, ServerSource};

/// Load on a server, with everything that it needs.
pub(super) struct Load<'a> {
    pub(super) spec: &'a ServerSpec,
    pub(super) launcher: &'a Launcher,
    pub(super) console: &'a mut dyn Console,
    /// The server's first process.
    pub(super) root: i32,
    pub(super) talk: Traffic,
    pub(super) sizes: Sizes,
    /// Whether its runtime collects garbage.
    pub(super) collects: bool,
    /// Versions which resume, of those that were tried.
    pub(super) resuming: Vec<TlsVersion>,
    pub(super) reference: Reference,
    pub(super) began: Instant,
}

/// Figures of the load.
pub(super) struct LoadFigures {
    pub(super) memory: MemoryFigures,
    pub(super) census: Measured<CensusReport>,
    pub(super) cpu: CpuFigures,
    /// Connections which offered a session under load, by version.
    pub(super) trials: Vec<(TlsVersion, Trials)>,
    pub(super) samples: Vec<Sample>,
}

impl Load<'_> {
    /// Makes all measurements.
    pub(super) fn run(&mut self) -> Result<LoadFigures, Error> {
        let mut log = LoadLog::default();
        let http = matches!(self.talk, Traffic::Http { .. });
        let silent = Traffic::Message {
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
                    Measured::Value(us)
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
        Ok(LoadFigures {
            census: log.census(2 * self.sizes.n),
            memory: log.memory(self.sizes.n),
            cpu: log.cpu(resumed_us, self.reference.clone()),
            trials,
            samples: log.samples,
        })
    }

    fn spec_of(&self, talk: Traffic, version: Option<TlsVersion>, resume: bool) -> Spec {
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
                Traffic::Message {
                    expect: Expect::Echo,
                    ..
                }
            ),
            silent: matches!(
                self.talk,
                Traffic::Message {
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
}

fn title(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::V12 => "TLS 1.2",
        TlsVersion::V13 => "TLS 1.3",
    }
}
