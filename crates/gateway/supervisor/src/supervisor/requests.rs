//! Orders that control forwards, and the state that control reports.

use super::Supervisor;
use crate::connection_log::LogFile;
use crate::pages::{self, Asker, Passed};
use crate::serving::Serving;
use dormouse_handover::connections::{Page, PageOrder};
use dormouse_handover::control::{
    AdminOrder, Bounds, Configuration, DrainOrder, ForwardedOrder, Phase, State,
};
use dormouse_reactor::process;
use std::time::Duration;

const ROTATED: &str =
    "new ticket keys are in use; tickets of the previous key stay valid until the next rotation";

impl Supervisor {
    pub(super) fn on_control(&mut self) {
        let control = self.control.as_ref();
        let Some(ForwardedOrder { id, order }) = control.and_then(|one| one.receive(&self.poller))
        else {
            return;
        };
        match &order {
            // A list has many pages.
            AdminOrder::Page(page) if !page.is_first_to_close() => {}
            order => tracing::info!(command = %describe(order), "admin command received"),
        }
        match order {
            AdminOrder::Page(order) => self.order_page(id, *order),
            AdminOrder::Trace { client, for_ms } => {
                let result = self.traces.begin(client, for_ms, &self.serving.pairs);
                self.answer(id, result);
            }
            AdminOrder::Upgrade { binary } => self.begin_upgrade(binary.as_deref(), Some(id)),
            // The answer is sent when all workers follow the new configuration.
            AdminOrder::Reload => self.reload(Some(id)),
            AdminOrder::Drain { over_ms, order } => {
                let result = match self.refusal_of_change() {
                    Some(why) => Err(why),
                    None => self.drain.begin(over_ms, order, &self.serving),
                };
                self.answer(id, result);
            }
            AdminOrder::Change { change, is_kept } => self.change(id, &change, is_kept),
            AdminOrder::RotateTicketKeys => match self.serving.rotate_ticket_keys_now() {
                Ok(()) => {
                    self.rotations.push(id);
                    self.answer_rotations();
                }
                Err(why) => self.answer(id, Err(why)),
            },
            AdminOrder::ReopenLogs => {
                let result = self.reopen_logs();
                self.answer(id, result);
            }
            AdminOrder::PushCertificate { pem, route } => {
                self.push_certificate(id, &pem, route.as_deref());
            }
            AdminOrder::WithdrawCertificate { name, route } => {
                self.withdraw_certificate(id, &name, route.as_deref());
            }
            AdminOrder::StopDrain => {
                let result = match self.refusal_of_change() {
                    Some(why) => Err(why),
                    None => self.drain.stop(&self.serving),
                };
                // A stopped drain also cancels the end of the program that a signal has requested.
                self.history.stops_after_drain &= result.is_err();
                self.answer(id, result);
            }
        }
    }

    /// Passes an order for a page of connections to its worker.
    fn order_page(&mut self, id: u64, mut order: PageOrder) {
        let Serving { edition, pairs, .. } = &self.serving;
        if let Err(why) = pages::look_up(&mut order.filter, edition) {
            return self.answer(id, Err(why));
        }
        match (self.pages).order(Asker::Control(id), order, &pairs.remaining()) {
            Passed::To(worker, order) => pairs.order(worker, &order),
            Passed::Answered(page) => self.answer_page(id, page),
        }
    }

    pub(super) fn answer_page(&mut self, request: u64, page: Page) {
        if let Some(control) = &mut self.control {
            control.answer_page(request, page);
        }
    }

    /// Opens the file of the connection log again, and changes nothing else.
    fn reopen_logs(&mut self) -> Result<String, String> {
        if let Some(why) = self.refusal_of_change() {
            return Err(why);
        }
        let file =
            LogFile::open(&self.serving.edition.config).map_err(|error| error.to_string())?;
        if !matches!(file, Some(LogFile::File(_))) {
            return Ok("there is no log file to reopen: `connection_log` names none".to_owned());
        }
        self.log_writer.replace_file(file, &self.poller);
        Ok("the connection log is written to its reopened file".to_owned())
    }

    /// Answers orders to rotate ticket keys, once the new ones are saved.
    pub(super) fn answer_rotations(&mut self) {
        if self.rotations.is_empty() {
            return;
        }
        let Some(saved) = self.serving.ticket_keys.saved() else {
            return;
        };
        let result = match saved {
            Ok(()) => Ok(ROTATED.to_owned()),
            Err(why) => Err(format!(
                "new ticket keys are in use, but a restart returns to the previous ones: {why}"
            )),
        };
        for id in std::mem::take(&mut self.rotations) {
            self.answer(id, result.clone());
        }
    }

    /// Waits until rotated ticket keys are saved, and answers, before the program or this binary ends. `false`: `most`
    /// passed before.
    pub(super) fn finish_rotations(&mut self, most: Duration) -> bool {
        let is_saved = self.serving.ticket_keys.wait_until_saved(most);
        self.answer_rotations();
        is_saved
    }

    pub(super) fn answer(&mut self, request: u64, result: Result<String, String>) {
        if let Some(control) = &mut self.control {
            control.answer(request, result);
        }
    }

    /// Main's state, for control. It changes only when something has happened.
    pub(super) fn state(&self) -> State {
        let Serving { edition, pairs, .. } = &self.serving;
        let plan = &edition.plan;
        let reported = self.serving.reported();
        State {
            pid: process::pid().0,
            born_ms: self.history.born_ms,
            phase: self.phase(),
            keepers: pairs.keepers(),
            configuration: Configuration {
                file: self.file.clone(),
                edition: edition.number,
                loaded_ms: edition.loaded_ms,
                last_reload: self.reload.last(),
                waits_for_restart: self.history.waits_for_restart.clone(),
                kept_changes: self.history.kept.reported(),
            },
            bounds: Bounds {
                // The number of slots is fixed at the start.
                connections: self
                    .serving
                    .connections_max
                    .min(plan.connections_max.into()),
                awake: match &self.serving.rest {
                    Some(_) => plan.awake_max.into(),
                    None => 0,
                },
                handshakes: plan.handshakes_max.into(),
                pending_bytes: plan.pending_memory.0,
                handshake_bytes: edition.config.limits.handshake_bytes_max.0,
                kernel_bytes: plan.kernel_memory.0,
            },
            certificates: reported.certificates.clone(),
            acme: self.authorities.report(),
            spiffe: self.spiffe.report(&edition.material.workload),
            drain: self.drain.report(&self.serving.pairs),
            listeners: reported.listeners.clone(),
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
}

/// An order in words, for the log.
fn describe(order: &AdminOrder) -> String {
    let of_route = |route: &Option<String>| {
        let of_route = route.as_ref().map(|route| format!(" of route {route}"));
        of_route.unwrap_or_default()
    };
    match order {
        AdminOrder::Reload => "reload".to_owned(),
        AdminOrder::Drain { over_ms, order } => {
            let order = match order {
                DrainOrder::Longest => "longest",
                DrainOrder::Shortest => "shortest",
            };
            format!("drain over {over_ms} ms, {order} first")
        }
        AdminOrder::StopDrain => "stop the drain".to_owned(),
        AdminOrder::Change { change, is_kept } => match is_kept {
            true => format!("{change} --keep"),
            false => change.to_string(),
        },
        AdminOrder::RotateTicketKeys => "rotate ticket keys".to_owned(),
        AdminOrder::ReopenLogs => "reopen logs".to_owned(),
        AdminOrder::PushCertificate { route, .. } => {
            format!("push a certificate{}", of_route(route))
        }
        AdminOrder::WithdrawCertificate { name, route } => {
            format!("withdraw the certificate for {name}{}", of_route(route))
        }
        AdminOrder::Trace { client, .. } => format!("trace connections from {client}"),
        AdminOrder::Page(order) => format!("close connections with {}", order.filter),
        AdminOrder::Upgrade { binary: None } => "upgrade".to_owned(),
        AdminOrder::Upgrade {
            binary: Some(binary),
        } => format!("upgrade to {}", binary.display()),
    }
}
