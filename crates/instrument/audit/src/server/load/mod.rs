//! Cost of a server under load: rounds of churn, memory of idle connections, CPU time.
//!
//! Churn comes first: the held connections inflate the heap, and a leak in later rounds would disappear in its free
//! blocks. Each part records its own results, so a part that fails does not cost the figures of the others.

mod backlog;
mod budget;
mod cpu_profile;
mod echo;
mod figures;
mod heap_reader;
mod held;
mod lock_waits;
mod moments;
mod old_garbage;
mod parallel;
mod polling;
mod rounds;
mod running;
mod schedule;
mod serving;
mod speed;
mod survivors;
mod used;

use std::time::{Duration, Instant};

pub(super) use self::budget::Budget;
use self::budget::{CENSUSES_HELD, COLLECTIONS_HELD};
use self::figures::Outcomes;
use self::heap_reader::{Collection, HeapReader};
use self::running::{Partly, RunningPart, missing};
use self::schedule::{Part, Schedule};
use self::speed::Speed;
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
}

/// What the load has shown.
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

/// The load while it runs.
struct RunningLoad<'a> {
    load: Load<'a>,
    /// Limits, adapted to the server's speed.
    sizes: Sizes,
    heap: HeapReader,
    /// The parts to come.
    schedule: Schedule,
    /// The server's memory before the load, once it is known.
    base_bytes: Option<u64>,
    samples: Vec<Sample>,
    notes: Vec<String>,
    incomplete: Vec<MissingPart>,
}

impl<'a> Load<'a> {
    /// Makes all possible measurements.
    pub(super) fn run(self) -> LoadFigures {
        let reference = self.reference.clone();
        let mut outcomes = Outcomes {
            renews_tickets: self.renews_tickets,
            ..Outcomes::default()
        };
        let mut running = RunningLoad::begin(self);
        let end = running.parts(&mut outcomes);
        if let Err(error) = &end {
            for part in running.schedule.ahead().to_vec() {
                running.add_missing(missing(part.name(), error));
            }
        }
        LoadFigures {
            census: outcomes.census(&running.heap),
            memory: outcomes.memory(&running.heap),
            cpu: outcomes.cpu(reference),
            trials: outcomes.trials(),
            samples: running.samples,
            notes: running.notes,
            incomplete: running.incomplete,
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

    fn says(&self, what: Expect) -> bool {
        matches!(&self.talk, Traffic::Message { expect, .. } if *expect == what)
    }
}

impl<'a> RunningLoad<'a> {
    fn begin(load: Load<'a>) -> Self {
        let lanes = load.sizes.lanes;
        let in_flight_max = budget::in_flight_max(load.handshake_took, load.sizes.timeout);
        Self {
            sizes: Sizes {
                lanes: lanes.min(in_flight_max),
                ..load.sizes
            },
            heap: HeapReader {
                collects: load.collects,
                ..HeapReader::default()
            },
            schedule: Schedule::new(load.budget.deadline, load.planned()),
            base_bytes: None,
            samples: Vec::new(),
            notes: Vec::new(),
            incomplete: Vec::new(),
            load,
        }
    }

    /// Runs the parts one after the other. Fails only when no further part can run.
    fn parts(&mut self, of: &mut Outcomes) -> Result<(), Error> {
        let talk = self.load.talk.clone();
        self.part(Part::Speed, &talk, &mut of.speed, |part| {
            part.first_connections()
        })?;
        self.fit(&of.speed);
        self.part(Part::Growth, &talk, &mut of.churn, |part| part.churn())?;
        // A census counts what broken connections leave behind.
        if of.churn.growth.in_use.is_some() && self.load.spec.starttls.is_none() {
            self.churn_broken(of)?;
        }
        let served = of.speed.served_at_once;
        if self.load.is_http() {
            self.hold_http(&talk, of)?;
        } else {
            self.part(Part::Idle, &talk, &mut of.held, |part| {
                part.hold(served, true)
            })?;
        }
        let large = of.held.large.clone();
        self.part(Part::Throughput, &talk, &mut of.stream, |part| {
            part.stream(large)
        })?;
        for version in self.load.resuming.clone() {
            self.resume(version, &talk, of)?;
        }
        Ok(())
    }

    /// Adapts the numbers of connections and censuses to the server's speed and the size of its heap.
    fn fit(&mut self, speed: &Speed) {
        let (now, budget) = (Instant::now(), self.load.budget);
        let affords = |count| budget.affords_censuses(now, speed.census_took, count);
        let s = |took: Duration| took.as_secs_f64();
        if !affords(CENSUSES_HELD) && self.heap.no_census.is_none() {
            let s = s(speed.census_took);
            self.heap.no_census = Some(format!(
                "one takes {s:.1} s in so large a heap, too long for the time limit; --time raises it"
            ));
        }
        self.heap.counts_rounds = affords(CENSUSES_HELD + self.sizes.rounds);
        let collections = self.sizes.rounds + COLLECTIONS_HELD;
        if let Collection::Takes(took) = self.heap.collection
            && !budget.affords_collections(now, took, collections)
        {
            self.heap.collection = Collection::TooSlow;
            self.notes.push(format!(
                "a collection of the server's garbage takes {:.1} s, too long for the time limit; --time raises it",
                s(took)
            ));
        }
        let census = if self.heap.counts_rounds {
            speed.census_took
        } else {
            Duration::ZERO
        };
        let reading = census + self.heap.collection.took().unwrap_or_default();
        let versions = u32::try_from(self.load.resuming.len()).unwrap_or(2);
        let sizes = speed.fitted(self.sizes);
        self.sizes = budget.fit(now, sizes, (speed.each, reading), versions);
    }

    /// Holds HTTP connections first without a request and then with one. Some servers close connections without a
    /// request.
    fn hold_http(&mut self, talk: &Traffic, of: &mut Outcomes) -> Result<(), Error> {
        let served = of.speed.served_at_once;
        let hold = |part: &mut RunningPart<'_, '_>| part.hold(served, false);
        let (silent, end) = self.session(&no_answer(), Connects::Freshly, Part::Silent, hold);
        let refused = match end {
            Err(error) if error.blame != Blame::Target => {
                of.held = silent;
                return Err(error);
            }
            Err(error) => Some(error.message),
            Ok(()) => None,
        };
        let is_refused = refused.is_some();
        let done = self.part(Part::Idle, talk, &mut of.held, |part| {
            if !is_refused {
                return part.hold_requests(silent);
            }
            match hold(part) {
                (held, Ok(())) => part.hold_requests(held),
                failed => failed,
            }
        });
        of.held.silence_refused = refused;
        done
    }

    /// Runs rounds of connections that end during the handshake.
    fn churn_broken(&mut self, of: &mut Outcomes) -> Result<(), Error> {
        let each = of.speed.each;
        let work = |part: &mut RunningPart<'_, '_>| part.churn_broken(each);
        let (growth, end) = self.session(&no_answer(), Connects::WithoutTls, Part::Broken, work);
        of.broken = growth;
        // A server that blocks clients without a handshake has shown enough.
        match end {
            Err(error) if error.blame != Blame::Target => Err(error),
            _ => Ok(()),
        }
    }

    /// Measures resumed handshakes of a version. What they leave behind is measured once, and only where full ones leave
    /// memory behind, unless what survives a collection says more.
    fn resume(
        &mut self,
        version: TlsVersion,
        talk: &Traffic,
        of: &mut Outcomes,
    ) -> Result<(), Error> {
        let is_older = version == TlsVersion::V12 && self.load.resuming.contains(&TlsVersion::V13);
        let grew = of.churn.growth.grew();
        let is_collected = of
            .churn
            .collected
            .as_ref()
            .is_some_and(|rounds| rounds.by.is_some());
        let churns = grew && !is_collected && of.resumed_growth().resident.is_none();
        let churns_older = is_older && of.churn.growth.in_use.is_some() && !grew;
        let work = |part: &mut RunningPart<'_, '_>| part.resume(churns, churns_older);
        let (found, end) = self.session(talk, Connects::Resuming(version), Part::Resumed, work);
        self.keep(Part::Resumed, end)?;
        of.resumed.extend(found.0.map(|resumed| (version, resumed)));
        of.older = of.older.take().or(found.1);
        Ok(())
    }

    /// Runs a part in a session of its own, and keeps what it found, also if it ended early.
    fn part<T: Default>(
        &mut self,
        part: Part,
        talk: &Traffic,
        outcome: &mut T,
        work: impl FnOnce(&mut RunningPart<'_, '_>) -> Partly<T>,
    ) -> Result<(), Error> {
        let (found, end) = self.session(talk, Connects::Freshly, part, work);
        *outcome = found;
        self.keep(part, end)
    }

    /// Records why a part is missing. The load continues after a failure that the server caused, if time is left.
    fn keep(&mut self, part: Part, end: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = end else { return Ok(()) };
        self.add_missing(missing(part.name(), &error));
        match error.blame {
            Blame::Target if !self.load.budget.deadline.is_over(Instant::now()) => Ok(()),
            _ => Err(error),
        }
    }

    /// Records why a part is missing, once for each part.
    fn add_missing(&mut self, missing: MissingPart) {
        if self
            .incomplete
            .iter()
            .all(|known| known.part != missing.part)
        {
            self.incomplete.push(missing);
        }
    }

    fn spec_of(&self, talk: Traffic, connects: Connects) -> Spec {
        let spec = self.load.spec;
        let version = match connects {
            Connects::Resuming(version) => Some(version),
            Connects::Freshly | Connects::WithoutTls => None,
        };
        Spec {
            target: spec.target.clone(),
            label: spec.label.clone(),
            server: ServerSource::Tree(self.load.tree.clone()),
            tls: (connects != Connects::WithoutTls).then(|| Tls {
                server_name: spec.server_name.clone(),
                trust: spec.trust.clone(),
                version,
                suite: None,
                resume: version.is_some(),
                post_quantum: false,
                identity: spec.identity.clone(),
                starttls: spec.starttls,
            }),
            talk,
            sources: Vec::new(),
            timeout: self.sizes.timeout,
            own_server: spec.own_server,
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

    /// Runs the work of a part in a session whose connections send `talk`. A session that cannot be opened has found
    /// nothing.
    fn session<T: Default>(
        &mut self,
        talk: &Traffic,
        connects: Connects,
        part: Part,
        work: impl FnOnce(&mut RunningPart<'_, '_>) -> Partly<T>,
    ) -> Partly<T> {
        let spec = self.spec_of(talk.clone(), connects);
        let slot = self.schedule.begin(part, Instant::now());
        let (echoes, is_silent) = (
            self.load.says(Expect::Echo),
            self.load.says(Expect::Nothing),
        );
        let load = &mut self.load;
        let most = 4 * self.sizes.n.max(u64::from(self.sizes.lanes));
        let mut run = Run::begin("audit", &spec.label, &spec.target);
        let offset = load.began.elapsed().as_secs_f64();
        let opened = Session::open(&spec, load.launcher, &mut *load.console, most, &mut run);
        let mut session = match opened {
            Ok(session) => session,
            Err(error) => return (T::default(), Err(error)),
        };
        if let Some(end) = slot.end.instant() {
            session.end_by(end);
        }
        let now = || Some(session.now(0)?.memory.pss);
        self.base_bytes = self.base_bytes.or_else(now);
        if let Some(base) = self.base_bytes {
            let most = base.saturating_add(load.budget.memory_bytes);
            session.end_above(most, load.budget.too_large());
        }
        let mut running = RunningPart {
            session: &mut session,
            heap: &mut self.heap,
            sizes: self.sizes,
            budget: load.budget,
            slot,
            echoes,
            is_silent,
            in_flight_max: budget::in_flight_max(load.handshake_took, self.sizes.timeout),
            stall: budget::stall(load.handshake_took, self.sizes.timeout),
            began: load.began,
            missing: Vec::new(),
        };
        let (found, end) = work(&mut running);
        let missing = running.missing;
        let early = session.early_end();
        let run = session.finish();
        self.notes.extend(run.notes);
        self.samples
            .extend(run.samples.into_iter().map(|sample| Sample {
                at_s: sample.at_s + offset,
                ..sample
            }));
        missing
            .into_iter()
            .for_each(|missing| self.add_missing(missing));
        (found, early.map_or(end, Err))
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
