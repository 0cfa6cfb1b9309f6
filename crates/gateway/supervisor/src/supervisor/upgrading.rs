//! The effects of an upgrade on main: start, commit, failure.

use super::Supervisor;
use crate::control::{ControlProcess, FormerControl};
use crate::deep_rest::DeepRest;
use crate::session_files::SessionFiles;
use crate::upgrade::main_state::MainState;
use crate::upgrade::new_binary::NewBinary;
use crate::upgrade::{self, Step, Upgrade};
use dormouse_handover::control::AdminResult;
use dormouse_handover::upgrade::Command;
use dormouse_reactor::process::Pid;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Maximum wait for rotated ticket keys before the new binary is executed: workers are paused.
const SAVED_MAX: Duration = Duration::from_millis(200);

impl Supervisor {
    pub(super) fn begin_upgrade(&mut self, binary: Option<&Path>, request: Option<u64>) {
        let begun = match self.refusal_of_upgrade() {
            Some(why) => Err(why.to_owned()),
            None => Upgrade::begin(binary, request, self.main_state()),
        };
        match begun {
            Ok(upgrade) => {
                self.authorities.cancel(&self.serving.pairs);
                self.upgrade = Some(upgrade);
            }
            Err(why) => self.refuse_upgrade(&why, request),
        }
    }

    fn refusal_of_upgrade(&self) -> Option<&'static str> {
        if self.upgrade.is_some() {
            Some("another upgrade is in progress")
        } else if self.is_stopping {
            Some("the program is stopping")
        } else if self.drain.is_under_way() || self.is_reloading() {
            Some("a drain or a reload is in progress")
        } else if self.serving.pairs.are_renewed() {
            Some("a worker is being replaced after a reload that added a unix socket")
        } else if !self.serving.pairs.are_whole() {
            Some("a worker is not ready, or a keeper is gone")
        } else {
            None
        }
    }

    pub(super) fn take_step(&mut self, step: Step) {
        match step {
            Step::Wait => {}
            // To execute a binary ends the thread that saves them, and waits for its disk.
            Step::Commit(_) if !self.finish_rotations(SAVED_MAX) => {
                self.fail_upgrade("the disk has not taken new ticket keys yet; try again later");
            }
            Step::Commit(keepers) => self.commit_upgrade(&keepers),
            Step::Fail(why) => self.fail_upgrade(&why),
        }
    }

    /// Commits the upgrade after all pairs are prepared. There is no way back from here.
    fn commit_upgrade(&mut self, keepers: &[Pid]) {
        let pairs = &mut self.serving.pairs;
        pairs.command(Command::Commit);
        self.history.ending.extend(pairs.replace_keepers(keepers));
        let upgrade = self.upgrade.take();
        let upgrade = upgrade.expect("only an upgrade is committed");
        let (binary, result) = upgrade.complete();
        let request = result.as_ref().map(|result| result.id);
        if let Err(error) = self.execute(&binary, result) {
            tracing::error!(
                %error,
                "main could not execute the new binary; it continues as the old one"
            );
            let result = request.map(|id| AdminResult {
                id,
                done: false,
                words: format!(
                    "main could not execute the new binary and continues as the old one, with workers of \
                     the new one: {error}"
                ),
            });
            if let Some(control) = &mut self.control {
                control.not_replaced(result);
            }
        }
    }

    /// Executes the new binary in this process. Returns only on failure; the next turn then starts the helpers
    /// again.
    fn execute(&mut self, binary: &NewBinary, result: Option<AdminResult>) -> io::Result<()> {
        // Control sends its pending answers first, and learns of the new keepers.
        self.attend_to_control();
        let mut fds = self.serving.fds();
        if let Some(control) = &mut self.control {
            let waits = control.end_once_replaced(result, &self.poller);
            self.history.ending.extend(waits);
            fds.extend(control.addresses().fds());
            fds.extend(control.former().map(FormerControl::channel));
        }
        self.end_helpers();
        upgrade::execute(binary, &self.main_state(), &fds)
    }

    fn main_state(&self) -> MainState {
        let serving = &self.serving;
        let control = self.control.as_ref();
        let admin = control.and_then(|control| control.addresses().file());
        MainState {
            handover: serving.handover(0),
            plan: serving.edition.plan.clone(),
            edition: serving.edition.number,
            loaded_ms: serving.edition.loaded_ms,
            born_ms: self.history.born_ms,
            connections_max: serving.connections_max,
            next_number: serving.listening.numbers().next(),
            spare_listeners: serving.listening.spare().iter().map(|fd| fd.0).collect(),
            waits_for_restart: self.history.waits_for_restart.clone(),
            ctl_changes: self.history.ctl_changes.clone(),
            pairs: serving.pairs.state(),
            control: control.map(|control| control.addresses().state()),
            former_control: control.and_then(ControlProcess::former),
            socket_files: serving.listening.files().chain(admin).cloned().collect(),
            sessions: serving.memory.sessions.as_ref().map(SessionFiles::state),
            former: self.history.ending.iter().map(|pid| pid.0).collect(),
            log_writer: self.log_writer.former().map(|pid| pid.0),
            rest: serving.rest.as_ref().map(DeepRest::state),
            workload: serving.edition.material.workload.clone(),
            directory: None,
        }
    }

    /// Tells the old binary's control process that this binary runs.
    pub(crate) fn replaces(&mut self, former: Option<FormerControl>) {
        if let (Some(control), Some(former)) = (&mut self.control, former) {
            control.replaced(former);
        }
    }

    /// Handles a pair that stays with the old binary, because its new keeper died after the commit.
    pub(super) fn on_kept(&mut self, worker: usize) {
        // A worker can report this at any time.
        let Some(keeper) = self.serving.pairs.restore_keeper(worker) else {
            return;
        };
        self.history.ending.retain(|&ending| ending != keeper);
        tracing::error!(
            worker,
            "new binary died during the commit; this worker keeps the old binary until the next \
             upgrade"
        );
    }

    /// Returns to the old binary and the old memory, at any stage.
    pub(super) fn fail_upgrade(&mut self, why: &str) {
        if let Some(upgrade) = self.upgrade.take() {
            let request = upgrade.abort(&self.serving.pairs);
            // New addresses found meanwhile were dropped. The next scout looks all names up at once.
            self.history.ending.extend(self.monitor.end(&self.poller));
            self.refuse_upgrade(why, request);
        }
    }

    fn refuse_upgrade(&mut self, why: &str, request: Option<u64>) {
        tracing::error!(error = why, "upgrade failed; old binary continues");
        if let Some(request) = request {
            self.answer(request, Err(format!("{why}; the old binary continues")));
        }
    }
}
