//! Orders from main, and the worker's reports to it.

use super::Worker;
use crate::handshake::route_choice::Challenge;
use crate::io::Io;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::drain::Drain;
use crate::lifecycle::page;
use crate::lifecycle::reload::Reloaded;
use crate::lifecycle::stop::Stop;
use crate::lifecycle::upgrade::Upgrade;
use crate::token::{self, Token};
use dormouse_handover::orders::{Order, WorkerReport};
use dormouse_handover::signing::Signed;
use dormouse_reactor::Fd;

#[cfg(test)]
mod tests;

/// Maximum number of orders that wait for the end of a reload. Further orders wait in main's channel, whatever they are.
const DEFERRED_MAX: usize = 256;

/// Whether an order depends on the reload before it. The others need not wait for its end: a signature, ticket keys, a drain, a
/// stop.
fn follows_reload(order: &Order) -> bool {
    match order {
        Order::Listeners(_)
        | Order::Reload { .. }
        | Order::Addresses { .. }
        | Order::Quiesce
        | Order::Resume
        | Order::HandOver => true,
        Order::Stop
        | Order::TicketKeys(_)
        | Order::Drain { .. }
        | Order::ReportEmpty(_)
        | Order::StopDrain
        | Order::Challenge(..)
        | Order::Uncount(_)
        | Order::CountAgain
        | Order::Page(..)
        | Order::Trace(..)
        | Order::Signed(..) => false,
    }
}

impl<I: Io> Worker<I> {
    pub(super) fn report(&self, report: &WorkerReport) {
        self.cx.work.io.send_report(self.lifecycle.orders, report);
    }

    pub(super) fn receive_order(&mut self) {
        if self.lifecycle.deferred.len() >= DEFERRED_MAX {
            return;
        }
        match self.cx.work.io.receive_order(self.lifecycle.orders) {
            Ok(Some(order)) => self.take(order),
            Ok(None) => {}
            Err(error) => {
                let _ = self.cx.work.io.unwatch(self.lifecycle.orders);
                self.end_without_main(&error);
            }
        }
    }

    /// Carries out an order, or keeps it until the end of the reload under way. If this worker dies before, main sends its
    /// successor what that lacks.
    fn take(&mut self, order: Order) {
        let is_loading = self.lifecycle.reloader.is_loading();
        let deferred = &mut self.lifecycle.deferred;
        let others_wait = !deferred.is_empty();
        if (is_loading || others_wait) && follows_reload(&order) {
            return deferred.push(order);
        }
        // A reload that waits brings the keys from before this order.
        if let Order::TicketKeys(keys) = &order
            && others_wait
        {
            deferred.push(Order::TicketKeys(keys.clone()));
        }
        self.obey(order);
    }

    /// Carries out an order from main.
    pub(super) fn obey(&mut self, order: Order) {
        let now_ms = self.cx.work.now_ms;
        let lifecycle = &mut self.lifecycle;
        match order {
            Order::Stop => {
                self.give_up_reloads();
                let lifecycle = &mut self.lifecycle;
                lifecycle.drain = None;
                let grace_ms = self.cx.settings.limits.shutdown_grace_ms;
                let stop = Stop::new(now_ms, grace_ms);
                lifecycle.stop.get_or_insert(stop);
                self.door.listeners.stop();
                self.outbound.stop(&mut self.cx.work);
            }
            // Connections that are not established yet are finished first.
            Order::Drain { over_ms, order } => {
                self.door.listeners.stop();
                let live = self.cx.connections.live() + self.handshakes() as u32;
                let drain = Drain::new(now_ms, over_ms, order, live);
                self.lifecycle.drain = Some(drain);
            }
            Order::ReportEmpty(number) => lifecycle.reports_empty = Some(number),
            Order::StopDrain => {
                (lifecycle.drain, lifecycle.reports_empty) = (None, None);
                if lifecycle.stop.is_none() && !lifecycle.startup.has_failed() {
                    self.door.listeners.restart();
                    self.outbound.refill_pools(now_ms);
                }
            }
            Order::Listeners(fds) => lifecycle.reloader.note_listeners(fds),
            Order::Reload { handover, number } => self.reload(handover, number),
            Order::TicketKeys(keys) => self.take_ticket_keys(&keys),
            Order::Challenge(number, shown) => {
                self.set_challenge(number, &shown);
            }
            Order::Addresses { name, addresses } => {
                let (settings, work) = (&mut self.cx.settings, &mut self.cx.work);
                lifecycle
                    .reloader
                    .set_addresses(&name, &addresses, settings, work);
            }
            Order::Quiesce => {
                self.door.listeners.hold(true);
                let until_ms = now_ms + self.cx.settings.limits.handshake_grace_ms;
                lifecycle.upgrade = Upgrade::Quieting { until_ms };
            }
            Order::Resume => {
                self.door.listeners.hold(false);
                lifecycle.upgrade = Upgrade::No;
            }
            Order::HandOver => lifecycle.upgrade = Upgrade::HandedOver,
            Order::Uncount(number) => {
                self.cx.work.clients.uncount();
                self.report(&WorkerReport::Uncounted(number));
            }
            Order::CountAgain => {
                let found = self.cx.connections.client_places();
                self.cx.work.clients.count_again(found);
            }
            Order::Trace(until_ms, client) => {
                self.cx.work.traces.begin(client, until_ms, now_ms);
            }
            Order::Signed(number, signed) => self.take_signature(number, *signed),
            Order::Page(number, order) => {
                let cx = &mut self.cx;
                let page = page::make(&order, &mut cx.connections, &cx.settings, &mut cx.work);
                self.apply_effects();
                self.report(&WorkerReport::Page(number, Box::new(page)));
            }
        }
    }

    /// Begins a reload. With few routes and certificates it ends here.
    fn reload(&mut self, next: Fd, number: u64) {
        match self.lifecycle.reloader.begin(next, number, &self.cx) {
            None if self.lifecycle.reloader.is_long() => {}
            None => self.advance_reload(),
            Some(failed) => self.report_reload(failed),
        }
    }

    /// Continues the reload under way, and reports its end.
    pub(super) fn advance_reload(&mut self) {
        let cx = &mut self.cx;
        let reloader = &mut self.lifecycle.reloader;
        let Some(reloaded) = reloader.advance(&mut self.door, &mut self.handshakes, cx) else {
            return;
        };
        if let Ok(changed) = &reloaded.changed {
            cx.connections.end_all_waits();
            if changed.timeouts {
                cx.connections.follow_new_timeouts();
            }
            self.outbound.reload(&changed.routes, cx);
            if self.lifecycle.startup.finish() {
                // A worker with an invalid certificate has stopped accepting. A drain or a stop continues.
                if self.lifecycle.drain.is_none() && self.lifecycle.stop.is_none() {
                    self.door.listeners.restart();
                }
                self.report(&WorkerReport::Ready);
            }
        }
        self.report_reload(reloaded);
    }

    /// Carries out the orders that have waited for the end of a reload.
    pub(super) fn take_deferred(&mut self) {
        for order in std::mem::take(&mut self.lifecycle.deferred) {
            self.take(order);
        }
    }

    /// Gives up the reload under way and those that wait for its end, because the worker stops.
    fn give_up_reloads(&mut self) {
        let Lifecycle {
            reloader, deferred, ..
        } = &mut self.lifecycle;
        let mut numbers: Vec<u64> = reloader.give_up().into_iter().collect();
        for order in std::mem::take(deferred) {
            match order {
                Order::Reload { handover, number } => {
                    handover.close();
                    numbers.push(number);
                }
                Order::Listeners(fds) => fds.into_iter().for_each(Fd::close),
                _ => {}
            }
        }
        for number in numbers {
            let why = "the worker is stopping".to_owned();
            self.report(&WorkerReport::NotReloaded(number, why));
        }
    }

    fn report_reload(&mut self, Reloaded { number, changed }: Reloaded) {
        let report = match changed {
            Ok(_) => WorkerReport::Reloaded(number),
            Err(error) => {
                let effect = match self.lifecycle.startup.has_failed() {
                    true => "; it accepts no connections, because its certificates are unusable",
                    false => "",
                };
                WorkerReport::NotReloaded(number, format!("{error}{effect}"))
            }
        };
        self.apply_effects();
        self.report(&report);
    }

    /// Releases some of what was used before a reload.
    pub(super) fn release_former(&mut self) {
        let retirement = &mut self.lifecycle.reloader.retirement;
        if retirement.is_due() && retirement.release_some() {
            self.cx.work.io.return_heap();
        }
    }

    /// Passes a signature to the handshake that waits for it.
    fn take_signature(&mut self, number: u64, signed: Signed) {
        match token::parse(number) {
            Token::Handshake(id) => self.handshakes.on_signed(id, signed),
            Token::Origination(id) => {
                self.outbound.on_signed(id, signed, &mut self.cx);
                self.apply_effects();
            }
            _ => {}
        }
    }

    fn take_ticket_keys(&mut self, exported: &[u8]) {
        if let Err(error) = self.lifecycle.reloader.set_ticket_keys(exported) {
            tracing::error!(%error, "ticket keys rejected");
        }
    }

    /// Opens the challenge for a name, or closes it.
    fn set_challenge(&mut self, number: u64, shown: &str) {
        let (name, pem) = shown.split_once('\n').unwrap_or((shown, ""));
        self.handshakes.close_challenge(name);
        if pem.is_empty() {
            return;
        }
        match Challenge::new(number, name, pem) {
            Ok(challenge) => {
                self.handshakes.open_challenge(challenge);
                self.report(&WorkerReport::ChallengeShown(number));
            }
            Err(error) => tracing::error!(%error, "ACME challenge rejected"),
        }
    }
}
