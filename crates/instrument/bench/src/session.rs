//! One run from start to end: the server, the fleet, the clock, the samples.

use std::time::{Duration, Instant};

use dormouse_reactor::socket::Addr;

use crate::load::{
    Cycle, Fleet, FleetReport, Launcher, Order, Plan, Setup, Tally, Traffic, refuse_foreign_load,
};
use crate::model::{Run, Sample};
use crate::spec::Spec;
use dormouse_measure::Error;
use dormouse_measure::Interrupts;
use dormouse_measure::Latencies;
use dormouse_measure::{
    CpuTime, KernelMemory, ProcessTree, Server, ServerSource, TreeSample, parent_of_same_name,
};

/// Shortest time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Reading a large tree takes time and disturbs it: at most a fiftieth of the run.
const SAMPLE_SHARE: u32 = 50;
/// Maximum number of samples; above it, every second one is dropped.
const SAMPLES_MAX: usize = 2000;

/// Observer of a run.
pub trait Console {
    /// A remark before the run begins.
    fn note(&mut self, _text: &str) {}
    /// A part of the run begins; `total` is the final count, if it is known.
    fn stage(&mut self, name: &str, total: Option<u64>);
    /// Progress of the part; called ten times a second.
    fn progress(&mut self, at: &Progress);
    /// The part has ended.
    fn stage_over(&mut self);
}

/// The side of a connection that a run measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeasuredSide {
    /// A server's memory.
    Server,
    /// A client's.
    Client,
    /// Nothing: the part only waits.
    Neither,
}

/// Progress of a part of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Count so far.
    pub done: u64,
    /// Final count, if it is known.
    pub total: Option<u64>,
    /// Connections that are established.
    pub alive: u64,
    /// Connections that failed or were lost.
    pub failed: u64,
    /// What is measured: a server, whose connections are counted in `alive`, a client, whose are in
    /// `done`, or nothing.
    pub whose: MeasuredSide,
    /// Its proportional set in bytes, as last sampled.
    pub pss_bytes: Option<u64>,
    /// Time since the part began.
    pub elapsed: Duration,
    /// Estimated time left, by the rate so far.
    pub left: Option<Duration>,
}

/// A run in progress.
pub struct Session<'a> {
    /// Specification of the run.
    pub spec: &'a Spec,
    /// The record of the run so far.
    pub run: Run,
    /// The load generators.
    pub fleet: Fleet,
    /// The server, if it is measured.
    pub server: Option<Server>,
    /// Established connections that ended early.
    pub lost: u64,
    /// Connections that were started.
    pub begun: u64,
    beside: SideLoad<'a>,
    watch: RunMonitor<'a>,
}

/// A generator for connections that come and go while others are held.
struct SideLoad<'a> {
    launcher: &'a Launcher,
    setup: Setup,
    fleet: Option<Fleet>,
}

/// Signals, samples and progress while load runs.
struct RunMonitor<'a> {
    console: &'a mut dyn Console,
    interrupts: Interrupts,
    interrupted: bool,
    /// When the run has to end, and whether it did.
    deadline: Option<Instant>,
    late: bool,
    /// Memory above which the run has to end, with this error, and whether it did.
    memory_max: Option<(u64, Error)>,
    too_large: bool,
    began: Instant,
    next_sample: Instant,
    samples: Vec<Sample>,
    server_died: Option<Error>,
}

impl<'a> Session<'a> {
    /// Starts the server and the fleet, and tries one connection.
    pub fn open(
        spec: &'a Spec,
        launcher: &'a Launcher,
        console: &'a mut dyn Console,
        connections: u64,
        run: &mut Run,
    ) -> Result<Self, Error> {
        let target = address(&spec.target)?;
        if !spec.own_server {
            let http = matches!(spec.talk, Traffic::Http { .. });
            refuse_foreign_load(spec.mode.connections_in_all(http), &target)?;
        }
        let plan = Plan::new(
            connections,
            &target,
            &spec.sources,
            spec.per_process,
            spec.own_server,
        )?;
        for note in &plan.notes {
            console.note(note);
            run.note(note);
        }
        let mut watch = RunMonitor::begin(console);
        watch.console.stage("starting", None);
        let mut server = Server::open(&spec.server, &target, &mut || !watch.check_interrupt())?;
        let setup = Setup {
            target: spec.target.clone(),
            tls: spec.tls.clone(),
            talk: spec.talk.clone(),
            connections_max: plan.connections_each,
            sources: spec.sources.clone(),
            timeout_ms: u64::try_from(spec.timeout.as_millis()).unwrap_or(u64::MAX),
            index: 0,
        };
        // Before the first sample: generators may share pages of program text with the server, and
        // starting them later would change its proportional set.
        let fleet = Fleet::start(launcher, &setup, &plan, &target)?;
        if let Some(server) = &mut server {
            fleet.pids().for_each(|pid| server.tree.exclude(pid));
            run.server = server.tree.describe()?;
            let few = too_few_descriptors(&server.tree, connections);
            for note in misnamed(&spec.server).into_iter().chain(few) {
                watch.console.note(&note);
                run.note(note);
            }
        } else {
            run.note("the server's memory and CPU time were not measured: give --pid or --cmd");
        }
        watch.console.stage_over();
        Ok(Self {
            spec,
            run: run.clone(),
            fleet,
            server,
            lost: 0,
            begun: 0,
            beside: SideLoad {
                launcher,
                setup,
                fleet: None,
            },
            watch,
        })
    }

    /// Returns whether the run has to end early.
    pub fn is_over(&self) -> bool {
        self.watch.is_over()
    }

    /// Ends the run early at this time.
    pub fn end_by(&mut self, deadline: Instant) {
        self.watch.deadline = Some(deadline);
    }

    /// Ends the run early, with this error, when the server takes more memory (PSS) than this.
    pub fn end_above(&mut self, bytes: u64, error: Error) {
        self.watch.memory_max = Some((bytes, error));
    }

    /// Returns why the run ended early.
    pub fn early_end(&mut self) -> Option<Error> {
        self.watch.early_end()
    }

    /// Carries out an order, with progress; counts failures.
    pub fn order(
        &mut self,
        stage: &str,
        total: Option<u64>,
        order: &Order,
        count: fn(&Tally) -> u64,
    ) -> Result<FleetReport, Error> {
        if self.is_over() && *order != Order::Close {
            return Ok(self.nothing());
        }
        self.carry_out(stage, total, order, count, &mut |_| true)
    }

    /// Opens connections and keeps them until `alive` are established, at most `in_flight_max` at a time. Ends early if
    /// some are established and no further one was for `patience`: a server at its limit may leave the others unanswered.
    ///
    /// # Errors
    /// When a generator fails.
    pub fn hold(
        &mut self,
        stage: &str,
        (alive, in_flight_max): (u64, u32),
        patience: Duration,
    ) -> Result<FleetReport, Error> {
        let order = Order::Open {
            alive,
            per_s: 0.0,
            in_flight_max,
        };
        if self.is_over() {
            return Ok(self.nothing());
        }
        let (mut most, mut since) = (0, Instant::now());
        let mut is_stalled = false;
        let mut harvest = self.carry_out(
            stage,
            Some(alive),
            &order,
            |tally| tally.alive,
            &mut |tally| {
                if tally.alive > most {
                    (most, since) = (tally.alive, Instant::now());
                }
                is_stalled |= most > 0 && since.elapsed() > patience;
                !is_stalled
            },
        )?;
        let open = harvest.of.tally.alive;
        if is_stalled && open < alive {
            let why = format!(
                "{open} of {alive} connections are open, and no further one opened for {:.0} s",
                patience.as_secs_f64()
            );
            harvest.of.gave_up.get_or_insert(why);
        }
        Ok(harvest)
    }

    /// The report of an order that is not carried out, because the run is over.
    fn nothing(&self) -> FleetReport {
        let mut nothing = FleetReport::default();
        nothing.of.tally.alive = self.fleet.alive();
        nothing
    }

    /// Carries out an order while `goes_on`.
    fn carry_out(
        &mut self,
        stage: &str,
        total: Option<u64>,
        order: &Order,
        count: fn(&Tally) -> u64,
        goes_on: &mut dyn FnMut(&Tally) -> bool,
    ) -> Result<FleetReport, Error> {
        self.watch.console.stage(stage, total);
        let began = Instant::now();
        let patience = self.spec.timeout + Duration::from_secs(5);
        let (watch, server) = (&mut self.watch, &self.server);
        let closing = *order == Order::Close;
        let mut first = None;
        let harvest = self.fleet.carry_out(order, patience, &mut |tally| {
            let done = count(tally);
            // The rate of an earlier order does not predict this one.
            let from = *first.get_or_insert(done);
            watch.tick(server.as_ref(), tally, total, (from, done), began);
            closing || (!watch.is_over() && goes_on(tally))
        });
        self.watch.console.stage_over();
        let harvest = harvest?;
        self.lost += harvest.of.tally.lost;
        self.begun += harvest.of.tally.begun;
        for (reason, count) in &harvest.of.failures {
            *self.run.failures.entry(reason.clone()).or_default() += count;
        }
        Ok(harvest)
    }

    /// Opens and closes connections beside those that are held, `lanes` at a time.
    ///
    /// # Errors
    /// When its generator fails, or the server refuses a hundred connections in a row.
    pub(crate) fn cycle_beside(&mut self, connections: u64, lanes: u32) -> Result<Tally, Error> {
        let mut fleet = match self.beside.fleet.take() {
            Some(fleet) => fleet,
            None => self.start_beside(lanes)?,
        };
        let order = Order::Cycle(Cycle::once(connections, lanes));
        let patience = self.spec.timeout + Duration::from_secs(5);
        let (watch, server, began) = (&mut self.watch, &self.server, Instant::now());
        let report = fleet.carry_out(&order, patience, &mut |tally| {
            watch.tick(
                server.as_ref(),
                tally,
                Some(connections),
                (0, tally.closed),
                began,
            );
            !watch.is_over()
        })?;
        self.beside.fleet = Some(fleet);
        self.begun += report.of.tally.begun;
        report.ensure_complete()?;
        Ok(report.of.tally)
    }

    fn start_beside(&mut self, lanes: u32) -> Result<Fleet, Error> {
        let SideLoad {
            launcher, setup, ..
        } = &self.beside;
        let target = address(&setup.target)?;
        let plan = Plan {
            generators: 1,
            connections_each: lanes,
            notes: Vec::new(),
        };
        let fleet = Fleet::start(launcher, setup, &plan, &target)?;
        if let Some(server) = &mut self.server {
            fleet.pids().for_each(|pid| server.tree.exclude(pid));
        }
        Ok(fleet)
    }

    /// Waits for a time, and takes samples.
    pub fn pause(&mut self, stage: &str, length: Duration, alive: u64) {
        if self.is_over() || length.is_zero() {
            return;
        }
        let total = length.as_secs();
        self.watch.console.stage(stage, None);
        let began = Instant::now();
        while began.elapsed() < length && !self.is_over() {
            std::thread::sleep(
                Duration::from_millis(50).min(length.saturating_sub(began.elapsed())),
            );
            let done = began.elapsed().as_secs();
            let tally = Tally {
                alive,
                ..Tally::default()
            };
            self.watch
                .tick(self.server.as_ref(), &tally, Some(total), (0, done), began);
        }
        self.watch.console.stage_over();
    }

    /// Reads the server now, exactly once, after a wait.
    pub fn settled(&mut self, alive: u64) -> Option<TreeSample> {
        self.pause("settling", self.spec.settle, alive);
        self.now(alive)
    }

    /// Reads the server now.
    pub fn now(&mut self, alive: u64) -> Option<TreeSample> {
        self.watch.sample(self.server.as_ref(), alive)
    }

    /// Returns the server's CPU time; zero if it is not measured.
    pub fn server_cpu(&mut self) -> CpuTime {
        let sample = self.server.as_ref().and_then(|server| server.sample().ok());
        sample.map_or_else(CpuTime::default, |sample| sample.cpu)
    }

    /// Returns the kernel's memory, machine-wide.
    pub fn kernel() -> KernelMemory {
        KernelMemory::now()
    }

    /// Puts distributions into the run.
    pub(crate) fn keep_latencies(
        &mut self,
        latencies: &std::collections::BTreeMap<String, Latencies>,
    ) {
        for (name, of) in latencies {
            if let Some(summary) = of.summary() {
                self.run.latencies.insert(name.clone(), summary);
            }
        }
    }

    /// Ends the session. Returns the run with its samples.
    pub fn finish(mut self) -> Run {
        self.run.samples = std::mem::take(&mut self.watch.samples);
        self.run
    }
}

fn address(target: &str) -> Result<Addr, Error> {
    let address = target.parse();
    address.map_err(|error| Error::usage(format!("{error}")))
}

/// Notes that `--pid` names one process of a server instead of its first one.
fn misnamed(server: &ServerSource) -> Option<String> {
    match server {
        ServerSource::Pid(pid) => parent_of_same_name(*pid),
        ServerSource::Unknown | ServerSource::Tree(_) | ServerSource::Command(_) => None,
    }
}

/// Warns if the server's limits are too low: it would refuse connections, or not answer, in the
/// middle of the run.
fn too_few_descriptors(tree: &ProcessTree, connections: u64) -> Option<String> {
    let most = tree.descriptors_max()?;
    let processes = tree.pids().ok()?;
    (most < connections).then(|| few_descriptors(most, &processes, connections))
}

/// Says how to raise the limit. In a tree of several processes it is not known which ones hold connections, and the first
/// one often holds none.
fn few_descriptors(most: u64, processes: &[i32], connections: u64) -> String {
    let before = "`ulimit -n` before the server starts (systemd: LimitNOFILE)";
    let wanted = connections + connections / 10;
    match processes {
        [only] => format!(
            "the server's process may have {most} descriptors, too few for {connections} connections: raise the limit with \
             prlimit --nofile={wanted}:{wanted} --pid {only}, or with {before}"
        ),
        _ => format!(
            "the server's processes may have {most} descriptors together, too few for {connections} connections: raise the \
             limit with {before}"
        ),
    }
}

impl RunMonitor<'_> {
    /// From now on Ctrl-C is handled, and does not end the process.
    fn begin(console: &mut dyn Console) -> RunMonitor<'_> {
        let now = Instant::now();
        RunMonitor {
            console,
            interrupts: Interrupts::open(),
            interrupted: false,
            deadline: None,
            late: false,
            memory_max: None,
            too_large: false,
            began: now,
            next_sample: now,
            samples: Vec::new(),
            server_died: None,
        }
    }

    fn tick(
        &mut self,
        server: Option<&Server>,
        tally: &Tally,
        total: Option<u64>,
        (from, done): (u64, u64),
        began: Instant,
    ) {
        self.check_interrupt();
        self.late |= self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        if Instant::now() >= self.next_sample {
            self.sample(server, tally.alive);
        }
        let elapsed = began.elapsed();
        let left = total
            .filter(|&total| done > from && total >= done)
            .map(|total| elapsed.mul_f64((total - done) as f64 / (done - from) as f64));
        let pss_bytes = self
            .samples
            .last()
            .map(|sample| sample.pss_bytes)
            .filter(|&bytes| bytes > 0);
        let failed = tally.failed + tally.lost;
        self.console.progress(&Progress {
            done,
            total,
            alive: tally.alive,
            failed,
            whose: MeasuredSide::Server,
            pss_bytes,
            elapsed,
            left,
        });
    }

    fn check_interrupt(&mut self) -> bool {
        self.interrupted |= self.interrupts.arrived();
        self.interrupted
    }

    fn is_over(&self) -> bool {
        self.interrupted || self.late || self.too_large || self.server_died.is_some()
    }

    fn early_end(&mut self) -> Option<Error> {
        let died = self.server_died.take();
        let memory_max = self.memory_max.take().filter(|_| self.too_large);
        let late = || {
            let late = self.late && !self.interrupted;
            late.then(|| Error::target("the run reached its time limit"))
        };
        died.or(memory_max.map(|(_, error)| error))
            .or_else(late)
            .or_else(|| self.interrupted.then(Error::interrupted))
    }

    fn sample(&mut self, server: Option<&Server>, alive: u64) -> Option<TreeSample> {
        let began = Instant::now();
        let taken = match server?.sample() {
            Ok(taken) => taken,
            Err(error) => {
                self.server_died.get_or_insert(error);
                return None;
            }
        };
        self.next_sample = Instant::now() + SAMPLE_EVERY.max(began.elapsed() * SAMPLE_SHARE);
        let most = self.memory_max.as_ref().map(|(most, _)| *most);
        self.too_large |= most.is_some_and(|most| taken.memory.pss > most);
        self.samples.push(Sample {
            at_s: self.began.elapsed().as_secs_f64(),
            alive,
            pss_bytes: taken.memory.pss,
            rss_bytes: taken.memory.rss,
            cpu_s: taken.cpu.total_ns as f64 / 1e9,
        });
        if self.samples.len() > SAMPLES_MAX {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Quiet;

    impl Console for Quiet {
        fn stage(&mut self, _name: &str, _total: Option<u64>) {}
        fn progress(&mut self, _at: &Progress) {}
        fn stage_over(&mut self) {}
    }

    #[test]
    fn a_server_that_grows_too_large_ends_the_run() {
        let own = ServerSource::Pid(i32::try_from(std::process::id()).unwrap());
        let anywhere = Addr::Unix("/nowhere".into());
        let server = Server::open(&own, &anywhere, &mut || true).unwrap();
        let mut quiet = Quiet;
        let mut watch = RunMonitor::begin(&mut quiet);
        let mut ends_above = |bytes| {
            watch.memory_max = Some((bytes, Error::target("it grew")));
            watch.sample(server.as_ref(), 0);
            (watch.is_over(), watch.early_end())
        };
        assert_eq!(ends_above(u64::MAX), (false, None));
        assert_eq!(ends_above(1), (true, Some(Error::target("it grew"))));
    }

    /// Recorded: for nginx, whose first process holds no connections, the advice was to raise the limit of that one.
    #[test]
    fn only_a_single_process_is_named() {
        let one = few_descriptors(1_024, &[4_711], 8_000);
        assert!(
            one.contains("prlimit --nofile=8800:8800 --pid 4711"),
            "{one}"
        );
        let several = few_descriptors(3_072, &[4_711, 4_712, 4_713], 8_000);
        assert!(
            !several.contains("prlimit") && several.contains("ulimit -n"),
            "{several}"
        );
    }
}
