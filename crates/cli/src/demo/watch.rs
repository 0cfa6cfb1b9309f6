//! Memory and CPU time of `serve`, read from outside in a separate thread, so that no connection
//! waits for it.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_measure::Error;
use dormouse_measure::{ProcessTree, TreeSample};
use dormouse_reactor::process::{self, Pid};

/// Time between two readings.
const EVERY: Duration = Duration::from_millis(200);

/// Memory and CPU time of all processes of `serve` at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) at: Instant,
    pub(super) bytes: u64,
    pub(super) cpu: Duration,
    pub(super) measure: Measure,
    /// Connections established at that time; the main thread fills it in.
    pub(super) connections: u64,
}

/// Kind of memory that a reading counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Measure {
    /// The proportional set, from `smaps_rollup`: a page that several processes map counts once.
    /// Pages of files are left out. They hold the program, not connections, and their share changes
    /// with every other process on the machine that uses the same library.
    Proportional,
    /// Anonymous and shared pages in memory, from `status`: a shared page counts in each process.
    /// For users who may not read PSS: processes with secrets allow only root to read it.
    Resident,
}

/// Least number of connections between two readings that are compared.
const STEP_MIN: u64 = 100;
/// Least number of comparisons that show the cost of a connection.
const COMPARED_MIN: usize = 8;

/// Returns the bytes that a further connection adds: the median growth between two readings, of which one has an
/// eighth of the connections more. `None`: too few readings. It is a median, because the heap of a process may shrink
/// or grow once while the connections open.
pub(super) fn per_connection(readings: &[Reading]) -> Option<u64> {
    let growing: Vec<&Reading> = readings
        .windows(2)
        .filter_map(|two| (two[1].connections > two[0].connections).then_some(&two[1]))
        .collect();
    let most = growing.last()?.connections;
    let step = (most / 8).max(STEP_MIN);
    let growth = |(at, first): (usize, &&Reading)| {
        let mut later = growing.iter().skip(at);
        let later = later.find(|later| later.connections >= first.connections + step)?;
        let bytes = later.bytes.saturating_sub(first.bytes);
        bytes.checked_div(later.connections - first.connections)
    };
    let mut compared: Vec<u64> = growing.iter().enumerate().filter_map(growth).collect();
    compared.sort_unstable();
    (compared.len() >= COMPARED_MIN).then(|| compared[compared.len() / 2])
}

/// The thread that reads.
pub(super) struct Watch {
    readings: Receiver<Result<Reading, String>>,
    tree: ProcessTree,
}

impl Watch {
    /// Watches the process tree of `pid`.
    pub(super) fn start(pid: i32) -> Result<Watch, String> {
        let tree = ProcessTree::of_pid(pid).map_err(|error| error.message)?;
        let (sender, readings) = sync_channel(64);
        let watched = tree.clone();
        thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || read_on(&watched, &sender))
            .map_err(|error| format!("cannot start the measuring thread: {error}"))?;
        Ok(Watch { readings, tree })
    }

    /// Returns the readings since the last call.
    pub(super) fn news(&self) -> impl Iterator<Item = Result<Reading, String>> + '_ {
        self.readings.try_iter()
    }

    /// Returns the workers.
    pub(super) fn workers(&self) -> Result<Vec<Pid>, String> {
        let processes = self.tree.describe().map_err(|error| error.message)?;
        let workers = processes
            .iter()
            .filter(|process| process.command.starts_with("worker-"));
        Ok(workers.map(|process| Pid(process.pid)).collect())
    }
}

/// Reads until the receiver is dropped.
fn read_on(tree: &ProcessTree, sender: &SyncSender<Result<Reading, String>>) {
    loop {
        let reading = read(tree).map_err(|error| error.message);
        if matches!(sender.try_send(reading), Err(TrySendError::Disconnected(_))) {
            return;
        }
        thread::sleep(EVERY);
    }
}

fn read(tree: &ProcessTree) -> Result<Reading, Error> {
    let at = Instant::now();
    match TreeSample::take(tree) {
        Ok(sample) => Ok(Reading {
            at,
            bytes: sample.memory.data(),
            cpu: Duration::from_nanos(sample.cpu.total_ns),
            measure: Measure::Proportional,
            connections: 0,
        }),
        Err(_) => {
            let bytes = tree
                .pids()?
                .into_iter()
                .filter_map(process::own_bytes)
                .sum();
            Ok(Reading {
                at,
                bytes,
                cpu: Duration::ZERO,
                measure: Measure::Resident,
                connections: 0,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_that_shrinks_once_hides_no_cost() {
        let at = Instant::now();
        let reading = |number: u64| Reading {
            at,
            bytes: 8_000_000 + number * 100 * 192 - if number > 20 { 200_000 } else { 0 },
            cpu: Duration::ZERO,
            measure: Measure::Proportional,
            connections: number * 100,
        };
        let readings: Vec<Reading> = (0..50).map(reading).collect();
        assert_eq!(per_connection(&readings), Some(192));
        assert_eq!(per_connection(&readings[..8]), None);
        assert_eq!(per_connection(&[readings[40]; 50]), None);
        assert_eq!(per_connection(&[]), None);
    }

    #[test]
    fn both_measures_read_this_process() {
        let own = std::process::id() as i32;
        let tree = ProcessTree::of_pid(own).expect("this process");
        let reading = read(&tree).expect("it may be read by itself");
        assert_eq!(reading.measure, Measure::Proportional);
        assert!(reading.bytes > 100_000 && process::own_bytes(own) > Some(100_000));
    }
}
