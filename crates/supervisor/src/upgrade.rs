//! Another binary in place of this one, with every connection, listener and counter.
//!
//! 1. **Check.** The new binary is started beside this one: can it go on with what we would leave?
//! 2. **Quiet.** Workers accept nothing more, and serve on; handshakes may end.
//! 3. **Prepare.** Workers end. Each keeper has a child execute the new binary, which converts a
//!    copy of the connections and says so.
//! 4. **Commit.** When all have said so: the old keepers end, the new ones go on, and main executes
//!    the new binary itself.
//!
//! Until the commit any failure leads back to the old binary and the old memory.

use super::Supervisor;
use super::control::Control;
use super::resume::CAN_RESUME;
use crate::main_state::{MainState, PairState};
use crate::session_files::SessionFiles;
use dormouse_handover::orders::{Order, Word};
use dormouse_handover::upgrade::Command;
use dormouse_reactor::process::{self, Ended, Inherit, Pid, Program, ProgramFile};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::{Fd, OnExec};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// How long the new binary may take to say that it can go on.
const CHECK_MS: u64 = 10_000;
/// How long workers may take to say that they are quiet, beyond the grace for handshakes.
const QUIET_MS: u64 = 2_000;
/// How long new keepers may take to convert the connections: nobody is served meanwhile.
const PREPARE_MS: u64 = 3_000;

/// How a new binary ends that was tried and can go on.
const CAN_GO_ON: Ended = Ended::Exited(CAN_RESUME as i32);

/// The options of `serve` by which a binary is told whose place it takes.
const TRY: &str = "--try-resume=";
const RESUME: &str = "--resume=";

/// An upgrade under way.
pub(super) struct Upgrade {
    binary: PathBuf,
    /// Who waits for an answer.
    asked: Option<u64>,
    began_ms: u64,
    deadline_ms: u64,
    stage: Stage,
}

enum Stage {
    /// The new binary, started to try.
    Check { child: Pid },
    /// Workers that are not quiet yet.
    Quiet { waiting: Vec<usize> },
    /// New keepers that have reported, by pair; since when nobody is served.
    Prepare {
        prepared: Vec<Option<Pid>>,
        since_ms: u64,
    },
}

impl Supervisor {
    /// Begins an upgrade to `binary`, or to whatever lies now where this binary was started from.
    /// `asked` is who waits for an answer.
    pub(super) fn begin_upgrade(&mut self, binary: Option<&Path>, asked: Option<u64>) {
        if let Err(why) = self.try_begin(binary, asked) {
            self.refuse_upgrade(&why, asked);
        }
    }

    fn try_begin(&mut self, binary: Option<&Path>, asked: Option<u64>) -> Result<(), String> {
        if self.upgrade.is_some() {
            return Err("another upgrade is under way".to_owned());
        }
        if self.stopping {
            return Err("the program is stopping".to_owned());
        }
        if self.drain.is_some() || self.reloading.is_some() {
            return Err("a drain or a reload is under way".to_owned());
        }
        if !self
            .pairs
            .iter()
            .all(|pair| pair.ready && pair.ended.is_none())
        {
            return Err("not every worker is ready, or a keeper is gone".to_owned());
        }
        let binary = match binary {
            Some(path) => path.to_owned(),
            None => own_path().map_err(|e| format!("cannot find the path of this binary: {e}"))?,
        };
        let binary = binary
            .canonicalize()
            .map_err(|e| format!("cannot find {}: {e}", binary.display()))?;
        let child = self
            .start_check(&binary)
            .map_err(|e| format!("cannot start {}: {e}", binary.display()))?;
        tracing::info!(binary = %binary.display(), "upgrade: the new binary is tried");
        self.call_back_errand();
        let now_ms = process::monotonic_ms();
        self.upgrade = Some(Upgrade {
            binary,
            asked,
            began_ms: now_ms,
            deadline_ms: now_ms + CHECK_MS,
            stage: Stage::Check { child },
        });
        Ok(())
    }

    fn start_check(&self, binary: &Path) -> io::Result<Pid> {
        let state = self.main_state().write()?;
        let program = self.successor(binary, TRY, state, vec![state]);
        let child = program.start();
        state.close();
        child
    }

    /// The new binary with the arguments of this one.
    fn successor(&self, binary: &Path, how: &str, state: Fd, inherit: Vec<Fd>) -> Program {
        let option = |argument: &OsString| {
            let text = argument.to_string_lossy();
            text.starts_with(TRY) || text.starts_with(RESUME)
        };
        let mut arguments: Vec<OsString> = std::env::args_os().filter(|arg| !option(arg)).collect();
        arguments.push(format!("{how}{state}").into());
        Program {
            file: ProgramFile::Path(binary.to_owned()),
            arguments,
            environment: None,
            inherit: Inherit::Only(inherit),
        }
    }

    fn main_state(&self) -> MainState {
        let admin = self.control.as_ref().map(Control::address);
        MainState {
            told: self.handover(0),
            plan: self.plan.clone(),
            edition: self.edition,
            loaded_ms: self.loaded_ms,
            born_ms: self.born_ms,
            connections_max: self.connections_max,
            next_number: self.numbers.next(),
            waits_for_restart: self.waits_for_restart.clone(),
            pairs: self
                .pairs
                .iter()
                .map(|pair| PairState {
                    keeper: pair.pid.0,
                    born_ms: pair.born_ms,
                    orders: pair.orders.0,
                    board: pair.board.fd().0,
                    edition: pair.edition,
                    share: pair.share.clone(),
                })
                .collect(),
            admin: admin.map(|(fd, path)| (fd.0, path)),
            sessions: self.sessions.as_ref().map(SessionFiles::left),
            former: self.former_keepers.iter().map(|pid| pid.0).collect(),
        }
    }

    /// A process has ended. True: it belongs to an upgrade, and its end has been dealt with.
    pub(super) fn is_of_upgrade(&mut self, pid: Pid, ended: Ended) -> bool {
        if let Some(place) = self.former_keepers.iter().position(|&former| former == pid) {
            self.former_keepers.swap_remove(place);
            return true;
        }
        let Some(upgrade) = &mut self.upgrade else {
            return false;
        };
        match (&upgrade.stage, ended) {
            (&Stage::Check { child }, ended) if child == pid && ended == CAN_GO_ON => {
                self.quiesce();
                true
            }
            (&Stage::Check { child }, ended) if child == pid => {
                let path = upgrade.binary.display();
                let why = format!(
                    "{path} cannot go on with what runs here: tried, it {ended} (what it said \
                     stands above)"
                );
                self.fail_upgrade(&why);
                true
            }
            _ => false,
        }
    }

    fn quiesce(&mut self) {
        let waiting: Vec<usize> = (0..self.pairs.len()).collect();
        let grace_ms = self.config.timeouts.handshake_grace.as_millis() as u64;
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.stage = Stage::Quiet { waiting };
            upgrade.deadline_ms = process::monotonic_ms() + grace_ms + QUIET_MS;
        }
        for pair in &self.pairs {
            pair.order(&Order::Quiesce);
        }
    }

    /// A worker or a keeper says something that concerns an upgrade.
    pub(super) fn on_word_of_upgrade(&mut self, index: usize, word: Word) {
        if let Word::Kept(pid) = word {
            self.note_kept(index, pid);
            return;
        }
        let Some(upgrade) = &mut self.upgrade else {
            return;
        };
        match (&mut upgrade.stage, word) {
            (Stage::Quiet { waiting }, Word::Quiet) => {
                waiting.retain(|&other| other != index);
                if waiting.is_empty() {
                    self.prepare();
                }
            }
            (Stage::Prepare { prepared, .. }, Word::Prepared(pid)) => {
                if let (Some(place), Ok(pid)) = (prepared.get_mut(index), i32::try_from(pid)) {
                    *place = Some(Pid(pid));
                }
                let all: Option<Vec<Pid>> = prepared.iter().copied().collect();
                if let Some(keepers) = all {
                    self.commit(&keepers);
                }
            }
            (_, Word::Refused(why)) => self.fail_upgrade(&why),
            _ => {}
        }
    }

    /// One pair stays with the former binary: its new keeper died after the commit was decided.
    fn note_kept(&mut self, index: usize, pid: u32) {
        let (Some(pair), Ok(pid)) = (self.pairs.get_mut(index), i32::try_from(pid)) else {
            return;
        };
        pair.pid = Pid(pid);
        self.former_keepers.retain(|&former| former != pair.pid);
        tracing::error!(
            worker = index,
            "the new binary died in the last moment of an upgrade; this worker goes on with the \
             former one until the next upgrade"
        );
    }

    fn prepare(&mut self) {
        let now_ms = process::monotonic_ms();
        let Some(upgrade) = &mut self.upgrade else {
            return;
        };
        upgrade.stage = Stage::Prepare {
            prepared: vec![None; self.pairs.len()],
            since_ms: now_ms,
        };
        upgrade.deadline_ms = now_ms + PREPARE_MS;
        let binary = upgrade.binary.to_string_lossy().into_owned();
        let posted: io::Result<()> = self
            .pairs
            .iter()
            .try_for_each(|pair| pair.board.post(Command::Prepare as u32, &binary).map(drop));
        if let Err(error) = posted {
            self.fail_upgrade(&error.to_string());
            return;
        }
        for pair in &self.pairs {
            pair.order(&Order::HandOver);
        }
    }

    /// All pairs are prepared. From here on there is no way back.
    fn commit(&mut self, keepers: &[Pid]) {
        self.post_to_keepers(Command::Commit);
        for (pair, &keeper) in self.pairs.iter_mut().zip(keepers) {
            self.former_keepers.push(pair.pid);
            pair.pid = keeper;
            pair.born_ms = process::boottime_ms();
        }
        let Some(upgrade) = self.upgrade.take() else {
            return;
        };
        let now_ms = process::monotonic_ms();
        let still_ms = match upgrade.stage {
            Stage::Prepare { since_ms, .. } => now_ms.saturating_sub(since_ms),
            _ => 0,
        };
        tracing::info!(
            binary = %upgrade.binary.display(),
            took_ms = now_ms.saturating_sub(upgrade.began_ms),
            still_ms,
            "upgrade: every connection is with the new binary"
        );
        if let Some(asked) = upgrade.asked {
            let path = upgrade.binary.display();
            let words = format!(
                "{path} serves in place of the former binary; nobody was served for {still_ms} ms"
            );
            self.answer(asked, Ok(words));
        }
        if let Err(error) = self.execute(&upgrade.binary) {
            tracing::error!(
                %error,
                "the main process could not execute the new binary, and goes on as the old one"
            );
        }
    }

    /// Main itself: returns only if it could not.
    fn execute(&mut self, binary: &Path) -> io::Result<()> {
        // Control gets the answer that it waits for, and ends; the new main starts its own.
        self.attend_to_control();
        self.end_control();
        self.former_keepers
            .extend(self.control.as_ref().and_then(Control::pid));
        self.former_keepers.extend(self.ticket_keys.end_process());
        let scouts = self.end_scouts();
        self.former_keepers.extend(scouts);
        let state = self.main_state().write()?;
        let mut inherit = vec![state, self.counters.fd()];
        inherit.extend([self.clients.fd(), self.backends.fd()]);
        inherit.extend(self.listeners.iter().map(|listener| listener.fd));
        inherit.extend(self.sessions.as_ref().map(SessionFiles::fd));
        inherit.extend(self.session_cache);
        inherit.extend(self.control.as_ref().map(|control| control.address().0));
        for pair in &self.pairs {
            inherit.extend([pair.orders, pair.board.fd()]);
        }
        let keep = inherit.clone();
        let program = self.successor(binary, RESUME, state, inherit);
        match program.replace_this() {
            Ok(never) => match never {},
            Err(error) => {
                // Nobody who is started from now on is to have these.
                for fd in keep {
                    let _ = fd.set_on_exec(OnExec::Close);
                }
                state.close();
                Err(error)
            }
        }
    }

    fn post_to_keepers(&self, command: Command) {
        for pair in &self.pairs {
            // A post without a text always fits.
            let _ = pair.board.post(command as u32, "");
        }
        for pair in self.pairs.iter().filter(|pair| pair.ended.is_none()) {
            let _ = process::send_signal(pair.pid, Signal::User2);
        }
    }

    /// Back to the old binary and the old memory, whatever the stage.
    pub(super) fn fail_upgrade(&mut self, why: &str) {
        let Some(upgrade) = self.upgrade.take() else {
            return;
        };
        match upgrade.stage {
            Stage::Check { child } => {
                // It may be the one that ended.
                let _ = process::send_signal(child, Signal::Kill);
            }
            Stage::Quiet { .. } => {}
            Stage::Prepare { .. } => self.post_to_keepers(Command::Abort),
        }
        for pair in &self.pairs {
            pair.order(&Order::Resume);
        }
        self.refuse_upgrade(why, upgrade.asked);
    }

    fn refuse_upgrade(&mut self, why: &str, asked: Option<u64>) {
        tracing::error!("upgrade refused: {why}; the running binary goes on");
        if let Some(asked) = asked {
            self.answer(asked, Err(format!("{why}; the running binary goes on")));
        }
    }

    /// How long until the stage of an upgrade has taken too long.
    pub(super) fn until_upgrade_late_ms(&self) -> u64 {
        let upgrade = self.upgrade.as_ref();
        upgrade.map_or(u64::MAX, |upgrade| {
            upgrade.deadline_ms.saturating_sub(process::monotonic_ms())
        })
    }

    /// Gives up an upgrade that takes too long.
    pub(super) fn end_late_upgrade(&mut self) {
        let Some(upgrade) = &self.upgrade else { return };
        if process::monotonic_ms() < upgrade.deadline_ms {
            return;
        }
        let why = match &upgrade.stage {
            Stage::Check { .. } => "the new binary did not answer within 10 s".to_owned(),
            Stage::Quiet { waiting } => format!("workers {waiting:?} did not become quiet"),
            Stage::Prepare { prepared, .. } => {
                let late = prepared.iter().enumerate().filter(|(_, pid)| pid.is_none());
                let late: Vec<usize> = late.map(|(index, _)| index).collect();
                format!("workers {late:?} were not taken over within {PREPARE_MS} ms")
            }
        };
        self.fail_upgrade(&why);
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
