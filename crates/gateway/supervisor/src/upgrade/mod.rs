//! Replacement of the running binary, while every connection, listener and counter survives.
//!
//! 1. **Check.** The new binary starts beside this one, and checks whether it can take over its state.
//! 2. **Quiet.** Workers stop accepting, but keep serving; handshakes finish.
//! 3. **Prepare.** Workers exit. Each keeper has a child execute the new binary, which converts a copy of
//!    the connections and reports it.
//! 4. **Commit.** When all have reported, the old keepers exit, the new ones continue, and main executes
//!    the new binary itself.
//!
//! Until the commit, any failure returns to the old binary and the old memory.

pub(crate) mod main_state;
pub(crate) mod new_binary;

use crate::pairs::Pairs;
use crate::upgrade::main_state::MainState;
use crate::upgrade::new_binary::NewBinary;
use dormouse_handover::control::AdminResult;
use dormouse_handover::orders::{Order, WorkerReport};
use dormouse_handover::trial;
use dormouse_handover::upgrade::Command;
use dormouse_helpers::helper::{self, Privileges};
use dormouse_helpers::upgrade_trial::{self, TrialArguments};
use dormouse_reactor::process::{self, Ended, Inherit, Pid, Program};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::{Fd, OnExec};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Exit status of a binary that can take over. Not 0, because any program may exit with that.
pub const CAN_RESUME: u8 = 75;

/// Time for the check of the new binary.
const CHECK_MS: u64 = 10_000;
/// Time for workers to become quiet, in addition to the grace for handshakes.
const QUIET_MS: u64 = 2_000;
/// Time for new keepers to convert the connections, during which service is paused.
const PREPARE_MS: u64 = 3_000;

/// How the check ends if the new binary can take over.
const CAN_GO_ON: Ended = Ended::Exited(CAN_RESUME as i32);

/// How the check ends if the new binary cannot read the configuration file: the exit status of wrong usage. Another
/// program may end like that, too.
const FILE_REFUSED: Ended = Ended::Exited(2);

/// Options of `serve` for a binary that takes over, or checks whether it can.
const TRY: &str = "--try-resume=";
const RESUME: &str = "--resume=";

/// An upgrade in progress.
pub(crate) struct Upgrade {
    binary: NewBinary,
    /// The request that waits for an answer.
    request: Option<u64>,
    began_ms: u64,
    deadline_ms: u64,
    stage: Stage,
}

enum Stage {
    /// The new binary checks whether it can take over.
    Check { child: Pid },
    /// Workers that are not quiet yet, and those that have died meanwhile.
    Quiet {
        waiting: Vec<usize>,
        replaced: Vec<usize>,
    },
    /// New keepers, by pair. Service is paused since then.
    Prepare {
        takeovers: Vec<Takeover>,
        since_ms: u64,
    },
}

/// The state of a pair's new keeper.
#[derive(Clone, Default)]
struct Takeover {
    /// The new keeper, as named by its parent.
    child: Option<Pid>,
    /// Reports with their senders. The child may report before its parent names it.
    reports: Vec<(Pid, Result<(), String>)>,
}

impl Takeover {
    /// Bound on stored reports; more than there are processes that may report.
    const REPORTS_MAX: usize = 8;

    fn report(&mut self, sender: Pid, report: Result<(), String>) {
        if self.reports.len() < Self::REPORTS_MAX {
            self.reports.push((sender, report));
        }
    }

    /// The new keeper's report, or the reason of its parent why there is none.
    fn outcome(&self, keeper: Pid) -> Option<Result<Pid, String>> {
        let of = |who: Pid| self.reports.iter().find(move |(sender, _)| *sender == who);
        if let Some((_, Err(why))) = of(keeper) {
            return Some(Err(why.clone()));
        }
        let child = self.child?;
        let (_, report) = of(child)?;
        Some(report.clone().map(|()| child))
    }
}

/// The result of an event in an upgrade.
pub(crate) enum Step {
    /// The upgrade continues.
    Wait,
    /// All pairs are prepared by these new keepers. There is no way back from here.
    Commit(Vec<Pid>),
    /// The upgrade has failed; the reason.
    Fail(String),
}

impl Upgrade {
    /// Starts the check of `binary`, by default the file at the path from which this binary was started.
    pub(crate) fn begin(
        binary: Option<&Path>,
        request: Option<u64>,
        state: MainState,
    ) -> Result<Upgrade, String> {
        let binary = match binary {
            Some(path) => path.to_owned(),
            None => own_path().map_err(|e| format!("cannot find the path of this binary: {e}"))?,
        };
        let binary = NewBinary::open(&binary)?;
        let shown = binary.path().display();
        let child =
            start_check(&binary, state).map_err(|e| format!("cannot start {shown}: {e}"))?;
        tracing::info!(binary = %shown, "upgrade started; checking the new binary");
        let now_ms = process::monotonic_ms();
        Ok(Upgrade {
            binary,
            request,
            began_ms: now_ms,
            deadline_ms: now_ms + CHECK_MS,
            stage: Stage::Check { child },
        })
    }

    /// Handles the exit of a process. `None`: it was not the check.
    pub(crate) fn note_end(
        &mut self,
        pid: Pid,
        ended: Ended,
        grace_ms: u64,
        pairs: &Pairs,
    ) -> Option<Step> {
        if !matches!(self.stage, Stage::Check { child } if child == pid) {
            return None;
        }
        if ended != CAN_GO_ON {
            let why = match ended {
                FILE_REFUSED => {
                    "does not accept the configuration file; `dormouse check` says why".to_owned()
                }
                _ => format!(
                    "cannot take over the running state: its check {ended}; see its output in the log"
                ),
            };
            let shown = self.binary.path().display();
            return Some(Step::Fail(format!("{shown} {why}")));
        }
        let waiting = (0..pairs.len()).collect();
        self.stage = Stage::Quiet {
            waiting,
            replaced: Vec::new(),
        };
        self.deadline_ms = process::monotonic_ms() + grace_ms + QUIET_MS;
        pairs.order_all(&Order::Quiesce);
        Some(Step::Wait)
    }

    /// Handles a worker that has become ready in place of one that died, which had the order to become quiet. Only the
    /// first one of each pair gets more time: no worker accepts meanwhile, and workers may die again and again.
    pub(crate) fn note_ready(&mut self, worker: usize, grace_ms: u64, pairs: &Pairs) {
        if self.waits_for_quiet(worker, grace_ms) {
            pairs.order(worker, &Order::Quiesce);
        }
    }

    /// Whether the upgrade waits for this worker, which has become ready, to be quiet.
    fn waits_for_quiet(&mut self, worker: usize, grace_ms: u64) -> bool {
        let Stage::Quiet { waiting, replaced } = &mut self.stage else {
            return false;
        };
        if !waiting.contains(&worker) {
            waiting.push(worker);
        }
        if !replaced.contains(&worker) {
            replaced.push(worker);
            self.deadline_ms = process::monotonic_ms() + grace_ms + QUIET_MS;
        }
        true
    }

    /// Handles a report of a worker or keeper. A report about a new keeper counts only if it comes from the
    /// keeper of the pair, or from the process that this keeper has named. The kernel names the sender, so a
    /// worker cannot name a process.
    pub(crate) fn note_report(
        &mut self,
        worker: usize,
        report: WorkerReport,
        sender: Pid,
        pairs: &Pairs,
    ) -> Step {
        match &mut self.stage {
            Stage::Quiet { waiting, .. } => {
                if report == WorkerReport::Quiet {
                    waiting.retain(|&other| other != worker);
                }
                if waiting.is_empty() {
                    return self.prepare(pairs);
                }
            }
            Stage::Prepare { takeovers, .. } => {
                let takeover = takeovers.get_mut(worker).expect("each pair is taken over");
                match report {
                    WorkerReport::Preparing(child) => takeover.child = Some(child),
                    WorkerReport::Prepared => takeover.report(sender, Ok(())),
                    WorkerReport::Refused(why) => takeover.report(sender, Err(why)),
                    _ => return Step::Wait,
                }
                return commit_if_prepared(takeovers, pairs);
            }
            Stage::Check { .. } => {}
        }
        Step::Wait
    }

    fn prepare(&mut self, pairs: &Pairs) -> Step {
        let now_ms = process::monotonic_ms();
        self.stage = Stage::Prepare {
            takeovers: vec![Takeover::default(); pairs.len()],
            since_ms: now_ms,
        };
        self.deadline_ms = now_ms + PREPARE_MS;
        let posted = self.binary.description();
        let posted = posted.and_then(|binary| pairs.post(Command::Prepare, &binary));
        if let Err(error) = posted {
            return Step::Fail(error.to_string());
        }
        pairs.order_all(&Order::HandOver);
        Step::Wait
    }

    /// Time until the stage's deadline.
    pub(crate) fn until_late_ms(&self) -> u64 {
        self.deadline_ms.saturating_sub(process::monotonic_ms())
    }

    /// Why the upgrade is late. `None`: it is not.
    pub(crate) fn late(&self) -> Option<String> {
        if self.until_late_ms() > 0 {
            return None;
        }
        Some(match &self.stage {
            Stage::Check { .. } => "the check of the new binary took longer than 10 s".to_owned(),
            Stage::Quiet { waiting, .. } => {
                format!(
                    "{} did not pause in time; if that happens again, kill -9 the process (its connections \
                     continue), and upgrade again",
                    numbered(waiting)
                )
            }
            Stage::Prepare { takeovers, .. } => {
                let all = takeovers.iter().enumerate();
                let is_late = |takeover: &Takeover| {
                    let has_reported = |(sender, _): &(Pid, _)| Some(*sender) == takeover.child;
                    !takeover.reports.iter().any(has_reported)
                };
                let late = all.filter(|(_, takeover)| is_late(takeover));
                let late: Vec<usize> = late.map(|(worker, _)| worker).collect();
                format!("{} not taken over within {PREPARE_MS} ms", numbered(&late))
            }
        })
    }

    /// Returns to the old binary and the old memory. Returns the request that waits for an answer.
    pub(crate) fn abort(self, pairs: &Pairs) -> Option<u64> {
        match self.stage {
            Stage::Check { child } => {
                // The process may have exited already.
                let _ = process::send_signal(child, Signal::Kill);
            }
            Stage::Quiet { .. } => {}
            Stage::Prepare { .. } => pairs.command(Command::Abort),
        }
        pairs.resume_all();
        self.request
    }

    /// Completes the upgrade. Returns the new binary, and the answer to the waiting request.
    pub(crate) fn complete(self) -> (NewBinary, Option<AdminResult>) {
        let now_ms = process::monotonic_ms();
        let paused_ms = match self.stage {
            Stage::Prepare { since_ms, .. } => now_ms.saturating_sub(since_ms),
            _ => 0,
        };
        tracing::info!(
            binary = %self.binary.path().display(),
            took_ms = now_ms.saturating_sub(self.began_ms),
            paused_ms,
            "upgrade committed; new binary has every connection"
        );
        let path = self.binary.path().display();
        let words =
            format!("{path} has replaced the running binary; service paused for {paused_ms} ms");
        let result = self.request.map(|id| AdminResult {
            id,
            done: true,
            words,
        });
        (self.binary, result)
    }
}

/// "worker 0" or "workers 0, 1".
fn numbered(workers: &[usize]) -> String {
    let numbers: Vec<String> = workers.iter().map(usize::to_string).collect();
    match workers {
        [only] => format!("worker {only}"),
        _ => format!("workers {}", numbers.join(", ")),
    }
}

/// Commits when all new keepers have reported; fails if one of them cannot take over.
fn commit_if_prepared(takeovers: &[Takeover], pairs: &Pairs) -> Step {
    let mut keepers = Vec::with_capacity(takeovers.len());
    for (worker, takeover) in takeovers.iter().enumerate() {
        match takeover.outcome(pairs.keeper(worker)) {
            Some(Ok(new)) => keepers.push(new),
            Some(Err(why)) => return Step::Fail(why),
            None => {}
        }
    }
    match keepers.len() == takeovers.len() {
        true => Step::Commit(keepers),
        false => Step::Wait,
    }
}

/// Starts the new binary without main's privileges, in another directory, where no file can be taken for its arguments. It
/// returns to this one to read the configuration file.
fn start_check(binary: &NewBinary, mut state: MainState) -> io::Result<Pid> {
    let directory = process::open_directory()?;
    state.directory = Some(directory.0);
    let file = state.write().inspect_err(|_| directory.close())?;
    let Program { arguments, .. } = successor(binary, TRY, file, Vec::new());
    let trial = TrialArguments {
        binary: binary.file().0,
        arguments: arguments.into_iter().map(OsString::into_vec).collect(),
        inherited: vec![file.0, directory.0],
    };
    let privileges = Privileges::reader(&state.handover.config);
    let inherited = vec![binary.file(), file, directory];
    let child = helper::start(upgrade_trial::NAME, &privileges, &trial, inherited);
    file.close();
    directory.close();
    child
}

/// Executes the new binary in place of main, with these descriptors. Returns only on failure.
pub(crate) fn execute(binary: &NewBinary, state: &MainState, fds: &[Fd]) -> io::Result<()> {
    let state = state.write()?;
    let mut inherited = fds.to_vec();
    inherited.push(state);
    let successor = successor(binary, RESUME, state, inherited);
    match trial::fail_execution().and_then(|()| successor.replace_this()) {
        Ok(never) => match never {},
        Err(error) => {
            // Processes that are started from now on must not inherit these.
            for fd in fds {
                let _ = fd.set_on_exec(OnExec::Close);
            }
            state.close();
            Err(error)
        }
    }
}

/// The new binary with the arguments of this one.
fn successor(binary: &NewBinary, how: &str, state: Fd, inherited: Vec<Fd>) -> Program {
    let option = |argument: &OsString| {
        let text = argument.to_string_lossy();
        text.starts_with(TRY) || text.starts_with(RESUME)
    };
    let mut arguments: Vec<OsString> = std::env::args_os().filter(|arg| !option(arg)).collect();
    arguments.push(format!("{how}{state}").into());
    Program {
        file: binary.program(),
        arguments,
        environment: None,
        inherit: Inherit::Only(inherited),
    }
}

/// The path from which this binary was started, even if another file is there by now.
fn own_path() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let text = path.to_string_lossy();
    Ok(match text.strip_suffix(" (deleted)") {
        Some(original) => PathBuf::from(original),
        None => path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that dies again and again must not keep all others from accepting.
    #[test]
    fn only_the_first_replacement_of_a_worker_gets_more_time() {
        let own = std::env::current_exe().expect("a path");
        let binary = NewBinary::open(&own).expect("this program");
        let mut upgrade = Upgrade {
            binary,
            request: None,
            began_ms: 0,
            deadline_ms: 0,
            stage: Stage::Quiet {
                waiting: vec![0],
                replaced: Vec::new(),
            },
        };
        for (worker, is_late) in [(0, false), (0, true), (1, false), (1, true)] {
            upgrade.deadline_ms = 0;
            assert!(upgrade.waits_for_quiet(worker, 1_000));
            assert_eq!(upgrade.late().is_some(), is_late, "worker {worker}");
        }
    }
}
