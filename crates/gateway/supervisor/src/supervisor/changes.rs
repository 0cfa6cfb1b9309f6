//! Changes of the running configuration: reloads, new certificates, changed addresses of backends.

use super::Supervisor;
use crate::authorities::Issued;
use crate::configuration::load::Ready;
use crate::connection_log::LogFile;
use crate::ctl::kept::KeptChanges;
use crate::material::Material;
use crate::pages::{Asker, Passed};
use crate::reload::answer;
use crate::reload::ctl_changes::CtlChanges;
use crate::reload::report::{Cause, Finished};
use crate::reload::{self, ReloadPlan, Reloaded};
use crate::scout::{FinishedLookup, FoundNames};
use crate::serving::Serving;
use dormouse_handover::connections::Page;
use dormouse_reactor::process;

impl Supervisor {
    pub(super) fn poll_certificates(&mut self) {
        let Some(changed) = self.certificate_watch.poll(&self.serving.edition) else {
            return;
        };
        match self.apply_material(changed.material) {
            Ok(()) => {
                self.recheck.begin();
                tracing::info!(
                    edition = self.serving.edition.number,
                    changed = changed.names.join(", "),
                    "certificates reloaded"
                );
            }
            Err(error) => {
                tracing::error!(error, "certificate reload failed; keeping the current ones");
                self.certificate_watch.try_again();
            }
        }
        process::return_heap();
    }

    /// Time of the next action for OCSP and ACME. `None` during a drain, when no ACME server could validate
    /// a name.
    pub(super) fn authorities_deadline_ms(&self) -> Option<u64> {
        let is_accepting = !self.drain.is_under_way();
        self.authorities
            .next_deadline_ms(&self.serving.edition, is_accepting)
            .filter(|_| self.may_change())
    }

    /// Does what is due for OCSP and ACME.
    pub(super) fn attend_to_authorities(&mut self) {
        let now_ms = process::boottime_ms();
        if (self.authorities_deadline_ms()).is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        if let Some(certificates) = self.authorities.staple(&self.serving.edition) {
            let material = self.serving.edition.with_certificates(certificates);
            if let Err(error) = self.apply_material(material) {
                tracing::error!(error, "OCSP responses could not be applied");
            }
            process::return_heap();
        }
        self.authorities.save(&self.serving.edition);
        let is_accepting = !self.drain.is_under_way();
        let Serving { edition, pairs, .. } = &self.serving;
        self.authorities
            .attend(edition, pairs, &self.poller, is_accepting);
    }

    pub(super) fn on_errand(&mut self) {
        let Serving { edition, pairs, .. } = &self.serving;
        let new = self.authorities.receive(edition, pairs, &self.poller);
        if new.is_empty() {
            return;
        }
        for Issued { name, certificates } in new {
            let material = self.serving.edition.with_certificates(certificates);
            match self.apply_material(material) {
                Ok(()) => tracing::info!(
                    name,
                    edition = self.serving.edition.number,
                    "ACME certificate in use"
                ),
                Err(why) => self.authorities.note_refused(&name, &why),
            }
        }
        process::return_heap();
    }

    pub(super) fn apply_material(&mut self, material: Material) -> Result<(), String> {
        let is_draining = self.drain.is_under_way();
        self.serving.apply_material(material, is_draining)?;
        self.follow_edition();
        Ok(())
    }

    /// After an upgrade: opens unix listeners again whose files were removed, as a reload does.
    pub(super) fn reopen_listeners(&mut self) {
        if self.serving.listening.are_reachable() {
            return;
        }
        let material = self.serving.edition.material.clone();
        if let Err(error) = self.apply_material(material) {
            tracing::error!(error, "unix listener could not be opened again");
        }
    }

    /// Follows a changed edition, or changed addresses of a backend name.
    pub(super) fn follow_edition(&mut self) {
        let serving = &mut self.serving;
        serving
            .ticket_keys
            .show(&serving.edition.material.of_helpers.store);
        let backends = &serving.memory.backends;
        let former = self
            .monitor
            .follow(&serving.edition, backends, &self.poller);
        self.history.ending.extend(former);
    }

    pub(super) fn on_monitor(&mut self) {
        let backends = &self.serving.memory.backends;
        let Some(found) = self.monitor.receive(backends, &self.poller) else {
            return;
        };
        // The state handed to an upgrade must not change; the name is looked up again when it has ended.
        if self.upgrade.is_none() && self.serving.set_addresses(&found.name, &found.addresses) {
            self.follow_edition();
        }
    }

    /// Reloads the configuration, and answers the request. If the configuration has names of backends, a scout
    /// looks them up first.
    pub(super) fn reload(&mut self, request: Option<u64>) {
        self.notifier.reloading();
        if !self.lookup.join(request) {
            self.reload_with(request.into_iter().collect(), &FoundNames::new());
        }
    }

    /// Whether a reload waits for names or for workers.
    pub(super) fn is_reloading(&self) -> bool {
        self.lookup.is_running() || self.reload.is_waiting()
    }

    pub(super) fn on_lookup(&mut self) {
        if let Some(finished) = self.lookup.receive(&self.poller) {
            self.on_lookup_finished(finished);
        }
    }

    pub(super) fn on_lookup_finished(&mut self, finished: FinishedLookup) {
        self.history.ending.extend(finished.ending);
        self.reload_with(finished.requests, &finished.found);
    }

    /// Whether established connections can be checked now.
    pub(super) fn may_recheck(&self) -> bool {
        self.may_change() && self.is_settled() && !self.drain.is_under_way()
    }

    /// Orders the next page of connections whose clients would be refused now.
    pub(super) fn attend_to_recheck(&mut self) {
        if !self.may_recheck() {
            return;
        }
        while let Some((number, order)) = self.recheck.next_order() {
            let pairs = &self.serving.pairs;
            match (self.pages).order(Asker::Recheck(number), order, &pairs.remaining()) {
                Passed::To(worker, order) => return pairs.order(worker, &order),
                Passed::Answered(page) => self.note_rechecked(number, &page),
            }
        }
    }

    pub(super) fn note_rechecked(&mut self, number: u64, page: &Page) {
        let asked = self.serving.edition.config.process.recheck;
        self.recheck.note(number, page, asked);
    }

    fn reload_with(&mut self, requests: Vec<u64>, names: &FoundNames) {
        match self.try_reload(&requests, names) {
            Ok(Some(words)) => {
                tracing::info!(
                    edition = self.serving.edition.number,
                    waits_for_restart = self.waits_for_restart(),
                    "configuration reloaded"
                );
                if let (Some(control), []) = (&mut self.control, &*requests) {
                    // Without requests: a client that waits for a reload has found the socket.
                    self.history
                        .ending
                        .extend(control.recover_admin(&self.poller));
                }
                self.recheck.begin();
                self.reload.wait(Cause::Reload, requests, words);
                self.finish_reload_if_complete();
            }
            Ok(None) => {}
            Err(why) => {
                let error = why.lines().next().unwrap_or_default();
                let error = error.strip_prefix("error: ").unwrap_or(error);
                tracing::error!(error, "reload rejected; keeping the current configuration");
                self.publish(vec![Finished::refused(requests, why)]);
            }
        }
        // Frees what was parsed for the reload.
        process::return_heap();
    }

    /// Returns the result in words. `None`: names are looked up first.
    fn try_reload(
        &mut self,
        requests: &[u64],
        names: &FoundNames,
    ) -> Result<Option<String>, String> {
        if let Some(why) = self.refusal_of_change() {
            return Err(why);
        }
        let edition = &self.serving.edition;
        let listeners = self.serving.listening.usable_addresses();
        let watch = &self.certificate_watch;
        let Ready {
            loaded,
            material,
            changes,
            watch,
        } = match reload::load(&self.source, names, edition, &listeners, watch)? {
            Reloaded::Complete(ready) => *ready,
            Reloaded::LookUp(names) => {
                let started =
                    self.lookup
                        .start(names, requests.to_vec(), &edition.config, &self.poller);
                started.map_err(|error| format!("names could not be looked up: {error}"))?;
                return Ok(None);
            }
        };
        let fixed = self.serving.fixed();
        let examined = loaded.config.clone();
        let ReloadPlan {
            mut config,
            plan,
            waits_for_restart,
        } = reload::plan(&edition.config, &edition.plan, loaded, &fixed);
        let of_file = config.clone();
        let kept = KeptChanges::apply_to(&mut config);
        let undone = self.history.ctl_changes.undone(edition, &config);
        let log_file = LogFile::open(&config).map_err(|error| error.to_string())?;
        let is_draining = self.drain.is_under_way();
        self.serving
            .apply_reload((config, &examined), plan, material, is_draining)?;
        (self.set_logs)(&self.serving.edition.config.log);
        self.log_writer.replace_file(log_file, &self.poller);
        self.follow_edition();
        self.authorities.retry_now();
        self.history.kept = kept;
        self.history.ctl_changes = CtlChanges::of(&of_file, &self.serving.edition.config);
        self.certificate_watch = watch.reloaded(&changes);
        answer::log(&changes, &undone);
        let edition = self.serving.edition.number;
        let words = answer::words(edition, &waits_for_restart, &changes, &undone);
        self.history.waits_for_restart = waits_for_restart;
        Ok(Some(words))
    }

    /// Changed options that take effect at the next start. `None`: there are none.
    fn waits_for_restart(&self) -> Option<String> {
        let options = &self.history.waits_for_restart;
        (!options.is_empty()).then(|| options.join(", "))
    }

    pub(super) fn finish_reload_if_complete(&mut self) {
        let Serving { edition, pairs, .. } = &self.serving;
        let finished = self.reload.finish_if_complete(edition.number, pairs);
        self.publish(finished);
    }

    pub(super) fn publish(&mut self, finished: Vec<Finished>) {
        for finished in finished {
            let control = self.control.as_mut();
            self.reload.publish(finished, &self.notifier, control);
        }
    }

    /// Why the configuration cannot change now.
    pub(super) fn refusal_of_change(&self) -> Option<String> {
        match self.is_stopping {
            true => Some("the program is stopping".to_owned()),
            false => self.not_while_upgrading().err(),
        }
    }

    /// An upgrade hands over the running state, which must not change meanwhile.
    fn not_while_upgrading(&self) -> Result<(), String> {
        match self.upgrade {
            Some(_) => Err("an upgrade is in progress; try again when it is done".to_owned()),
            None => Ok(()),
        }
    }
}
