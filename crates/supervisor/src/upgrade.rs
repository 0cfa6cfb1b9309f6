//! Another binary in place of this one, with every connection, listener and counter.
//!
//! 1. **Check.** The new binary is started beside this one: can it go on with what we would leave?
//! 2. **Quiet.** Workers accept nothing more, and serve on; handshakes may end.
//! 3. **Prepare.** Workers end. Each keeper has a child execute the new binary, which converts a
//!    copy of the connections and reports it.
//! 4. **Commit.** When all have reported: the old keepers end, the new ones go on, and main executes
//!    the new binary itself.
//!
//! Until the commit any failure leads back to the old binary and the old memory.

use crate::main_state::MainState;
use crate::new_binary::NewBinary;
use crate::pairs::Pairs;
use dormouse_handover::orders::{Order, WorkerReport};
use dormouse_handover::upgrade::Command;
use dormouse_reactor::process::{self, Ended, Inherit, Pid, Program};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::{Fd, OnExec};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Exit status of a binary that was tried and can go on. Not 0: any program may exit with that.
pub const CAN_RESUME: u8 = 75;

/// Time for the new binary to report that it can go on.
const CHECK_MS: u64 = 10_000;
/// Time for workers to become quiet, beyond the grace for handshakes.
const QUIET_MS: u64 = 2_000;
/// Time for new keepers to convert the connections, while nobody is served.
const PREPARE_MS: u64 = 3_000;

/// How a new binary ends that was tried and can go on.
const CAN_GO_ON: Ended = Ended::Exited(CAN_RESUME as i32);

/// Options of `serve` by which a binary learns whose place it takes.
const TRY: &str = "--try-resume=";
const RESUME: &str = "--resume=";

/// An upgrade under way.
pub(crate) struct Upgrade {
    binary: NewBinary,
    /// The request that waits for an answer.
    request: Option<u64>,
    began_ms: u64,
    deadline_ms: u64,
    stage: Stage,
}

enum Stage {
    /// The new binary, started to try.
    Check { child: Pid },
    /// Workers that are not quiet yet.
    Quiet { waiting: Vec<usize> },
    /// New keepers, by pair; nobody is served since then.
    Prepare {
        takeovers: Vec<Takeover>,
        since_ms: u64,
    },
}

/// What is known of the new keeper of a pair.
#[derive(Clone, Default)]
struct Takeover {
    /// The process, by its parent's word.
    child: Option<Pid>,
    /// What was reported, by whom. The child may be faster than its parent's word.
    reports: Vec<(Pid, Result<(), String>)>,
}

impl Takeover {
    /// More than there are processes that could report.
    const REPORTS_MAX: usize = 8;

    fn report(&mut self, sender: Pid, report: Result<(), String>) {
        if self.reports.len() < Self::REPORTS_MAX {
            self.reports.push((sender, report));
        }
    }

    /// What the new keeper has reported, or why its parent says that there is none.
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

/// What an upgrade comes to after an event.
pub(crate) enum Step {
    /// It goes on.
    Wait,
    /// All pairs are prepared: these are the new keepers. From here on there is no way back.
    Commit(Vec<Pid>),
    /// It has failed, and why.
    Fail(String),
}

impl Upgrade {
    /// Begins with the check of `binary`, or of whatever lies now where this binary was started from.
    pub(crate) fn begin(
        binary: Option<&Path>,
        request: Option<u64>,
        state: &MainState,
    ) -> Result<Upgrade, String> {
        let binary = match binary {
            Some(path) => path.to_owned(),
            None => own_path().map_err(|e| format!("cannot find the path of this binary: {e}"))?,
        };
        let binary = NewBinary::open(&binary)?;
        let shown = binary.path().display();
        let child =
            start_check(&binary, state).map_err(|e| format!("cannot start {shown}: {e}"))?;
        tracing::info!(binary = %shown, "upgrade: the new binary is tried");
        let now_ms = process::monotonic_ms();
        Ok(Upgrade {
            binary,
            request,
            began_ms: now_ms,
            deadline_ms: now_ms + CHECK_MS,
            stage: Stage::Check { child },
        })
    }

    /// Notes that a process has ended. `None`: it was not the binary that is tried.
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
            return Some(Step::Fail(format!(
                "{} cannot go on with what runs here: tried, it {ended} (what it said stands above)",
                self.binary.path().display()
            )));
        }
        let waiting = (0..pairs.len()).collect();
        self.stage = Stage::Quiet { waiting };
        self.deadline_ms = process::monotonic_ms() + grace_ms + QUIET_MS;
        pairs.order_all(&Order::Quiesce);
        Some(Step::Wait)
    }

    /// Takes the word of a worker, or of a keeper. What is said of a new keeper counts if the keeper
    /// of the pair has said it, or the process that this one has named: main asks the kernel who
    /// speaks, so that no worker can name a process.
    pub(crate) fn note_word(
        &mut self,
        worker: usize,
        word: WorkerReport,
        sender: Pid,
        pairs: &Pairs,
    ) -> Step {
        match &mut self.stage {
            Stage::Quiet { waiting } => {
                if word == WorkerReport::Quiet {
                    waiting.retain(|&other| other != worker);
                }
                if waiting.is_empty() {
                    return self.prepare(pairs);
                }
            }
            Stage::Prepare { takeovers, .. } => {
                let Some(takeover) = takeovers.get_mut(worker) else {
                    return Step::Wait;
                };
                match word {
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

    /// Time until the stage has taken too long.
    pub(crate) fn until_late_ms(&self) -> u64 {
        self.deadline_ms.saturating_sub(process::monotonic_ms())
    }

    /// Why the stage has taken too long. `None`: it has not.
    pub(crate) fn late(&self) -> Option<String> {
        if self.until_late_ms() > 0 {
            return None;
        }
        Some(match &self.stage {
            Stage::Check { .. } => "the new binary did not answer within 10 s".to_owned(),
            Stage::Quiet { waiting } => format!("workers {waiting:?} did not become quiet"),
            Stage::Prepare { takeovers, .. } => {
                let all = takeovers.iter().enumerate();
                let is_late = |takeover: &Takeover| {
                    let has_reported = |(sender, _): &(Pid, _)| Some(*sender) == takeover.child;
                    !takeover.reports.iter().any(has_reported)
                };
                let late = all.filter(|(_, takeover)| is_late(takeover));
                let late: Vec<usize> = late.map(|(worker, _)| worker).collect();
                format!("workers {late:?} were not taken over within {PREPARE_MS} ms")
            }
        })
    }

    /// Goes back to the old binary and the old memory. Returns the request that waits for an answer.
    pub(crate) fn abort(self, pairs: &Pairs) -> Option<u64> {
        match self.stage {
            Stage::Check { child } => {
                // It may be the process that ended.
                let _ = process::send_signal(child, Signal::Kill);
            }
            Stage::Quiet { .. } => {}
            Stage::Prepare { .. } => pairs.command(Command::Abort),
        }
        pairs.order_all(&Order::Resume);
        self.request
    }

    /// All pairs are with the new binary. Returns it, with the request that waits and its answer.
    pub(crate) fn complete(self) -> (NewBinary, Option<(u64, String)>) {
        let now_ms = process::monotonic_ms();
        let still_ms = match self.stage {
            Stage::Prepare { since_ms, .. } => now_ms.saturating_sub(since_ms),
            _ => 0,
        };
        tracing::info!(
            binary = %self.binary.path().display(),
            took_ms = now_ms.saturating_sub(self.began_ms),
            still_ms,
            "upgrade: every connection is with the new binary"
        );
        let path = self.binary.path().display();
        let words = format!(
            "{path} serves in place of the former binary; nobody was served for {still_ms} ms"
        );
        let answer = self.request.map(|request| (request, words));
        (self.binary, answer)
    }
}

/// The step when all new keepers have reported, or one that it can't go on.
fn commit_if_prepared(takeovers: &[Takeover], pairs: &Pairs) -> Step {
    let mut keepers = Vec::with_capacity(takeovers.len());
    for (worker, takeover) in takeovers.iter().enumerate() {
        let keeper = pairs.keeper(worker);
        match keeper.and_then(|keeper| takeover.outcome(keeper)) {
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

fn start_check(binary: &NewBinary, state: &MainState) -> io::Result<Pid> {
    let state = state.write()?;
    let child = successor(binary, TRY, state, vec![state]).start();
    state.close();
    child
}

/// Main executes the new binary, which inherits these descriptors. Returns only if it could not.
pub(crate) fn execute(binary: &NewBinary, state: &MainState, fds: &[Fd]) -> io::Result<()> {
    let state = state.write()?;
    let mut inherited = fds.to_vec();
    inherited.push(state);
    match successor(binary, RESUME, state, inherited).replace_this() {
        Ok(never) => match never {},
        Err(error) => {
            // No process that is started from now on is to have these.
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

/// Where this binary was started from, even if another file lies there by now.
fn own_path() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let text = path.to_string_lossy();
    Ok(match text.strip_suffix(" (deleted)") {
        Some(original) => PathBuf::from(original),
        None => path,
    })
}
