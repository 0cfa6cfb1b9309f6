//! Warm connections: established and at rest before there is a local client for them.
//!
//! Such a connection is a slot like any other, in the phase [`Phase::Warm`], so it survives what
//! others survive; a pool only knows which they are, and how many are lacking. One that ends is
//! seen by its socket, and is replaced. Connecting is spaced out, and ever more so while it fails,
//! or leads to connections that do not last.

use crate::counters::Count;
use crate::route::Direction;
use crate::slot::{Flag, Phase, Slot};
use crate::worker::Worker;
use crate::worker::bursts::peer_name;
use crate::worker::established::flow::Outcome;
use crate::worker::established::interest::{self, Side};
use crate::worker::established::opening;
use crate::worker::established::step::{Work, is_broken};
use crate::worker::io::Io;
use crate::worker::outbound::originate::Plain;
use dormouse_reactor::poller::Event;
use dormouse_reactor::slab::Slab;
use dormouse_record::Alert;

/// Connections begun at once.
const BATCH: u32 = 8;
/// The least time between two batches.
const SPACING_MS: u64 = 50;
/// The first and the longest wait after a failure.
const BACKOFF_MS: std::ops::Range<u64> = 200..10_000;
/// A connection that ends sooner counts as a failure.
const LASTING_S: u32 = 2;

/// The warm connections of one origination, in one worker.
#[derive(Default)]
pub(crate) struct Pool {
    wanted: u32,
    /// Index and generation of slots. Some may have ended since.
    ready: Vec<(u32, u32)>,
    /// Being connected.
    begun: u32,
    /// When to look whether one is lacking.
    look_ms: Option<u64>,
    backoff_ms: u64,
}

impl Pool {
    pub(crate) fn new(wanted: u32) -> Pool {
        Pool {
            wanted,
            look_ms: (wanted > 0).then_some(0),
            ..Pool::default()
        }
    }

    /// How many warm connections each origination wants here.
    pub(crate) fn of(routes: &[crate::route::Route]) -> Vec<Pool> {
        let wanted = |direction: &Direction| match direction {
            Direction::Originate(origin) => origin.warm,
            Direction::Terminate { .. } | Direction::PassThrough(_) | Direction::Gone => 0,
        };
        routes
            .iter()
            .map(|route| Pool::new(wanted(&route.direction)))
            .collect()
    }

    pub(crate) fn look_ms(&self) -> Option<u64> {
        self.look_ms
    }

    pub(crate) fn ready(&self) -> u64 {
        self.ready.len() as u64
    }

    /// One that was begun is established.
    pub(crate) fn established(&mut self, index: u32, generation: u32) {
        self.begun = self.begun.saturating_sub(1);
        self.ready.push((index, generation));
    }

    /// One that was begun has failed.
    pub(crate) fn failed(&mut self, now_ms: u64) {
        self.begun = self.begun.saturating_sub(1);
        self.back_off(now_ms);
    }

    /// An established one has ended, after so many seconds.
    pub(crate) fn lost(&mut self, lasted_s: u32, now_ms: u64) {
        if lasted_s < LASTING_S {
            self.back_off(now_ms);
        } else {
            self.backoff_ms = 0;
            self.look_soon(now_ms);
        }
    }

    /// The slot of one of them was moved.
    pub(crate) fn moved(&mut self, from: u32, to: u32, generation: u32) {
        let entry = self
            .ready
            .iter_mut()
            .find(|entry| **entry == (from, generation));
        if let Some((index, _)) = entry {
            *index = to;
        }
    }

    fn back_off(&mut self, now_ms: u64) {
        self.backoff_ms = (self.backoff_ms * 2).clamp(BACKOFF_MS.start, BACKOFF_MS.end);
        self.look_ms = Some(now_ms + self.backoff_ms);
    }

    fn look_soon(&mut self, now_ms: u64) {
        if self.wanted > 0 && self.look_ms.is_none() {
            self.look_ms = Some(now_ms + SPACING_MS);
        }
    }

    /// How many to begin now.
    fn lacking(&mut self, slots: &Slab<Slot>, now_ms: u64) -> u32 {
        self.ready.retain(|&entry| is_warm(slots, entry));
        self.look_ms = None;
        let lacking = self
            .wanted
            .saturating_sub(self.ready.len() as u32 + self.begun);
        let begin = lacking.min(BATCH);
        if lacking > begin {
            self.look_soon(now_ms);
        }
        self.begun += begin;
        begin
    }
}

fn is_warm(slots: &Slab<Slot>, (index, generation): (u32, u32)) -> bool {
    slots
        .get(index)
        .is_some_and(|slot| slot.phase() == Phase::Warm && slot.generation == generation)
}

impl<I: Io> Worker<I> {
    /// Gives a local client one of the warm connections. `Some`: there was none.
    pub(crate) fn give_warm(&mut self, route: u16, plain: Plain) -> Option<Plain> {
        while let Some((index, generation)) = self.pop_warm(route) {
            if !is_warm(&self.slots, (index, generation)) || !self.is_beyond_doubt(index) {
                continue;
            }
            self.slots.header().mark_busy(index);
            // What it has received since tells whether it is still good.
            let over = self.work(index, |work, slot| work.look_at_warm(slot));
            let good = !over && is_warm(&self.slots, (index, generation));
            if !good {
                self.finish_work(index, over);
                continue;
            }
            let over = self.work(index, |work, slot| work.attach(slot, plain));
            self.finish_work(index, over);
            self.tools.count.add(Count::WarmGiven, 1);
            return None;
        }
        Some(plain)
    }

    fn pop_warm(&mut self, route: u16) -> Option<(u32, u32)> {
        let now_ms = self.now_ms;
        let pool = self.originations.pool(route)?;
        // The one which has waited least is the likeliest to be good.
        let entry = pool.ready.pop()?;
        pool.look_soon(now_ms);
        Some(entry)
    }

    /// Begins what is lacking.
    pub(crate) fn refill_warm(&mut self) {
        if self.is_passing() {
            return;
        }
        for route in 0..self.routes.len() {
            let route = route as u16;
            let now_ms = self.now_ms;
            let Some(pool) = self.originations.pool(route) else {
                continue;
            };
            if pool.look_ms.is_none_or(|at_ms| at_ms > now_ms) {
                continue;
            }
            if self.listeners.are_stopped() {
                pool.look_ms = None;
                continue;
            }
            let mut begin = pool.lacking(&self.slots, now_ms);
            while begin > 0 {
                begin -= 1;
                self.originate(None, route);
            }
        }
    }

    /// Ends the warm connections of these routes.
    pub(crate) fn end_warm(&mut self, routes: &[u16]) {
        let slots = self.slots.indices();
        let is_one = |index: &u32| {
            let slot = self.slots.get(*index);
            slot.is_some_and(|slot| slot.phase() == Phase::Warm && routes.contains(&slot.route))
        };
        let warm: Vec<u32> = slots.filter(is_one).collect();
        for index in warm {
            if !self.is_beyond_doubt(index) {
                continue;
            }
            self.slots.header().mark_busy(index);
            let over = self.work(index, |_, _| Outcome::TlsTruncated);
            self.finish_work(index, over);
        }
    }

    /// After a crash: the pools know again which connections are theirs.
    pub(crate) fn find_warm(&mut self) {
        for index in self.slots.indices() {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            if slot.phase() == Phase::Warm
                && let Some(pool) = self.originations.pool(slot.route)
            {
                pool.ready.push((index, slot.generation));
            }
        }
    }
}

impl<I: Io> Work<'_, I> {
    pub(crate) fn warm_event(&mut self, slot: &mut Slot, event: Event) -> Outcome {
        if let Some(outcome) = self.flush_and_read_tls(slot, event) {
            return outcome;
        }
        if is_broken(event) {
            return Outcome::TlsTruncated;
        }
        Outcome::Continues
    }

    /// Before a warm connection is given away: what it has received tells whether it has ended.
    pub(crate) fn look_at_warm(&mut self, slot: &mut Slot) -> Outcome {
        if interest::reads_tls(slot) {
            return opening::tls_readable(slot, self.tools);
        }
        // It has spoken already, and waits to be heard.
        match self.tools.io.take_error(slot.tls_fd()) {
            Ok(()) => Outcome::Continues,
            Err(e) => Outcome::TlsFailed(e),
        }
    }

    /// Nobody has been given a warm connection yet, so its end is nobody's loss.
    pub(crate) fn settle_warm(&mut self, slot: &mut Slot, outcome: &Outcome) -> bool {
        let continues = matches!(outcome, Outcome::Continues);
        if continues && !slot.tls.peer_closed() {
            return false;
        }
        self.tools.count.add(Count::WarmLost, 1);
        let lasted_s = self.now_s().saturating_sub(slot.opened_s);
        self.warm_lost_after_s = Some(lasted_s);
        let fd = slot.tls_fd();
        tracing::debug!(peer = %peer_name(&self.tools.io, fd), lasted_s, "a warm connection has ended: {outcome}");
        if !slot.tls.closed() {
            let _ = self.tools.send_alert(slot, Alert::CLOSE_NOTIFY);
        }
        true
    }

    /// The server has ended a connection in the moment in which it was given away. Nothing was
    /// taken from the client, so it gets another.
    pub(crate) fn leave_behind(&mut self, slot: &mut Slot, outcome: &Outcome) -> bool {
        let plain = Plain {
            fd: slot.plain_fd(),
            is_joined: false,
            is_unix: slot.has(Flag::PlainIsUnix),
        };
        if interest::unwatch(slot, &self.tools.io, Side::Plain).is_ok() {
            slot.detach_plain();
            self.left_behind = Some(plain);
            self.tools.count.add(Count::WarmReplaced, 1);
        }
        self.settle_warm(slot, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_hangs_up_at_once_is_not_pressed() {
        let mut pool = Pool::new(3);
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                pool.lost(0, 1_000);
                pool.look_ms().expect("it looks again") - 1_000
            })
            .collect();
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        pool.look_ms = None;
        pool.lost(60, 2_000);
        assert_eq!(pool.look_ms(), Some(2_000 + SPACING_MS));
    }
}
