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

/// The least that a further connection can add: its slot of 192 bytes, of which some lie in pages that earlier
/// connections have begun.
const CONNECTION_MIN_BYTES: u64 = 192 * 7 / 8;

/// Memory with only the warm-up connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    pub(super) bytes: u64,
    pub(super) connections: u64,
}

impl Baseline {
    /// Returns the bytes per further connection; `None` while there are too few, or if memory that
    /// was freed meanwhile hides their cost.
    pub(super) fn per_connection(self, bytes: u64, connections: u64) -> Option<u64> {
        let more = connections.checked_sub(self.connections)?;
        let each = bytes.checked_sub(self.bytes)?.checked_div(more)?;
        (more >= 2 * self.connections && each >= CONNECTION_MIN_BYTES).then_some(each)
    }
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
            bytes: sample.memory.pss.saturating_sub(sample.memory.pss_file),
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
    fn connections_in_pages_that_others_have_begun_cost_a_little_less() {
        let base = Baseline {
            bytes: 7_771_136,
            connections: 100,
        };
        // As measured with two workers: 229 pages for 4,900 slots.
        let more = 229 * 4096;
        assert_eq!(base.per_connection(base.bytes + more, 5_000), Some(191));
        assert_eq!(base.per_connection(base.bytes + more / 2, 5_000), None);
        assert_eq!(base.per_connection(base.bytes + more, 299), None);
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
