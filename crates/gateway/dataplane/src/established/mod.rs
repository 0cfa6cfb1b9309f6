//! Established connections: their slots, and the steps that move their bytes.
//!
//! All work has the same form: mark the slot busy; make the step; set interest and timer, or free the slot; unmark it.

mod affinity;
pub(crate) mod begin;
pub(crate) mod close;
pub(crate) mod connect;
mod connecting;
pub(crate) mod context;
pub(crate) mod deep_rest;
pub(crate) mod fault;
pub(crate) mod flow;
pub(crate) mod interest;
mod later;
pub(crate) mod logged;
mod new_timeouts;
pub(crate) mod opening;
mod paced;
pub(crate) mod pass_through;
mod recovered;
mod relocation;
pub(crate) mod sealing;
mod stalled;
mod starvation;
pub(crate) mod step;
pub(crate) mod tallies;
pub(crate) mod timers;
pub(crate) mod unverified;
mod waking;
pub(crate) mod warm;
mod warm_slots;

use crate::close_reason::CloseReason;
use crate::io::Io;
use crate::memory::backlog;
use crate::memory::holders::{Held, Stall, Waiting};
use crate::memory::starved::Starved;
use crate::outcome::{Effect, Outcome, StepBytes};
use crate::pause::Pause;
use crate::settings::{Settings, Times};
use crate::token::{self, Id, Side};
use crate::traffic;
use crate::workspace::Workspace;
use begin::First;
use connecting::Connecting;
use context::Context;
use dormouse_handover::slot::{Flag, Phase, PlainEnd, Slot, TimerPurpose, TlsEnd};
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket::Shortage;
use dormouse_reactor::timer::Wheel;
use dormouse_reactor::{Fd, poller};
use dormouse_tables::counters::Count;
use later::Later;
use paced::Paced;
use std::io;
use step::{Event, step};
use tallies::{Tallies, Tally};
use unverified::Unverified;

/// Connections of a predecessor whose send queues are measured per turn.
const SURVEYED_PER_TURN: u32 = 128;

/// Timers that fire per turn. After a suspend, or when an upgrade brings a shorter timeout, those of all connections may
/// be due at once. A connection that ends takes up to 50 µs.
const TIMERS_PER_TURN: u32 = 64;

/// Waits for a rate limit that end per turn. A reload may end all at once.
const WAITS_PER_TURN: u32 = 256;

/// The established connections of a worker.
pub(crate) struct Connections {
    slots: Slab<Slot>,
    wheel: Wheel,
    unverified: Unverified,
    starved: Starved,
    paced: Paced,
    tallies: Tallies,
    connecting: Connecting,
    /// The next slot of a predecessor whose send queues are to be measured.
    survey_from: Option<u32>,
    /// The next slot whose timer follows new timeouts.
    rearm_from: Option<u32>,
    /// Number of slots that have become free.
    freed: u64,
    /// What is done when the sides of a connection are awake.
    later: Later,
    /// Requests of steps that the loop has not carried out yet.
    effects: Vec<Effect>,
}

/// The TLS side of a connection that is about to become a slot.
pub(crate) struct NewSocket {
    pub(crate) fd: Fd,
    pub(crate) route: u16,
    pub(crate) generation: u32,
    /// Whether the socket is in epoll, with another token.
    pub(crate) is_watched: bool,
}

/// A slot that is marked busy for a new connection, whose TLS state is written there in place. The connection begins, or
/// the slot is given back.
#[must_use]
pub(crate) struct NewSlot {
    index: u32,
}

/// The part of a step's outcome that decides what becomes of its slot.
#[derive(Clone, Copy, Default)]
struct Step {
    is_over: bool,
    bytes: StepBytes,
}

/// The old and the new index of a moved slot.
#[derive(Clone, Copy)]
pub(crate) struct Moved {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl From<(u32, u32)> for Moved {
    fn from((from, to): (u32, u32)) -> Moved {
        Moved { from, to }
    }
}

impl Connections {
    /// Takes over these slots. If a predecessor has left connections in them, [`Connections::restore`] follows.
    pub(crate) fn new(slots: Slab<Slot>, unverified: Unverified, now_ms: u64) -> Connections {
        Connections {
            slots,
            wheel: Wheel::new(now_ms),
            unverified,
            starved: Starved::default(),
            paced: Paced::default(),
            tallies: Tallies::default(),
            connecting: Connecting::default(),
            survey_from: None,
            rearm_from: None,
            freed: 0,
            later: Later::default(),
            effects: Vec::new(),
        }
    }

    /// Counts a connection by state. Steps keep these numbers up to date.
    fn count(&mut self, index: u32) {
        let tally = Tally::of(self.slots.at(index));
        self.tallies.add(tally);
        self.connecting.note(index, tally.is_connecting());
    }

    /// Counts all connections by state, after a test has changed some.
    #[cfg(test)]
    fn count_phases(&mut self) {
        (self.tallies, self.connecting) = Default::default();
        let all: Vec<u32> = self.slots.indices().collect();
        all.into_iter().for_each(|index| self.count(index));
    }

    /// The slots, for inspection.
    pub(crate) fn slots(&self) -> &Slab<Slot> {
        &self.slots
    }

    fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.all().map(|(_, slot)| slot)
    }

    /// The entries of all connections in the table of clients.
    pub(crate) fn client_places(&self) -> impl Iterator<Item = u32> {
        self.iter().map(Slot::client)
    }

    pub(crate) fn live(&self) -> u32 {
        self.slots.live()
    }

    pub(crate) fn at_rest(&self) -> u32 {
        self.tallies.at_rest
    }

    pub(crate) fn draining(&self) -> u32 {
        self.tallies.draining
    }

    /// Number of slots of connections with TLS to their backend of which one half has ended.
    pub(crate) fn half_ended(&self) -> u32 {
        self.tallies.half_ended
    }

    /// Number of rate-limited connections that wait.
    pub(crate) fn paced(&self) -> usize {
        self.paced.len()
    }

    /// Number of connections that are closed when all their sides are awake.
    pub(crate) fn closing_later(&self) -> u32 {
        self.later.len()
    }

    /// Number of slots that have become free since the start of the worker.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// Takes a request of a step to another part of the worker.
    pub(crate) fn take_effect(&mut self) -> Option<Effect> {
        self.effects.pop()
    }

    /// Adds quiet connections without sockets, numbered from 0.
    #[cfg(test)]
    pub(crate) fn add_quiet(&mut self, count: u32, opened_s: u32) {
        for generation in 0..count {
            let index = self.slots.insert().expect("a free place");
            let slot = self.slots.at_mut(index);
            // Nothing happens on its socket.
            slot.begin(Fd(1_000_000), 0, 0, generation, opened_s);
            slot.set_phase(Phase::Established);
        }
        self.count_phases();
    }

    /// Returns pages without a used slot to the system.
    pub(crate) fn trim(&mut self) {
        self.slots.trim();
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        let deadlines = [
            self.wheel.next_deadline(),
            self.starved.next_deadline_ms(),
            self.paced.next_deadline_ms(),
            self.survey_from.or(self.rearm_from).map(|_| now_ms),
        ];
        deadlines.into_iter().flatten().min()
    }

    // ---- steps ----

    /// Takes a slot for a new connection, and marks it busy. `None`: there is none, or epoll does not watch the socket; it is
    /// closed then.
    pub(crate) fn reserve<I: Io>(
        &mut self,
        socket: &NewSocket,
        work: &mut Workspace<I>,
    ) -> Option<NewSlot> {
        let Some(index) = self.slots.insert() else {
            work.io.close(socket.fd);
            return None;
        };
        self.slots.header().mark_busy(index);
        if let Some(link) = &mut work.repair {
            link.places.enter(index, socket.route);
        }
        self.connecting.note(index, true);
        let new = NewSlot { index };
        let slot = self.new_slot(&new);
        let cookie = work.io.cookie(socket.fd).unwrap_or(0) as u32;
        let now_s = work.now_s();
        slot.begin(socket.fd, cookie, socket.route, socket.generation, now_s);
        let token = token::connection((index, socket.generation), Side::Tls);
        if let Err(error) = interest::adopt(slot, &work.io, token, socket.is_watched) {
            self.note_unwatched(&error);
            self.give_back(new, work);
            return None;
        }
        Some(new)
    }

    /// The slot of a connection that has not begun.
    pub(crate) fn new_slot(&mut self, new: &NewSlot) -> &mut Slot {
        self.slots.at_mut(new.index)
    }

    /// Begins the connection in a slot that has its TLS state. Returns the slot's index, unless the connection has ended.
    pub(crate) fn begin<I: Io>(
        &mut self,
        new: NewSlot,
        first: First,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) -> Option<u32> {
        let index = new.index;
        logged::begin(index, self.new_slot(&new), &first, work);
        let step = self.run(index, Event::Begin(first), settings, work);
        let slot = self.new_slot(&new);
        traffic::enter(slot, &work.traffic);
        traffic::count_opened(slot, &work.traffic);
        self.finish(index, step, settings, work);
        (!step.is_over).then_some(index)
    }

    /// Closes a connection that does not begin, and frees its slot.
    pub(crate) fn give_back<I: Io>(&mut self, new: NewSlot, work: &mut Workspace<I>) {
        traffic::enter(self.new_slot(&new), &work.traffic);
        self.remove_busy(new.index, None, work);
        self.slots.header().clear_busy();
    }

    /// Handles readiness of one side of a connection.
    pub(crate) fn on_ready<I: Io>(
        &mut self,
        (index, generation): Id,
        side: Side,
        ready: poller::Event,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        let is_current = self.slots.get(index).is_some_and(|slot| {
            slot.phase() != Phase::Free && slot.generation & token::GENERATION_MASK == generation
        });
        if is_current {
            self.step(index, Event::Ready(side, ready), settings, work);
        }
    }

    /// Makes a step on a connection.
    pub(crate) fn step<I: Io>(
        &mut self,
        index: u32,
        event: Event,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        if self.verify(index, work) {
            if self.slots.at(index).is_dormant() {
                self.rouse(index, &event, settings, work);
                return;
            }
            self.slots.header().mark_busy(index);
            let step = self.run(index, event, settings, work);
            self.finish(index, step, settings, work);
        }
    }

    /// The connections that wait for a backend and of which this is true.
    pub(crate) fn connecting(&self, is_wanted: impl Fn(&Slot) -> bool) -> Vec<u32> {
        let all = self.connecting.indices();
        all.filter(|index| self.slots.get(*index).is_some_and(&is_wanted))
            .collect()
    }

    /// Makes the step on a slot that is marked busy, and notes its outcome, except for what [`Connections::finish`] does.
    fn run<I: Io>(
        &mut self,
        index: u32,
        event: Event,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) -> Step {
        let slot = self.slots.at_mut(index);
        let route = settings.route_or_removed(slot.route);
        let limits = &settings.limits;
        let former = Tally::of(slot);
        work.step.limit_to(route.limits.bytes);
        let outcome = step(slot, event, Context::new(work, route, limits));
        work.step.limit_to(None);
        traffic::count_step(slot, &outcome.bytes, work);
        let now = Tally::of(slot);
        if now != former {
            self.tallies.update(former, now);
            self.connecting.note(index, now.is_connecting());
        }
        let id = (index, slot.generation);
        match outcome.wait_ms {
            Some(wait_ms) if slot.is_starved() => self.starved.push(id, work.now_ms, wait_ms),
            _ if slot.is_starved() => {}
            _ => self.starved.forget(id),
        }
        if !outcome.is_over
            && let Some((wait_ms, limit)) =
                paced::pay(slot, outcome.bytes.received(), route, settings, work)
        {
            self.paced.push(id, work.now_ms + wait_ms, ());
            paced::note(slot, limit, route, work);
        }
        work.note_step(index, slot, &outcome);
        let Outcome {
            is_over,
            bytes,
            effects,
            ..
        } = outcome;
        self.effects.extend(effects);
        Step { is_over, bytes }
    }

    /// Frees the slot, or sets interest and timer by its new state; then unmarks it.
    fn finish<I: Io>(
        &mut self,
        index: u32,
        step: Step,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        if step.is_over {
            self.remove_busy(index, None, work);
        } else {
            self.set_timer(index, settings, work.now_ms);
            self.apply_interest(index, work);
            self.note_queues_sometimes(index, &step.bytes, settings, work);
        }
        self.slots.header().clear_busy();
    }

    /// At most this number of connections that `is_due`.
    pub(crate) fn some(&self, most: usize, is_due: impl Fn(&Slot) -> bool) -> Vec<u32> {
        let due = self.slots.all().filter(|(_, slot)| is_due(slot));
        due.map(|(index, _)| index).take(most).collect()
    }

    /// Frees at most this number of connections that `is_due`, as they are: nothing more is sent. Returns how many.
    pub(crate) fn free_some<I: Io>(
        &mut self,
        most: usize,
        work: &mut Workspace<I>,
        is_due: impl Fn(&Slot) -> bool,
    ) -> usize {
        let due = self.some(most, is_due);
        for &index in &due {
            self.remove(index, None, work);
        }
        due.len()
    }

    /// Frees a slot outside a step. Marked busy, since a slot whose pending bytes are freed must not outlive the worker.
    fn remove<I: Io>(&mut self, index: u32, reason: Option<CloseReason>, work: &mut Workspace<I>) {
        self.slots.header().mark_busy(index);
        self.remove_busy(index, reason, work);
        self.slots.header().clear_busy();
    }

    /// Frees a slot and closes its sockets. `reason`: that of the end, if no step has noted one.
    fn remove_busy<I: Io>(
        &mut self,
        index: u32,
        reason: Option<CloseReason>,
        work: &mut Workspace<I>,
    ) {
        logged::write_line(&self.slots, index, reason, work);
        self.unlist(index, work);
        let slot = self.slots.at_mut(index);
        work.clients.leave(slot.client());
        let remains = close::dismantle(slot, work);
        slot.tls.wipe();
        self.slots.free(index);
        remains.close(&work.io);
    }

    /// Takes a connection whose slot is about to be freed out of all counts, lists and waits.
    fn unlist<I: Io>(&mut self, index: u32, work: &mut Workspace<I>) {
        self.wheel.cancel(&mut self.slots, index);
        self.later.forget(index);
        let slot = self.slots.at(index);
        deep_rest::forget(index, slot, work);
        self.tallies.remove(Tally::of(slot));
        self.connecting.note(index, false);
        self.starved.forget((index, slot.generation));
        self.paced.forget((index, slot.generation));
        work.backends.leave(slot.backend);
        traffic::leave(slot, &work.traffic);
        work.tickets.forget(slot.generation);
        work.forget_held((index, slot.route));
        self.freed += 1;
    }

    fn apply_interest<I: Io>(&mut self, index: u32, work: &mut Workspace<I>) {
        let slot = self.slots.at_mut(index);
        let tls = token::connection((index, slot.generation), Side::Tls);
        let plain = token::connection((index, slot.generation), Side::Plain);
        if let Err(error) = interest::apply(slot, &work.io, tls, plain) {
            self.remove_unwatched(index, &error, work);
        }
    }

    /// Frees a connection that would get no more events, because epoll has failed.
    fn remove_unwatched<I: Io>(&mut self, index: u32, error: &io::Error, work: &mut Workspace<I>) {
        self.note_unwatched(error);
        let slot = self.slots.at_mut(index);
        traffic::count_sudden_close(slot, CloseReason::Limit, work);
        // The TLS side misses the close_notify; the plain side must not take this for a proper end.
        slot.set_plain_end(PlainEnd::Reset);
        self.remove(index, Some(CloseReason::Limit), work);
    }

    /// Arms or cancels the slot's timer, if its state requires another one than the running one.
    fn set_timer(&mut self, index: u32, settings: &Settings, now_ms: u64) {
        let slot = self.slots.at(index);
        let times = Times {
            limits: &settings.limits,
            lifetime: settings.route_or_removed(slot.route).lifetime,
        };
        let change = timers::change(slot, times, now_ms);
        let Some((purpose, after_ms)) = change else {
            return;
        };
        match after_ms {
            Some(after_ms) => self.wheel.arm(&mut self.slots, index, now_ms + after_ms),
            None => self.wheel.cancel(&mut self.slots, index),
        }
        let slot = self.slots.at_mut(index);
        slot.set_timer_purpose(purpose);
        slot.clear(Flag::RecordCompleted);
    }

    // ---- time ----

    /// Fires some of the timers that are due, and resumes connections that have waited for memory or for their
    /// rate limit.
    pub(crate) fn on_time<I: Io>(&mut self, settings: &Settings, work: &mut Workspace<I>) {
        for _ in 0..TIMERS_PER_TURN {
            let Some(index) = self.wheel.expired(work.now_ms, &mut self.slots) else {
                break;
            };
            match self.slots.at(index).timer_purpose() {
                TimerPurpose::Rest => self.on_rest_timer(index, settings, work),
                _ => self.step(index, Event::Timer, settings, work),
            }
        }
        self.rest_early(settings, work);
        self.rearm_some(settings, work.now_ms);
        self.measure_queues(settings, work);
        self.resume_starved(settings, work);
        self.end_waits(settings, work);
    }

    /// Resumes connections that were not read because memory was short, if a step would read them now.
    fn resume_starved<I: Io>(&mut self, settings: &Settings, work: &mut Workspace<I>) {
        for starved in self.starved.due(work.now_ms) {
            // A wait ends with its connection, and with the step that ends it.
            let index = starved.id.0;
            let slot = self.slots.at_mut(index);
            let is_resumed = starvation::resume(slot, work);
            if slot.is_starved() {
                self.starved.push(starved.id, work.now_ms, starved.wait_ms);
            }
            if is_resumed {
                self.set_timer(index, settings, work.now_ms);
                self.apply_interest(index, work);
            }
        }
    }

    /// Resumes some of the rate-limited connections whose wait is over.
    fn end_waits<I: Io>(&mut self, settings: &Settings, work: &mut Workspace<I>) {
        for _ in 0..WAITS_PER_TURN {
            let Some(((index, _), ())) = self.paced.next_due(work.now_ms) else {
                break;
            };
            let slot = self.slots.at_mut(index);
            // A connection that was aborted does not wait any more.
            if !slot.has(Flag::Paced) {
                continue;
            }
            slot.clear(Flag::Paced);
            // The wait must not count as idle time.
            slot.active_s = work.now_s();
            self.set_timer(index, settings, work.now_ms);
            self.apply_interest(index, work);
        }
    }

    /// Ends all waits, because a reload has changed the rate limits.
    pub(crate) fn end_all_waits(&mut self) {
        self.paced.end_all(0);
    }

    /// Measures send queues while little memory is left, since the kernel does not report that a queue drains, and ends
    /// connections that have held memory for too long without progress. Also measures the queues of a predecessor's
    /// connections once.
    fn measure_queues<I: Io>(&mut self, settings: &Settings, work: &mut Workspace<I>) {
        let none = StepBytes::default();
        for index in work.next_measured() {
            self.note_queues(index, &none, work);
            let patience_ms = work.patience_ms(settings);
            self.end_if_stalled(index, patience_ms, settings, work);
        }
        let (patience_ms, displaced) = work.next_displaced(settings);
        for index in displaced {
            if !work.kernel.is_wanted() {
                break;
            }
            self.note_queues(index, &none, work);
            self.end_if_stalled(index, Some(patience_ms), settings, work);
        }
        for _ in 0..SURVEYED_PER_TURN {
            let next = self.survey_from.and_then(|from| self.slots.next_live(from));
            self.survey_from = next.map(|index| index + 1);
            match next {
                Some(index) => self.note_queues(index, &none, work),
                None => return,
            }
        }
    }

    /// Measures the queues of a connection with pending bytes, since its peer is slow to read. The
    /// queues of a connection at rest are measured at random, unless its route limits stalls.
    fn note_queues_sometimes<I: Io>(
        &mut self,
        index: u32,
        moved: &StepBytes,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        // It has ended if epoll has failed.
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let is_limited = settings
            .route_or_removed(slot.route)
            .lifetime
            .stall_ms
            .is_some();
        if work.kernel.is_due(index, moved.received()) || !slot.at_rest() || is_limited {
            self.note_queues(index, moved, work);
        }
    }

    /// Notes what a connection holds, after a step that has moved these bytes. If it held nothing before, only the queue of
    /// a side that has got some of them is measured.
    fn note_queues<I: Io>(&mut self, index: u32, moved: &StepBytes, work: &mut Workspace<I>) {
        let slot = self.slots.at(index);
        let measures_both = moved.is_none() || work.kernel.holds(index) || !slot.at_rest();
        let queue = |fd, passed| match measures_both || passed > 0 {
            true => work.io.queues(fd).map_or(0, |queues| queues.sent),
            false => 0,
        };
        let to_tls = moved.passed_to_tls(slot) as usize;
        let mut held = Held {
            partial: usize::from(slot.partial_len),
            pending_memory: backlog::memory(slot, &work.pending),
            ..Held::default()
        };
        held.tls = Waiting {
            queue: queue(slot.tls_fd(), to_tls),
            pending: work.pending.len(slot.sealing_pending),
            passed: to_tls,
        };
        if slot.plain_fd() != Fd::NONE {
            let to_plain = moved.plain_out as usize;
            held.plain = Waiting {
                queue: queue(slot.plain_fd(), to_plain),
                pending: backlog::opened(slot, &work.pending).len(),
                passed: to_plain,
            };
        }
        work.note_held((index, slot.route), held);
    }

    /// Ends a connection with a reset if its peer has neither taken a byte of what the connection holds, nor completed
    /// its record, for `patience_ms`; or if its peer has taken nothing for as long as its route allows.
    fn end_if_stalled<I: Io>(
        &mut self,
        index: u32,
        patience_ms: Option<u64>,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let of_route_ms = settings.route_or_removed(slot.route).lifetime.stall_ms;
        let stall = |after_ms| work.kernel.stall(index, after_ms, work.now_ms);
        // A record that its peer does not complete has its own timeout.
        let by_route = of_route_ms
            .and_then(stall)
            .filter(|stall| *stall != Stall::Partial);
        let in_share = || work.patience_in_share_ms(slot.route, settings);
        let Some(stall) = by_route.or_else(|| patience_ms.or_else(in_share).and_then(stall)) else {
            return;
        };
        if !self.verify(index, work) {
            return;
        }
        let slot = self.slots.at_mut(index);
        stalled::log(slot, stall, by_route.is_some(), settings, work);
        work.count.add(Count::StallTimeouts, 1);
        traffic::count_sudden_close(slot, CloseReason::Stalled, work);
        slot.set_tls_end(TlsEnd::Reset);
        slot.set_plain_end(PlainEnd::Reset);
        self.remove(index, Some(CloseReason::Stalled), work);
    }

    /// Logs that epoll does not watch a socket. If the machine has no watch left, no other connection is accepted for a
    /// while.
    fn note_unwatched(&mut self, error: &io::Error) {
        tracing::error!(%error, "socket poll failed; connection closed");
        let pause = Shortage::of(error).and_then(Pause::for_shortage);
        self.effects.extend(pause.map(Effect::PauseAccepting));
    }
}

#[cfg(test)]
mod tests;
