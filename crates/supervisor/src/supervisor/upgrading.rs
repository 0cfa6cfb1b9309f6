//! An upgrade, as far as it concerns all of main: begun, committed or given up.

use super::Supervisor;
use crate::main_state::MainState;
use crate::new_binary::NewBinary;
use crate::session_files::SessionFiles;
use crate::upgrade::{self, Step, Upgrade};
use dormouse_handover::upgrade::Command;
use dormouse_reactor::process::Pid;
use std::io;
use std::path::Path;

impl Supervisor {
    pub(super) fn begin_upgrade(&mut self, binary: Option<&Path>, request: Option<u64>) {
        let begun = match self.refusal_of_upgrade() {
            Some(why) => Err(why.to_owned()),
            None => Upgrade::begin(binary, request, &self.main_state()),
        };
        match begun {
            Ok(upgrade) => {
                self.authorities.call_back(&self.serving.pairs);
                self.upgrade = Some(upgrade);
            }
            Err(why) => self.refuse_upgrade(&why, request),
        }
    }

    fn refusal_of_upgrade(&self) -> Option<&'static str> {
        if self.upgrade.is_some() {
            Some("another upgrade is under way")
        } else if self.is_stopping {
            Some("the program is stopping")
        } else if self.drain.is_under_way() || self.reload.is_waiting() {
            Some("a drain or a reload is under way")
        } else if self.serving.pairs.are_renewed() {
            Some("a worker is being replaced, because a reload has brought a unix socket")
        } else if !self.serving.pairs.are_whole() {
            Some("not every worker is ready, or a keeper is gone")
        } else {
            None
        }
    }

    pub(super) fn take_step(&mut self, step: Step) {
        match step {
            Step::Wait => {}
            Step::Commit(keepers) => self.commit_upgrade(&keepers),
            Step::Fail(why) => self.fail_upgrade(&why),
        }
    }

    /// All pairs are prepared. From here on there is no way back.
    fn commit_upgrade(&mut self, keepers: &[Pid]) {
        let pairs = &mut self.serving.pairs;
        pairs.command(Command::Commit);
        self.history.ending.extend(pairs.replace_keepers(keepers));
        let Some(upgrade) = self.upgrade.take() else {
            return;
        };
        let (binary, answer) = upgrade.complete();
        if let Some((request, words)) = answer {
            self.answer(request, Ok(words));
        }
        if let Err(error) = self.execute(&binary) {
            tracing::error!(
                %error,
                "the main process could not execute the new binary, and goes on as the old one"
            );
        }
    }

    /// Executes the new binary in this process. Returns only if it could not.
    fn execute(&mut self, binary: &NewBinary) -> io::Result<()> {
        // Control gets the answer that it waits for, and ends; the new main starts its own.
        self.attend_to_control();
        if let Some(control) = &self.control {
            control.end();
            self.history.ending.extend(control.pid());
        }
        self.history
            .ending
            .extend(self.serving.ticket_keys.end_process());
        self.end_scouts();
        self.log_writer.end(&self.poller);
        let mut fds = self.serving.fds();
        let control = self.control.iter();
        fds.extend(control.flat_map(|control| control.addresses().fds()));
        upgrade::execute(binary, &self.main_state(), &fds)
    }

    fn main_state(&self) -> MainState {
        let serving = &self.serving;
        let control = self.control.as_ref();
        MainState {
            handover: serving.handover(0),
            plan: serving.edition.plan.clone(),
            edition: serving.edition.number,
            loaded_ms: serving.edition.loaded_ms,
            born_ms: self.history.born_ms,
            connections_max: serving.connections_max,
            next_number: serving.listening.numbers().next(),
            waits_for_restart: self.history.waits_for_restart.clone(),
            pairs: serving.pairs.state(),
            control: control.map(|control| control.addresses().state()),
            sessions: serving.memory.sessions.as_ref().map(SessionFiles::state),
            former: self.history.ending.iter().map(|pid| pid.0).collect(),
            log_writer: self.log_writer.former().map(|pid| pid.0),
        }
    }

    /// A pair stays with the former binary: its new keeper died after the commit was decided.
    pub(super) fn on_kept(&mut self, worker: usize) {
        let Some(keeper) = self.serving.pairs.restore_keeper(worker) else {
            return;
        };
        self.history.ending.retain(|&ending| ending != keeper);
        tracing::error!(
            worker,
            "the new binary died in the last moment of an upgrade; this worker goes on with the \
             former one until the next upgrade"
        );
    }

    /// Goes back to the old binary and the old memory, whatever the stage.
    pub(super) fn fail_upgrade(&mut self, why: &str) {
        if let Some(upgrade) = self.upgrade.take() {
            let request = upgrade.abort(&self.serving.pairs);
            self.refuse_upgrade(why, request);
        }
    }

    fn refuse_upgrade(&mut self, why: &str, request: Option<u64>) {
        tracing::error!("upgrade refused: {why}; the running binary goes on");
        if let Some(request) = request {
            self.answer(request, Err(format!("{why}; the running binary goes on")));
        }
    }
}
