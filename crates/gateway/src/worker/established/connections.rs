//! Established connections: a slot is marked busy, lent to a step, and settled.

use crate::slot::{Phase, Slot};
use crate::worker::Worker;
use crate::worker::established::close::{self, Ending};
use crate::worker::established::flow::Outcome;
use crate::worker::established::interest::{self, Side};
use crate::worker::established::step::Work;
use crate::worker::io::Io;
use crate::worker::token;
use dormouse_reactor::poller::Event;

impl<I: Io> Worker<I> {
    pub(crate) fn on_connection(&mut self, index: u32, generation: u32, side: Side, event: Event) {
        let current = self.slots.get(index).is_some_and(|slot| {
            slot.phase() != Phase::Free && slot.generation & token::GENERATION_MASK == generation
        });
        if !current || !self.is_beyond_doubt(index) {
            return;
        }
        self.slots.header().mark_busy(index);
        let over = self.work(index, |work, slot| work.event(slot, side, event));
        self.finish_work(index, over);
    }

    /// Lends the slot to `step`, then settles what follows. `true`: the connection is over.
    pub(crate) fn work(
        &mut self,
        index: u32,
        step: impl FnOnce(&mut Work<'_, I>, &mut Slot) -> Outcome,
    ) -> bool {
        let now_ms = self.now_ms;
        let Worker {
            slots,
            tools,
            routes,
            bursts,
            limits,
            listeners,
            originations,
            errands,
            clients,
            ..
        } = self;
        tools.received = 0;
        let Some(slot) = slots.get_mut(index) else {
            return false;
        };
        let Some(route) = routes.get(usize::from(slot.route)).or(routes.first()) else {
            return true;
        };
        let mut work = Work {
            tools,
            route,
            bursts,
            limits,
            now_ms,
            pause: None,
            warm_lost_after_s: None,
            joined: None,
            left_behind: None,
        };
        let was_at_rest = slot.at_rest();
        let was_leaving = slot.phase() == Phase::Draining;
        let was_starved = slot.is_starved();
        let outcome = step(&mut work, slot);
        let over = work.settle(slot, outcome);
        let (pause, warm_lost_after_s) = (work.pause, work.warm_lost_after_s);
        errands.extend(work.joined);
        self.left_behind = work.left_behind.map(|plain| (plain, slot.route));
        self.at_rest += u32::from(slot.at_rest());
        self.at_rest -= u32::from(was_at_rest);
        self.leaving += u32::from(slot.phase() == Phase::Draining);
        self.leaving -= u32::from(was_leaving);
        if let Some(pause) = pause {
            listeners.pause(pause, now_ms, &tools.count);
        }
        if let Some(lasted_s) = warm_lost_after_s
            && let Some(pool) = originations.pool(slot.route)
        {
            pool.lost(lasted_s, now_ms);
        }
        if slot.is_starved() && !was_starved {
            let wait_ms = tools.starved_wait_ms;
            tools.starved.push(index, slot.generation, now_ms, wait_ms);
        }
        let per_client = limits.per_client;
        if per_client.any_bytes()
            && !over
            && let Some(slowed) = tools.pay((index, slot), clients, per_client, now_ms)
        {
            self.report_slowed(index, slowed);
        }
        over
    }

    pub(crate) fn finish_work(&mut self, index: u32, over: bool) {
        if over {
            self.remove(index);
        } else {
            self.set_timer(index);
            self.apply_interest(index);
            self.note_queues_sometimes(index);
        }
        self.slots.header().clear_busy();
        while let Some(errand) = self.errands.pop() {
            self.originate_joined(errand);
        }
        if let Some((plain, route)) = self.left_behind.take() {
            self.originate(Some(plain), route);
        }
    }

    pub(crate) fn remove(&mut self, index: u32) {
        self.wheel.cancel(&mut self.slots, index);
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        self.clients.leave(slot.client());
        self.tools.backends.leave(slot.backend);
        self.at_rest = self.at_rest.saturating_sub(u32::from(slot.at_rest()));
        let leaving = u32::from(slot.phase() == Phase::Draining);
        self.leaving = self.leaving.saturating_sub(leaving);
        let remains = close::dismantle(slot, &mut self.tools);
        self.tools.tickets.forget(slot.generation);
        self.tools.paced.forget(slot.generation);
        slot.tls.wipe();
        self.slots.free(index);
        remains.close(&self.tools.io);
        self.tools.kernel.forget(index);
        self.compaction.note_freed(self.now_ms);
        self.listeners.resume();
    }

    pub(crate) fn apply_interest(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let tls = token::connection(index, slot.generation, Side::Tls);
        let plain = token::connection(index, slot.generation, Side::Plain);
        if let Err(e) = interest::apply(slot, &self.tools.io, tls, plain) {
            // Without epoll the connection would never be heard of again.
            tracing::error!(error = %e, "epoll refused a descriptor; its connection is closed");
            self.tools.count.add(Ending::Limit.count(), 1);
            self.remove(index);
        }
    }
}
