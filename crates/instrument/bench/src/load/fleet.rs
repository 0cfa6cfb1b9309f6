//! All generators together: distributes orders and adds up reports.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use dormouse_reactor::socket::Addr;
use std::os::unix::process::CommandExt;

use super::limits::Plan;
use super::orders::{Order, OrderReport, Report, Setup, Tally};
use super::sources;
use dormouse_measure::Error;
use dormouse_measure::Latencies;
use dormouse_measure::{CpuTime, ProcessTree, TreeSample};

/// Interval between two reports of progress.
const TICK: Duration = Duration::from_millis(100);
/// Maximum wait until a generator has read its setup.
const READY_WAIT: Duration = Duration::from_secs(30);
/// Maximum number of unread reports.
const REPORTS_WAITING: usize = 1024;

/// The command that starts a generator.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// Program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Running generators.
pub struct Fleet {
    generators: Vec<GeneratorProcess>,
    reports: Receiver<(usize, GeneratorMessage)>,
}

struct GeneratorProcess {
    child: Child,
    orders: Option<ChildStdin>,
    tally: Tally,
    busy: bool,
}

enum GeneratorMessage {
    Report(Report),
    Ended,
    Garbage(String),
}

/// The merged results of an order.
#[derive(Clone, Debug, Default)]
pub struct FleetReport {
    /// Counts and reasons.
    pub of: OrderReport,
    /// Distributions by name.
    pub latencies: BTreeMap<String, Latencies>,
}

impl FleetReport {
    /// Refuses an order that ended early: what follows would measure something else.
    ///
    /// # Errors
    /// The reason why the generators gave up, and the most frequent failure.
    pub fn ensure_complete(&self) -> Result<(), Error> {
        let Some(why) = &self.of.gave_up else {
            return Ok(());
        };
        let reason = self.of.failures.iter().max_by_key(|(_, count)| **count);
        let reason = reason.map_or_else(String::new, |(reason, _)| format!(": {reason}"));
        Err(Error::target(format!("{why}{reason}")))
    }
}

impl Fleet {
    /// Starts the generators and waits until they are ready.
    ///
    /// # Errors
    /// If a generator does not start.
    pub fn start(
        launcher: &Launcher,
        setup: &Setup,
        plan: &Plan,
        target: &Addr,
    ) -> Result<Self, Error> {
        let (sender, reports) = sync_channel(REPORTS_WAITING);
        let mut fleet = Self {
            generators: Vec::new(),
            reports,
        };
        let given = setup.sources.clone();
        for index in 0..plan.generators {
            let sources = match target {
                Addr::Tcp(address) => sources::for_target(*address, &given, index),
                Addr::Unix(_) => Vec::new(),
            };
            let setup = Setup {
                index,
                sources,
                connections_max: plan.connections_each,
                ..setup.clone()
            };
            fleet.generators.push(GeneratorProcess::start(
                launcher,
                &setup,
                index as usize,
                &sender,
            )?);
        }
        fleet.wait_idle(READY_WAIT)?;
        Ok(fleet)
    }

    /// Returns the process ids.
    pub fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.generators
            .iter()
            .filter_map(|generator| i32::try_from(generator.child.id()).ok())
    }

    /// Returns memory and CPU time of the generators.
    pub fn cost(&self) -> TreeSample {
        let mut sum = TreeSample::default();
        for pid in self.pids() {
            let one = ProcessTree::of_pid(pid)
                .and_then(|tree| TreeSample::take(&tree))
                .unwrap_or_default();
            sum.memory += one.memory;
            sum.cpu += one.cpu;
            sum.processes += one.processes;
        }
        sum
    }

    /// Returns the CPU time of the generators.
    pub fn cpu(&self) -> CpuTime {
        self.cost().cpu
    }

    /// Carries out an order. Calls `tick` ten times a second with the counts so far, and stops the
    /// order if `tick` returns `false`. After that the order may take `patience` longer.
    ///
    /// # Errors
    /// If a generator fails.
    pub fn carry_out(
        &mut self,
        order: &Order,
        patience: Duration,
        tick: &mut dyn FnMut(&Tally) -> bool,
    ) -> Result<FleetReport, Error> {
        let count = self.generators.len() as u64;
        for (index, generator) in self.generators.iter_mut().enumerate() {
            if let Some(share) = order.share(index as u64, count) {
                generator.send(&share)?;
                generator.busy = true;
            }
        }
        let mut harvest = FleetReport::default();
        let mut stopped_at: Option<Instant> = None;
        while self.generators.iter().any(|generator| generator.busy) {
            if let Some(yielded) = self.next_report(TICK)? {
                harvest.add(yielded);
            }
            let mut tally = Tally::default();
            self.generators
                .iter()
                .for_each(|generator| tally.add(&generator.tally));
            if !tick(&tally) && stopped_at.is_none() {
                stopped_at = Some(Instant::now());
                for generator in self
                    .generators
                    .iter_mut()
                    .filter(|generator| generator.busy)
                {
                    generator.send(&Order::Stop)?;
                }
            }
            if stopped_at.is_some_and(|at| at.elapsed() > patience) {
                return Err(Error::system("a generator did not stop in time"));
            }
        }
        harvest.of.tally.alive = self.alive();
        Ok(harvest)
    }

    /// Returns the number of connections that are established now.
    pub fn alive(&self) -> u64 {
        let each = self
            .generators
            .iter()
            .map(|generator| generator.tally.alive);
        each.sum()
    }

    fn wait_idle(&mut self, patience: Duration) -> Result<(), Error> {
        let until = Instant::now() + patience;
        while self.generators.iter().any(|generator| generator.busy) {
            self.next_report(TICK)?;
            if Instant::now() > until {
                return Err(Error::system("a generator did not start in time"));
            }
        }
        Ok(())
    }

    /// Waits for one report.
    fn next_report(&mut self, timeout: Duration) -> Result<Option<OrderReport>, Error> {
        let (index, heard) = match self.reports.recv_timeout(timeout) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::system("all generators have exited"));
            }
        };
        let Some(generator) = self.generators.get_mut(index) else {
            return Ok(None);
        };
        match heard {
            GeneratorMessage::Report(Report::Ready) => generator.busy = false,
            GeneratorMessage::Report(Report::Progress(tally)) => generator.tally = tally,
            GeneratorMessage::Report(Report::Done(yielded)) => {
                generator.busy = false;
                generator.tally = yielded.tally;
                return Ok(Some(*yielded));
            }
            GeneratorMessage::Report(Report::Failed(message)) => {
                return Err(Error::system(format!("generator {index}: {message}")));
            }
            GeneratorMessage::Ended => {
                return Err(Error::system(format!(
                    "generator {index} has exited unexpectedly"
                )));
            }
            GeneratorMessage::Garbage(what) => {
                return Err(Error::system(format!(
                    "generator {index} sent an unknown report: {what:?}"
                )));
            }
        }
        Ok(None)
    }
}

impl Drop for Fleet {
    /// A generator exits when its input ends; one that does not is killed.
    fn drop(&mut self) {
        self.generators
            .iter_mut()
            .for_each(|generator| drop(generator.orders.take()));
        let until = Instant::now() + Duration::from_secs(2);
        for generator in &mut self.generators {
            while matches!(generator.child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = generator.child.kill();
            let _ = generator.child.wait();
        }
    }
}

impl GeneratorProcess {
    fn start(
        launcher: &Launcher,
        setup: &Setup,
        index: usize,
        sender: &SyncSender<(usize, GeneratorMessage)>,
    ) -> Result<Self, Error> {
        let in_words = |error: std::io::Error| {
            Error::system(format!(
                "cannot start a generator ({}): {error}",
                launcher.program.display()
            ))
        };
        let mut child = Command::new(&launcher.program)
            .args(&launcher.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C reaches only the controller, which then asks the generators for their results.
            .process_group(0)
            .spawn()
            .map_err(in_words)?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::system("cannot open the pipes of a generator"));
        };
        let sender = sender.clone();
        std::thread::Builder::new()
            .spawn(move || listen(index, output, &sender))
            .map_err(in_words)?;
        let mut generator = Self {
            child,
            orders: Some(orders),
            tally: Tally::default(),
            busy: true,
        };
        generator.send(setup)?;
        Ok(generator)
    }

    fn send(&mut self, what: &impl serde::Serialize) -> Result<(), Error> {
        let mut line =
            serde_json::to_vec(what).map_err(|error| Error::system(error.to_string()))?;
        line.push(b'\n');
        let written = self
            .orders
            .as_mut()
            .map(|orders| orders.write_all(&line).and_then(|()| orders.flush()));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(Error::system("a generator has exited unexpectedly")),
        }
    }
}

/// Passes on the reports of a generator until it exits.
fn listen(index: usize, output: ChildStdout, sender: &SyncSender<(usize, GeneratorMessage)>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { break };
        let heard = match serde_json::from_str(&line) {
            Ok(report) => GeneratorMessage::Report(report),
            Err(_) => GeneratorMessage::Garbage(line.chars().take(200).collect()),
        };
        if sender.send((index, heard)).is_err() {
            return;
        }
    }
    let _ = sender.send((index, GeneratorMessage::Ended));
}

impl FleetReport {
    /// Adds the results of a generator.
    fn add(&mut self, yielded: OrderReport) {
        self.of.tally.add(&yielded.tally);
        self.of.duration_s = self.of.duration_s.max(yielded.duration_s);
        self.of.gave_up = self.of.gave_up.take().or(yielded.gave_up);
        for (name, sparse) in &yielded.latencies {
            self.latencies.entry(name.clone()).or_default().add(sparse);
        }
        for (reason, count) in yielded.failures {
            *self.of.failures.entry(reason).or_default() += count;
        }
        for (what, count) in yielded.agreed {
            *self.of.agreed.entry(what).or_default() += count;
        }
    }
}
