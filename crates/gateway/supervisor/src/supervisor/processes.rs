//! Signals, exits of processes, and reports of workers.

use super::Supervisor;
use crate::error::{ServeError, system};
use crate::pages::Asker;
use dormouse_dataplane::keeper;
use dormouse_handover::child::Bounds;
use dormouse_handover::control::DrainOrder;
use dormouse_handover::orders::{Order, WorkerReport};
use dormouse_reactor::process::{self, Ended, Pid, Wait};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::Attempt;
use dormouse_tables::counters::Count;

impl Supervisor {
    pub(super) fn on_signals(&mut self) -> Result<(), ServeError> {
        while let Attempt::Done(received) =
            self.signals.receive().map_err(system("receive a signal"))?
        {
            match received.signal {
                Signal::Child => self.reap()?,
                Signal::Terminate | Signal::Interrupt => self.stop(),
                Signal::Quit | Signal::User1 => self.drain_and_stop(),
                Signal::User2 => self.begin_upgrade(None, None),
                Signal::Hangup => self.reload(None),
                _ => {}
            }
        }
        Ok(())
    }

    /// Closes all connections evenly, then stops. A drain in progress keeps its duration.
    fn drain_and_stop(&mut self) {
        self.fail_upgrade("the program is about to stop");
        if self.is_stopping || self.history.stops_after_drain {
            return;
        }
        self.history.stops_after_drain = true;
        if !self.drain.is_under_way() {
            let over = self.serving.edition.config.timeouts.shutdown_drain;
            let over_ms = over.as_millis() as u64;
            let begun = self
                .drain
                .begin(over_ms, DrainOrder::Longest, &self.serving);
            match begun {
                Ok(_) => tracing::info!(
                    connections = self
                        .drain
                        .report(&self.serving.pairs)
                        .map(|drain| drain.connections),
                    over_ms,
                    "draining before exit"
                ),
                Err(error) => tracing::error!(error, "drain before exit failed"),
            }
        }
    }

    /// Stops after the last connection is closed, or at the end of the drain. Called once per turn.
    pub(super) fn stop_if_drained(&mut self) {
        let is_due = self.history.stops_after_drain && !self.is_stopping;
        if is_due && self.drain.is_done(&self.serving) {
            self.stop();
        }
    }

    /// Stops accepting, finishes pending work, and closes all connections; then the workers exit.
    pub(super) fn stop(&mut self) {
        self.fail_upgrade("the program is stopping");
        if !self.is_stopping {
            self.notifier.stopping();
            tracing::info!("stopping; no longer accepting; finishing pending work");
        }
        self.is_stopping = true;
        let serving = &self.serving;
        let grace = serving.edition.config.timeouts.shutdown_grace;
        let grace_ms = grace.as_millis() as u64;
        self.kills_at_ms
            .get_or_insert(process::boottime_ms() + grace_ms + super::STOP_MS);
        self.authorities.cancel(&serving.pairs);
        serving.pairs.order_all(&Order::Stop);
        // After the order, so that no worker polls a paused listener.
        serving.listening.leave(&serving.edition.config);
    }

    /// Handles all processes that have exited.
    pub(super) fn reap(&mut self) -> Result<(), ServeError> {
        while let Some((pid, ended)) =
            process::wait(Wait::AnyEnded).map_err(system("wait for processes"))?
        {
            if !self.note_helper_end(pid, ended) {
                self.note_keeper_end(pid, ended)?;
            }
        }
        Ok(())
    }

    /// Handles the exit of a helper. Returns `false` if the process may be a keeper.
    fn note_helper_end(&mut self, pid: Pid, ended: Ended) -> bool {
        if let Some(place) = self.history.ending.iter().position(|&ending| ending == pid) {
            self.history.ending.swap_remove(place);
            self.serving.pairs.forget_former(pid);
            if let Some(control) = &mut self.control {
                control.forget_former(pid);
            }
            return true;
        }
        let serving = &self.serving;
        if let Some(upgrade) = &mut self.upgrade {
            let grace_ms = serving.edition.handshake_grace_ms();
            if let Some(step) = upgrade.note_end(pid, ended, grace_ms, &serving.pairs) {
                self.take_step(step);
                return true;
            }
        }
        if self.authorities.note_hook_end(pid, ended, &self.poller) {
            return true;
        }
        if self.authorities.is_errand(pid) {
            // Its last reports may still be unread.
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
                tracing::error!(process = "scout", cause = %ended, "helper process died; restarting");
            }
            return true;
        }
        let pairs = &self.serving.pairs;
        if self.redirect.note_end(pid, ended, &self.poller)
            || self.signer.note_end(pid, ended, pairs, &self.poller)
            || self.spiffe.note_end(pid, ended, &self.poller)
            || self.log_writer.note_end(pid, ended, &self.poller)
            || self
                .repair
                .note_end(pid, ended, &self.poller, self.is_stopping)
        {
            return true;
        }
        let serving = &mut self.serving;
        let control = self.control.as_mut();
        control.is_some_and(|control| control.note_end(pid, ended, &self.poller))
            || serving
                .ticket_keys
                .ended(pid, ended, &serving.memory.counters)
    }

    fn note_keeper_end(&mut self, pid: Pid, ended: Ended) -> Result<(), ServeError> {
        let Some(was_ready) = self.serving.pairs.note_end(pid, ended) else {
            // The last worker of an old keeper becomes main's child; it has exited as planned. So does a worker that the
            // keeper had replaced and reported, but not reaped yet.
            let is_planned = ended == Ended::Exited(i32::from(keeper::EXIT_HANDED_OVER));
            if !is_planned && self.is_current_worker(pid) {
                tracing::warn!(pid = pid.0, cause = %ended, "orphaned worker died");
            }
            return Ok(());
        };
        let cannot_begin = ended == Ended::Exited(i32::from(keeper::EXIT_CANNOT_BEGIN));
        // The program starts with all its workers or not at all.
        let is_start = !self.history.is_announced && !self.is_stopping;
        if (cannot_begin || is_start) && !was_ready {
            self.stop();
            let what = match cannot_begin {
                true => "a worker could not start; its error is in the log above".to_owned(),
                false => format!("a worker could not start: its keeper ended ({ended})"),
            };
            return Err(ServeError::Workers(what));
        }
        if !self.is_stopping {
            tracing::error!(
                pid = pid.0,
                cause = %ended,
                "keeper died; its worker keeps serving, but cannot be restarted"
            );
        }
        self.fail_upgrade("a keeper died during the upgrade");
        Ok(())
    }

    /// Whether no worker has started in place of this one.
    fn is_current_worker(&self, pid: Pid) -> bool {
        let counters = &self.serving.memory.counters;
        let mut blocks = (0..counters.workers()).filter_map(|worker| counters.block(worker));
        blocks.any(|block| block.load(Count::WorkerPid as usize) == pid.0 as u64)
    }

    pub(super) fn on_worker(&mut self, worker: usize) {
        let Some((report, sender)) = self.serving.pairs.receive(worker, &self.poller) else {
            return;
        };
        match report {
            // An unusable one follows all orders, too: only a reload can bring certificates that it can use.
            WorkerReport::Ready | WorkerReport::Unusable => self.on_begun(worker),
            WorkerReport::Reloaded(_) => {
                self.catch_up(worker);
                if self
                    .serving
                    .pairs
                    .has_edition(worker, self.serving.edition.number)
                {
                    let wanted = Bounds::of(&self.serving.edition.config);
                    self.serving.pairs.renew_if_bound(worker, wanted);
                }
                self.finish_reload_if_complete();
            }
            WorkerReport::NotReloaded(edition, why) => {
                if edition == self.serving.edition.number {
                    self.serving.pairs.keep(worker);
                    let finished = self.reload.refused_by(worker, &why);
                    self.publish(finished);
                } else {
                    self.catch_up(worker);
                }
            }
            WorkerReport::ChallengeShown(_) => {}
            WorkerReport::Uncounted(number) => self.recount.note(worker, number, &self.serving),
            WorkerReport::Empty(number) => self.drain.note_empty(worker, number),
            WorkerReport::Page(number, page) => {
                let remaining = self.serving.pairs.remaining();
                match self.pages.note(worker, number, *page, &remaining) {
                    Some((Asker::Control(id), page)) => self.answer_page(id, page),
                    Some((Asker::Recheck(check), page)) => self.note_rechecked(check, &page),
                    None => {}
                }
            }
            WorkerReport::Sign(id, request) => {
                (self.signer).request(worker, id, *request, &self.serving.pairs);
            }
            WorkerReport::Kept => self.on_kept(worker),
            WorkerReport::Quiet if self.upgrade.is_none() => {
                if self.serving.pairs.note_quiet(worker) {
                    self.serving.give_edition(worker);
                }
            }
            report => {
                let pairs = &self.serving.pairs;
                if let Some(upgrade) = &mut self.upgrade {
                    let step = upgrade.note_report(worker, report, sender, pairs);
                    self.take_step(step);
                }
            }
        }
    }

    /// Sends the current edition to a worker that is behind.
    fn catch_up(&mut self, worker: usize) {
        let edition = self.serving.edition.number;
        if self.serving.pairs.lacks_edition(worker, edition) {
            self.serving.give_edition(worker);
        }
    }

    /// Handles a worker that has begun, at the start or after a crash.
    fn on_begun(&mut self, worker: usize) {
        self.serving.bring_up_to_date(worker);
        let pairs = &self.serving.pairs;
        if !self.drain.order_rest(worker, pairs) && !self.is_stopping {
            self.serving.listening.restore(&self.serving.edition.config);
        }
        if self.is_stopping {
            pairs.order(worker, &Order::Stop);
        }
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.note_ready(worker, self.serving.edition.handshake_grace_ms(), pairs);
        }
        self.authorities.repeat_challenges(worker, pairs);
        self.traces.repeat(worker, pairs);
        self.recount.note_ready(&self.serving);
        if !self.history.is_announced && pairs.are_ready() {
            self.history.is_announced = true;
            let config = &self.serving.edition.config;
            tracing::info!(
                listen = self.serving.listening.addresses().join(", "),
                metrics = config.process.metrics.map(|address| address.to_string()),
                workers = pairs.len(),
                connections_max = self.serving.connections_max,
                pid = std::process::id(),
                "ready"
            );
            self.notifier.ready(pairs.len());
        }
    }
}
