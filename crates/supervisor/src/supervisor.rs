//! The supervisor: main's parts, and the loop that composes them.
//!
//! Each part owns its fields and knows nothing of the others. What an event in one part means for
//! another is a value that the supervisor carries over.

use crate::authorities::{Authorities, NewCertificates};
use crate::certificate_watch::CertificateWatch;
use crate::control::ControlProcess;
use crate::drain::Drain;
use crate::error::{ServeError, system};
use crate::main_state::MainState;
use crate::material::Material;
use crate::reload::{self, ReloadPlan, Reloaded};
use crate::reload_report::{Finished, ReloadReport};
use crate::scout::{BackendMonitor, FinishedLookup, FoundNames, ReloadLookup};
use crate::serving::{self, Serving};
use crate::session_files::SessionFiles;
use crate::source::Source;
use crate::systemd::Notifier;
use crate::tokens;
use crate::upgrade::{self, Step, Upgrade};
use dormouse_config::Log;
use dormouse_dataplane::keeper;
use dormouse_handover::orders::{Order, Word};
use dormouse_handover::talk::{Ask, Bounds, Configuration, Phase, Request, State};
use dormouse_handover::unix_time;
use dormouse_handover::upgrade::Command;
use dormouse_reactor::poller::{Events, Poller};
use dormouse_reactor::process::{self, Ended, Pid, Wait};
use dormouse_reactor::signal::{Signal, Signals};
use dormouse_reactor::socket::Attempt;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Time for the last processes to end before main does.
const LAST_ONES_MS: u64 = 1_000;
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What main remembers across an upgrade, beside what serves.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) born_ms: u64,
    /// All workers have been ready.
    pub(crate) is_announced: bool,
    /// Processes whose end is still to come, and means nothing.
    pub(crate) ending: Vec<Pid>,
    /// Options that have changed, and wait for the next start.
    pub(crate) waits_for_restart: Vec<String>,
}

/// Main.
pub(crate) struct Supervisor {
    source: Source,
    /// Sets what is logged, after each reload.
    set_logs: fn(&Log),
    serving: Serving,
    control: Option<ControlProcess>,
    certificate_watch: CertificateWatch,
    authorities: Authorities,
    monitor: BackendMonitor,
    lookup: ReloadLookup,
    reload: ReloadReport,
    drain: Drain,
    upgrade: Option<Upgrade>,
    notifier: Notifier,
    poller: Poller,
    signals: Signals,
    history: History,
    is_stopping: bool,
}

impl Supervisor {
    pub(crate) fn new(
        source: Source,
        set_logs: fn(&Log),
        serving: Serving,
        control: Option<ControlProcess>,
        poller: Poller,
        signals: Signals,
        history: History,
    ) -> Supervisor {
        Supervisor {
            source,
            set_logs,
            certificate_watch: CertificateWatch::begin(&serving.edition.config),
            serving,
            control,
            authorities: Authorities::default(),
            monitor: BackendMonitor::default(),
            lookup: ReloadLookup::default(),
            reload: ReloadReport::default(),
            drain: Drain::default(),
            upgrade: None,
            notifier: Notifier::from_environment(),
            poller,
            signals,
            history,
            is_stopping: false,
        }
    }

    /// Starts all keepers.
    pub(crate) fn start_pairs(&mut self) -> io::Result<()> {
        self.serving.start_pairs(&self.poller)
    }

    /// Runs until all workers are gone.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        // Processes that ended before a new binary listened.
        self.reap()?;
        self.follow_edition();
        let mut events = Events::with_capacity(64);
        loop {
            self.attend_to_control();
            self.attend_to_scouts();
            self.poller
                .wait(&mut events, self.timeout_ms())
                .map_err(system("wait for events"))?;
            self.on_time();
            for event in events.iter() {
                match event.token() {
                    tokens::SIGNALS => self.on_signals()?,
                    tokens::CONTROL => self.on_control(),
                    tokens::TICKET_KEYS => self.serving.rotate_ticket_keys(&self.poller),
                    tokens::ERRAND => self.on_errand(),
                    tokens::MONITOR => self.on_monitor(),
                    tokens::LOOKUP => self.on_lookup(),
                    token => self.on_worker(token.saturating_sub(tokens::WORKERS) as usize),
                }
            }
            self.authorities.announce_challenge(&self.serving.pairs);
            if self.serving.pairs.are_over() {
                return self.end();
            }
        }
    }

    fn attend_to_control(&mut self) {
        let state = self.control.is_some().then(|| self.state());
        if let (Some(control), Some(state)) = (&mut self.control, state) {
            control.attend(state, &self.serving.memory, &self.poller);
        }
    }

    fn attend_to_scouts(&mut self) {
        if let Some(finished) = self.lookup.end_if_late(&self.poller) {
            self.on_lookup_finished(finished);
        }
        if !self.is_stopping {
            let Serving {
                edition, memory, ..
            } = &self.serving;
            let is_settled = self.is_settled();
            self.monitor
                .attend(edition, &memory.backends, &self.poller, is_settled);
        }
    }

    /// Does what is due.
    fn on_time(&mut self) {
        self.notifier.alive(process::boottime_ms());
        self.serving.rotate_ticket_keys(&self.poller);
        if let Some(why) = self.upgrade.as_ref().and_then(Upgrade::late) {
            self.fail_upgrade(&why);
        }
        if self.may_change() {
            self.look_at_certificates();
        }
        if self
            .authorities_deadline_ms()
            .is_some_and(|at_ms| at_ms <= process::boottime_ms())
        {
            let Serving { edition, pairs, .. } = &self.serving;
            self.authorities.attend(edition, pairs, &self.poller);
        }
        let Serving { edition, pairs, .. } = &self.serving;
        let late = self.reload.finish_if_late(edition.number, pairs);
        self.publish_reload(late);
        if let Some(sessions) = &mut self.serving.memory.sessions {
            sessions.save_if_due();
        }
    }

    fn timeout_ms(&self) -> Option<u64> {
        let until_ms = |at_ms: u64| at_ms.saturating_sub(process::boottime_ms());
        let Serving {
            edition,
            memory,
            ticket_keys,
            ..
        } = &self.serving;
        let control = self.control.as_ref();
        let certificates = self.certificate_watch.next_look_ms(&edition.config);
        let at = [
            control.and_then(ControlProcess::next_deadline_ms),
            self.notifier.next_ms(),
            certificates.filter(|_| self.may_change()),
            self.authorities_deadline_ms(),
            self.reload.next_deadline_ms(),
            self.lookup.next_deadline_ms(),
            self.monitor
                .next_deadline_ms()
                .filter(|_| !self.is_stopping),
        ];
        let sessions = memory.sessions.as_ref();
        let left = [
            ticket_keys.until_due_ms(unix_time()),
            self.upgrade.as_ref().map(Upgrade::until_late_ms),
            sessions.and_then(SessionFiles::until_look_ms),
        ];
        let at = at.into_iter().flatten().map(until_ms);
        at.chain(left.into_iter().flatten()).min()
    }

    /// Neither an upgrade nor the end is under way, so that what runs may change by itself.
    fn may_change(&self) -> bool {
        !self.is_stopping && self.upgrade.is_none()
    }

    /// All workers follow the edition in force, and it stays.
    fn is_settled(&self) -> bool {
        let Serving { edition, pairs, .. } = &self.serving;
        pairs.have_edition(edition.number) && self.upgrade.is_none()
    }

    fn end(mut self) -> Result<(), ServeError> {
        if let Some(control) = &self.control {
            control.end();
        }
        self.end_scouts();
        if let Some(sessions) = &mut self.serving.memory.sessions {
            sessions.save();
        }
        wait_for_the_last();
        match self.is_stopping {
            true => Ok(()),
            false => Err(ServeError::Workers("all workers are gone".to_owned())),
        }
    }

    // ---- signals and processes ----

    fn on_signals(&mut self) -> Result<(), ServeError> {
        while let Attempt::Done(received) =
            self.signals.receive().map_err(system("receive a signal"))?
        {
            match received.signal {
                Signal::Child => self.reap()?,
                Signal::Terminate | Signal::Interrupt => self.stop(),
                Signal::User2 => self.begin_upgrade(None, None),
                Signal::Hangup => self.reload(None),
                _ => {}
            }
        }
        Ok(())
    }

    /// Accepts nothing more, lets pending work end, and closes everything; then the workers end.
    fn stop(&mut self) {
        self.fail_upgrade("the program is to stop");
        if !self.is_stopping {
            self.notifier.stopping();
            tracing::info!("stopping: no more is accepted, what is pending may end");
        }
        self.is_stopping = true;
        let Serving {
            edition,
            listening,
            pairs,
            ..
        } = &self.serving;
        self.authorities.call_back(pairs);
        pairs.order_all(&Order::Stop);
        // After the order, so that no worker polls a listener that does not listen.
        listening.leave(&edition.config);
    }

    /// Takes note of all processes that have ended.
    fn reap(&mut self) -> Result<(), ServeError> {
        while let Some((pid, ended)) =
            process::wait(Wait::AnyEnded).map_err(system("wait for processes"))?
        {
            if !self.note_helper_end(pid, ended) {
                self.note_keeper_end(pid, ended)?;
            }
        }
        Ok(())
    }

    /// Notes the end of a process that is no keeper. `false`: it may be one.
    fn note_helper_end(&mut self, pid: Pid, ended: Ended) -> bool {
        if let Some(place) = self.history.ending.iter().position(|&ending| ending == pid) {
            self.history.ending.swap_remove(place);
            return true;
        }
        let Serving {
            edition,
            memory,
            ticket_keys,
            pairs,
            ..
        } = &mut self.serving;
        if let Some(upgrade) = &mut self.upgrade {
            let grace_ms = edition.config.timeouts.handshake_grace.as_millis() as u64;
            if let Some(step) = upgrade.note_end(pid, ended, grace_ms, pairs) {
                self.take_step(step);
                return true;
            }
        }
        if self.authorities.is_errand(pid) {
            // It may have reported something before.
            self.on_errand();
            self.authorities
                .note_end(ended, &self.serving.pairs, &self.poller);
            return true;
        }
        if let Some(finished) = self.lookup.note_end(pid, &self.poller) {
            self.on_lookup_finished(finished);
            return true;
        }
        if self.monitor.note_end(pid, &self.poller) {
            if !self.is_stopping {
                tracing::error!("the scout is gone ({ended}); it is started again");
            }
            return true;
        }
        let control = self.control.as_mut();
        control.is_some_and(|control| control.note_end(pid, ended, &self.poller))
            || ticket_keys.ended(pid, ended, &memory.counters)
    }

    fn note_keeper_end(&mut self, pid: Pid, ended: Ended) -> Result<(), ServeError> {
        let Some(was_ready) = self.serving.pairs.note_end(pid, ended) else {
            // A former keeper leaves its last worker to us, which ended as it should.
            if ended != Ended::Exited(i32::from(keeper::EXIT_HANDED_OVER)) {
                tracing::warn!(pid = pid.0, "an orphaned worker ended: {ended}");
            }
            return Ok(());
        };
        if ended == Ended::Exited(i32::from(keeper::EXIT_CANNOT_BEGIN)) && !was_ready {
            self.stop();
            let what = "a worker could not begin: see above".to_owned();
            return Err(ServeError::Workers(what));
        }
        if !self.is_stopping {
            tracing::error!(
                pid = pid.0,
                "a keeper is gone ({ended}); its worker serves on, \
                but would not be started again"
            );
        }
        self.fail_upgrade("a keeper ended meanwhile");
        Ok(())
    }

    // ---- workers ----

    fn on_worker(&mut self, worker: usize) {
        let Some(word) = self.serving.pairs.receive(worker, &self.poller) else {
            return;
        };
        match word {
            Word::Ready => self.on_ready(worker),
            Word::Reloaded(_) => self.finish_reload_if_complete(),
            Word::NotReloaded(edition, why) => {
                if edition == self.serving.edition.number {
                    let finished = self.reload.refused_by(worker, &why);
                    self.publish_reload(finished);
                }
            }
            Word::Shows(_) => {}
            Word::Kept(pid) => self.on_kept(worker, pid),
            word => {
                let pairs = &self.serving.pairs;
                if let Some(upgrade) = &mut self.upgrade {
                    let step = upgrade.note_word(worker, word, pairs);
                    self.take_step(step);
                }
            }
        }
    }

    /// A worker serves: the first one, or one that came after a crash.
    fn on_ready(&mut self, worker: usize) {
        self.serving.bring_up_to_date(worker);
        let pairs = &self.serving.pairs;
        if let Some(order) = self.drain.rest() {
            pairs.order(worker, &order);
        }
        if self.is_stopping {
            pairs.order(worker, &Order::Stop);
        }
        self.authorities.repeat_challenge(worker, pairs);
        if !self.history.is_announced && pairs.are_ready() {
            self.history.is_announced = true;
            tracing::info!(workers = pairs.len(), pid = std::process::id(), "ready");
            self.notifier.ready(pairs.len());
        }
    }

    // ---- control ----

    fn on_control(&mut self) {
        let control = self.control.as_ref();
        let Some(Request { id, ask }) = control.and_then(|one| one.receive(&self.poller)) else {
            return;
        };
        tracing::info!(?ask, "asked by way of the admin address");
        match ask {
            Ask::Upgrade { binary } => self.begin_upgrade(binary.as_deref(), Some(id)),
            // The answer comes when all workers have the new configuration.
            Ask::Reload => self.reload(Some(id)),
            Ask::Drain { over_ms, order } => {
                let Serving {
                    memory,
                    pairs,
                    listening,
                    ..
                } = &self.serving;
                let counters = &memory.counters;
                let result = match self.refusal_of_change() {
                    Some(why) => Err(why),
                    None => self.drain.begin(over_ms, order, counters, pairs, listening),
                };
                self.answer(id, result);
            }
            Ask::StopDrain => {
                let Serving {
                    edition,
                    pairs,
                    listening,
                    ..
                } = &self.serving;
                let result = self.drain.stop(&edition.config, pairs, listening);
                self.answer(id, result);
            }
        }
    }

    fn answer(&mut self, request: u64, result: Result<String, String>) {
        if let Some(control) = &mut self.control {
            control.answer(request, result);
        }
    }

    /// What main knows, for control. It differs from turn to turn only when something has happened.
    fn state(&self) -> State {
        let Serving { edition, pairs, .. } = &self.serving;
        let plan = &edition.plan;
        State {
            pid: process::pid().0,
            born_ms: self.history.born_ms,
            phase: self.phase(),
            keepers: pairs.keepers(),
            configuration: Configuration {
                file: self.source.file.clone(),
                edition: edition.number,
                loaded_ms: edition.loaded_ms,
                last_reload: self.reload.last(),
                waits_for_restart: self.history.waits_for_restart.clone(),
            },
            bounds: Bounds {
                connections: plan.connections_max.into(),
                handshakes: plan.handshakes_max.into(),
                pending_bytes: plan.pending_memory.0,
                handshake_bytes: edition.config.limits.handshake_bytes_max.0,
                kernel_bytes: plan.kernel_memory.0,
            },
            certificates: edition.reported_certificates(),
            acme: self.authorities.report(),
            drain: self.drain.report(),
            backends: edition.reported_backends(&self.serving.memory.backends),
        }
    }

    fn phase(&self) -> Phase {
        if self.is_stopping {
            Phase::Stopping
        } else if self.drain.is_under_way() {
            Phase::Draining
        } else if self.history.is_announced {
            Phase::Ready
        } else {
            Phase::Starting
        }
    }

    // ---- certificates and backends ----

    fn look_at_certificates(&mut self) {
        let Some(changed) = self.certificate_watch.look(&self.serving.edition) else {
            return;
        };
        match self.apply_material(changed.material) {
            Ok(()) => tracing::info!(
                edition = self.serving.edition.number,
                "certificates have changed, and are used from now on: {}",
                changed.names.join(", ")
            ),
            Err(error) => tracing::error!("new certificates can't be used: {error}"),
        }
        process::return_heap();
    }

    /// When authorities are asked. During a drain no ACME server could see that a name is ours.
    fn authorities_deadline_ms(&self) -> Option<u64> {
        let is_accepting = !self.drain.is_under_way();
        self.authorities
            .next_deadline_ms(&self.serving.edition, is_accepting)
            .filter(|_| self.may_change())
    }

    fn on_errand(&mut self) {
        let Serving { edition, pairs, .. } = &self.serving;
        let new = self.authorities.receive(edition, pairs, &self.poller);
        if new.is_empty() {
            return;
        }
        for new in new {
            match new {
                NewCertificates::Stapled(certificates) => {
                    let material = self.serving.edition.with_certificates(certificates);
                    if let Err(error) = self.apply_material(material) {
                        tracing::error!("new OCSP responses can't be used: {error}");
                    }
                }
                NewCertificates::Issued { name, certificates } => {
                    let material = self.serving.edition.with_certificates(certificates);
                    match self.apply_material(material) {
                        Ok(()) => tracing::info!(
                            name,
                            edition = self.serving.edition.number,
                            "a certificate has come from the ACME server, and is used from now on"
                        ),
                        Err(why) => self.authorities.note_refused(&name, &why),
                    }
                }
            }
        }
        process::return_heap();
    }

    fn apply_material(&mut self, material: Material) -> Result<(), String> {
        let is_draining = self.drain.is_under_way();
        self.serving.apply_material(material, is_draining)?;
        self.follow_edition();
        Ok(())
    }

    /// The edition is another one, or a name in it has other addresses.
    fn follow_edition(&mut self) {
        let Serving {
            edition, memory, ..
        } = &self.serving;
        let former = self.monitor.follow(edition, &memory.backends, &self.poller);
        self.history.ending.extend(former);
    }

    fn on_monitor(&mut self) {
        let backends = &self.serving.memory.backends;
        let Some(found) = self.monitor.receive(backends, &self.poller) else {
            return;
        };
        // What an upgrade passes on does not change meanwhile: the name is looked up again soon.
        if self.upgrade.is_none() && self.serving.set_addresses(&found.name, &found.addresses) {
            self.follow_edition();
        }
    }

    /// The program ends, or another binary goes on, which starts its own.
    fn end_scouts(&mut self) {
        self.history.ending.extend(self.monitor.end(&self.poller));
        self.history.ending.extend(self.lookup.end(&self.poller));
    }

    // ---- reload ----

    /// Reads the configuration again, and answers the request. If there are names in it, a scout looks
    /// them up first.
    fn reload(&mut self, request: Option<u64>) {
        self.notifier.reloading();
        if !self.lookup.join(request) {
            self.reload_with(request.into_iter().collect(), &FoundNames::new());
        }
    }

    fn on_lookup(&mut self) {
        if let Some(finished) = self.lookup.receive(&self.poller) {
            self.on_lookup_finished(finished);
        }
    }

    fn on_lookup_finished(&mut self, finished: FinishedLookup) {
        self.history.ending.extend(finished.ending);
        self.reload_with(finished.requests, &finished.found);
    }

    fn reload_with(&mut self, requests: Vec<u64>, names: &FoundNames) {
        match self.try_reload(&requests, names) {
            Ok(Some(words)) => {
                tracing::info!("{words}");
                self.reload.wait(requests, words);
                self.finish_reload_if_complete();
            }
            Ok(None) => {}
            Err(why) => {
                tracing::error!("the configuration is refused, the old one stays:\n{why}");
                self.publish_reload(Some(Finished::refused(requests, why)));
            }
        }
        // What was parsed for it is not kept.
        process::return_heap();
    }

    /// What was done. `None`: names are looked up first.
    fn try_reload(
        &mut self,
        requests: &[u64],
        names: &FoundNames,
    ) -> Result<Option<String>, String> {
        self.not_while_upgrading()?;
        let edition = &self.serving.edition;
        let loaded = match reload::load(&self.source, names, edition)? {
            Reloaded::Complete(loaded) => *loaded,
            Reloaded::LookUp(names) => {
                let started =
                    self.lookup
                        .start(names, requests.to_vec(), &edition.config, &self.poller);
                started.map_err(|error| format!("names can't be looked up: {error}"))?;
                return Ok(None);
            }
        };
        let fixed = self.serving.fixed();
        let ReloadPlan {
            config,
            plan,
            waits_for_restart,
        } = reload::plan(&edition.config, &edition.plan, loaded, &fixed);
        let material = Material::load(&config, &edition.material.certificates);
        let material = material.map_err(|mistakes| serving::in_words(&mistakes))?;
        self.serving.follow(&config, &material)?;
        let is_draining = self.drain.is_under_way();
        self.serving.apply(config, plan, material, is_draining)?;
        (self.set_logs)(&self.serving.edition.config.log);
        self.follow_edition();
        self.authorities.try_at_once();
        let mut words = format!(
            "configuration reloaded, edition {}",
            self.serving.edition.number
        );
        if !waits_for_restart.is_empty() {
            words.push_str("; these were changed, and wait for a restart: ");
            words.push_str(&waits_for_restart.join(", "));
        }
        self.history.waits_for_restart = waits_for_restart;
        Ok(Some(words))
    }

    fn finish_reload_if_complete(&mut self) {
        let Serving { edition, pairs, .. } = &self.serving;
        let finished = self.reload.finish_if_complete(edition.number, pairs);
        self.publish_reload(finished);
    }

    fn publish_reload(&mut self, finished: Option<Finished>) {
        if let Some(finished) = finished {
            let control = self.control.as_mut();
            self.reload.publish(finished, &self.notifier, control);
        }
    }

    /// Why a drain can't begin now.
    fn refusal_of_change(&self) -> Option<String> {
        match self.is_stopping {
            true => Some("the program is about to end".to_owned()),
            false => self.not_while_upgrading().err(),
        }
    }

    /// An upgrade passes on what runs: nothing of it may change meanwhile.
    fn not_while_upgrading(&self) -> Result<(), String> {
        match self.upgrade {
            Some(_) => Err("an upgrade goes on: try again when it is over".to_owned()),
            None => Ok(()),
        }
    }

    // ---- upgrade ----

    fn begin_upgrade(&mut self, binary: Option<&Path>, request: Option<u64>) {
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
        } else if !self.serving.pairs.are_whole() {
            Some("not every worker is ready, or a keeper is gone")
        } else {
            None
        }
    }

    fn take_step(&mut self, step: Step) {
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
    fn execute(&mut self, binary: &Path) -> io::Result<()> {
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
        let mut fds = self.serving.fds();
        fds.extend(self.control.as_ref().map(|control| control.address().0));
        upgrade::execute(binary, &self.main_state(), &fds)
    }

    fn main_state(&self) -> MainState {
        let serving = &self.serving;
        let admin = self.control.as_ref().map(ControlProcess::address);
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
            admin: admin.map(|(fd, path)| (fd.0, path)),
            sessions: serving.memory.sessions.as_ref().map(SessionFiles::state),
            former: self.history.ending.iter().map(|pid| pid.0).collect(),
        }
    }

    /// A pair stays with the former binary: its new keeper died after the commit was decided.
    fn on_kept(&mut self, worker: usize, pid: u32) {
        let Ok(pid) = i32::try_from(pid) else {
            return;
        };
        self.serving.pairs.set_keeper(worker, Pid(pid));
        self.history.ending.retain(|&ending| ending != Pid(pid));
        tracing::error!(
            worker,
            "the new binary died in the last moment of an upgrade; this worker goes on with the \
             former one until the next upgrade"
        );
    }

    /// Goes back to the old binary and the old memory, whatever the stage.
    fn fail_upgrade(&mut self, why: &str) {
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

/// Main is the last to go. A service manager that finds main gone and another process still there
/// has to end that, and may not learn when it has ended: systemd then waits for `TimeoutStopSec`.
fn wait_for_the_last() {
    let until_ms = process::monotonic_ms() + LAST_ONES_MS;
    while process::has_children() && process::monotonic_ms() < until_ms {
        if !matches!(process::wait(Wait::AnyEnded), Ok(Some(_))) {
            thread::sleep(LOOK_AGAIN);
        }
    }
}
