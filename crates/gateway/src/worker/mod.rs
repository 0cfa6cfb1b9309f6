//! The worker: one thread, one loop, and the slots it owns.
//!
//! A turn of the loop: wait; work on established connections, each for a bounded number of bytes;
//! then a bounded number of handshake steps; then accept; then timers. So those who are in come
//! before those who want in.
//!
//! Working on a connection is always the same: mark the slot busy, let the flows work, settle what
//! follows from the slot's new state (ends to pass on, what to wait for, which timer), unmark.
//!
//! ```text
//!   opening   tls_in ──> plain_out          connecting   from handshake to backend
//!   sealing   plain_in ──> tls_out          closing      ends, aborts, their delivery
//!   flow      what both share               interest     what epoll is told
//!   backlog   pending bytes                 handshaking  those not established yet
//!   recover   what a dead worker left       accepting    when to accept
//! ```

mod accepting;
mod backlog;
mod bursts;
mod closing;
mod connecting;
mod flow;
mod handshaking;
mod interest;
mod opening;
mod recover;
mod sealing;
mod token;
mod work;

use crate::counters::{Count, Counters};
use crate::orders::{self, Order, Word};
use crate::route::Route;
use crate::slot::{Flag, Phase, Slot, TimerPurpose};
use accepting::{ACCEPTS_PER_TURN, Listener, Listeners, Pause};
use bursts::{Bursts, Subject, peer_name};
use closing::Ending;
use dormouse_engine::{Handshake, HandshakeLimits, TicketKeys, UnixTime};
use dormouse_reactor::pending::Pending;
use dormouse_reactor::poller::{Event, Events, Interest, Poller};
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::timer::Wheel;
use dormouse_reactor::{Fd, OnExec, process};
use flow::{Outcome, Tools};
use handshaking::{Handshakes, Step};
use interest::Side;
use std::io;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use token::Token;
use work::Work;

/// Handshake steps per turn: a storm of newcomers waits, those who are in do not.
const HANDSHAKES_PER_TURN: usize = 16;

/// How often a draining connection's send queue is looked at.
const DRAIN_LOOK_MS: u64 = 100;

/// How often those are looked at who are not read for want of pending memory.
const STARVED_LOOK_MS: u64 = 50;

/// How soon a connect is tried again for which there was no descriptor or port.
const RETRY_CONNECT_MS: u64 = 200;

/// What one worker may use: the configuration's limits, divided by the number of workers.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) connections_max: u32,
    pub(crate) handshakes_max: usize,
    pub(crate) handshake_bytes_max: usize,
    pub(crate) pending_per_connection: usize,
    pub(crate) handshake_timeout_ms: u64,
    pub(crate) idle_timeout_ms: Option<u64>,
    pub(crate) partial_record_timeout_ms: u64,
    pub(crate) backend_connect_timeout_ms: u64,
    pub(crate) drain_timeout_ms: u64,
}

/// Everything a worker begins with; most of it outlives it.
pub(crate) struct Inheritance {
    pub(crate) slots: Slab<Slot>,
    pub(crate) pending: Pending,
    pub(crate) counters: Counters,
    pub(crate) routes: Vec<Route>,
    pub(crate) listeners: Vec<(Fd, u16)>,
    pub(crate) limits: Limits,
    /// The channel to main.
    pub(crate) orders: Fd,
    /// Other descriptors of the shared table which are to stay open.
    pub(crate) keep: Vec<Fd>,
}

/// One thread of work.
pub(crate) struct Worker {
    slots: Slab<Slot>,
    tools: Tools,
    wheel: Wheel,
    poller: Poller,
    handshakes: Handshakes,
    listeners: Listeners,
    routes: Vec<Route>,
    limits: Limits,
    orders: Fd,
    bursts: Bursts,
    generation: u32,
    now_ms: u64,
    stop_by_ms: Option<u64>,
    starved_look_ms: u64,
}

impl Worker {
    /// Takes over what there is: nothing at first, a dead predecessor's connections later.
    pub(crate) fn adopt(inheritance: Inheritance) -> io::Result<Worker> {
        let Inheritance {
            slots,
            pending,
            counters,
            routes,
            listeners,
            limits,
            orders,
            keep,
        } = inheritance;
        let now_ms = process::boottime_ms();
        let poller = recover::poller(&slots)?;
        let listeners = listeners
            .into_iter()
            .map(|(fd, route)| Listener { fd, route })
            .collect();
        let mut worker = Worker {
            wheel: Wheel::new(now_ms),
            poller,
            handshakes: Handshakes::new(),
            listeners: Listeners::new(listeners),
            tools: Tools::new(pending, counters, limits.pending_per_connection),
            generation: 0,
            bursts: Bursts::default(),
            stop_by_ms: None,
            starved_look_ms: 0,
            slots,
            routes,
            limits,
            orders,
            now_ms,
        };
        worker.recover(&keep)?;
        orders::say(worker.orders, &Word::Ready);
        Ok(worker)
    }

    /// Works until told to stop, and everything is closed.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut newcomers = Vec::with_capacity(256);
        loop {
            self.poller.wait(&mut events, self.timeout_ms())?;
            self.now_ms = process::boottime_ms();
            self.slots
                .header()
                .heartbeat()
                .store(self.now_ms, Ordering::Relaxed);
            newcomers.clear();
            for event in events.iter() {
                match token::parse(event.token()) {
                    Token::Connection {
                        index,
                        generation,
                        side,
                    } => {
                        self.on_connection(index, generation, side, event);
                    }
                    Token::Orders => self.on_orders(),
                    token => newcomers.push(token),
                }
            }
            self.on_newcomers(&newcomers);
            self.on_time();
            if self.is_finished() {
                return Ok(());
            }
        }
    }

    fn timeout_ms(&self) -> Option<u64> {
        let deadlines = [
            self.wheel.next_deadline(),
            self.handshakes.next_deadline_ms(),
            self.listeners.next_deadline_ms(),
            self.stop_by_ms,
            (!self.tools.starved.is_empty()).then_some(self.starved_look_ms),
        ];
        let next = deadlines.into_iter().flatten().min();
        next.map(|deadline_ms| deadline_ms.saturating_sub(self.now_ms))
    }

    // ---- established connections ----

    fn on_connection(&mut self, index: u32, generation: u32, side: Side, event: Event) {
        let current = self.slots.get(index).is_some_and(|slot| {
            slot.phase() != Phase::Free && slot.generation & token::GENERATION_MASK == generation
        });
        if !current {
            return;
        }
        self.slots.header().mark_busy(index);
        let over = self.work(index, |work, slot| work.event(slot, side, event));
        self.finish_work(index, over);
    }

    /// Lends the slot to `step`, then settles what follows. `true`: the connection is over.
    fn work(&mut self, index: u32, step: impl FnOnce(&mut Work<'_>, &mut Slot) -> Outcome) -> bool {
        let now_ms = self.now_ms;
        let Worker {
            slots,
            tools,
            routes,
            poller,
            bursts,
            limits,
            listeners,
            ..
        } = self;
        let Some(slot) = slots.get_mut(index) else {
            return false;
        };
        let Some(route) = routes.get(usize::from(slot.route)).or(routes.first()) else {
            return true;
        };
        let mut work = Work {
            tools,
            route,
            poller,
            bursts,
            limits,
            now_ms,
            pause: None,
        };
        let outcome = step(&mut work, slot);
        let over = work.settle(slot, outcome);
        if let Some(pause) = work.pause {
            listeners.pause(pause, now_ms, &tools.count);
        }
        if slot.has(Flag::Starved) && !slot.has(Flag::StarvedQueued) {
            slot.set(Flag::StarvedQueued);
            tools.starved.push((index, slot.generation));
        }
        over
    }

    fn finish_work(&mut self, index: u32, over: bool) {
        if over {
            self.remove(index);
        } else {
            self.set_timer(index);
            self.apply_interest(index);
        }
        self.slots.header().clear_busy();
    }

    fn remove(&mut self, index: u32) {
        self.wheel.cancel(&mut self.slots, index);
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let remains = closing::dismantle(slot, &mut self.tools);
        slot.tls.wipe();
        self.slots.free(index);
        remains.close();
        self.listeners.resume();
    }

    fn apply_interest(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let tls = token::connection(index, slot.generation, Side::Tls);
        let plain = token::connection(index, slot.generation, Side::Plain);
        if let Err(e) = interest::apply(slot, &self.poller, tls, plain) {
            // Without epoll the connection would never be heard of again.
            tracing::error!(error = %e, "epoll refused a descriptor; its connection is closed");
            self.tools.count.add(Ending::Limit.count(), 1);
            self.remove(index);
        }
    }

    // ---- timers ----

    /// Which timer the slot's state asks for; armed when it is not the one that runs.
    fn set_timer(&mut self, index: u32) {
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let (purpose, after_ms) = self.timer_for(slot);
        let running = slot.timer_purpose();
        // A partial record has its deadline already, unless one was completed since: then this is
        // another record.
        let restart = purpose == TimerPurpose::PartialRecord && slot.has(Flag::RecordCompleted);
        if purpose == running && !restart {
            return;
        }
        match after_ms {
            Some(after_ms) => {
                self.wheel
                    .arm(&mut self.slots, index, self.now_ms + after_ms);
            }
            None => self.wheel.cancel(&mut self.slots, index),
        }
        if let Some(slot) = self.slots.get_mut(index) {
            slot.set_timer_purpose(purpose);
            slot.clear(Flag::RecordCompleted);
        }
    }

    fn timer_for(&self, slot: &Slot) -> (TimerPurpose, Option<u64>) {
        let limits = &self.limits;
        match slot.phase() {
            Phase::Connecting if slot.plain_fd() == Fd::NONE => {
                (TimerPurpose::RetryConnect, Some(RETRY_CONNECT_MS))
            }
            Phase::Connecting => (
                TimerPurpose::Connect,
                Some(limits.backend_connect_timeout_ms),
            ),
            Phase::Draining => (TimerPurpose::Drain, Some(DRAIN_LOOK_MS)),
            Phase::Established if slot.partial_len > 0 => (
                TimerPurpose::PartialRecord,
                Some(limits.partial_record_timeout_ms),
            ),
            Phase::Established => match limits.idle_timeout_ms {
                // Not moved at every event: when it runs out it looks at `active_s`, and runs on
                // for what is left.
                Some(idle_ms) => {
                    let due_ms = slot.active_until_ms() + idle_ms;
                    (
                        TimerPurpose::Idle,
                        Some(due_ms.saturating_sub(self.now_ms).max(1000)),
                    )
                }
                None => (TimerPurpose::None, None),
            },
            Phase::Free => (TimerPurpose::None, None),
        }
    }

    fn on_time(&mut self) {
        while let Some(index) = self.wheel.expired(self.now_ms, &mut self.slots) {
            self.slots.header().mark_busy(index);
            let over = self.work(index, |work, slot| work.timer(slot));
            self.finish_work(index, over);
        }
        while let Some((index, generation)) = self.handshakes.next_expired(self.now_ms) {
            self.end_handshake_in_time(index, generation);
        }
        self.feed_starved();
        if self.handshakes.burst_ended() {
            process::return_heap();
            self.slots.trim();
            self.tools.pending.trim();
        }
        if self.stop_by_ms.is_some() {
            self.close_everything_at_rest();
        }
        let count = &self.tools.count;
        count.set(Count::Connections, u64::from(self.slots.live()));
        count.set(Count::Handshaking, self.handshakes.live() as u64);
        count.set(
            Count::PendingBytes,
            self.tools.pending.bytes_in_use() as u64,
        );
        self.update_accepting();
    }

    /// Those who were not read for want of pending memory are looked at again: at once when there
    /// is some, else with every tick, since the other side may have taken what it had.
    fn feed_starved(&mut self) {
        let due = self.tools.has_room() || self.now_ms >= self.starved_look_ms;
        if self.tools.starved.is_empty() || !due {
            return;
        }
        self.starved_look_ms = self.now_ms + STARVED_LOOK_MS;
        for (index, generation) in std::mem::take(&mut self.tools.starved) {
            if let Some(slot) = self.slots.get_mut(index)
                && slot.generation == generation
                && slot.has(Flag::Starved)
            {
                slot.clear(Flag::Starved);
                slot.clear(Flag::StarvedQueued);
                self.apply_interest(index);
            }
        }
    }

    // ---- newcomers ----

    fn on_newcomers(&mut self, tokens: &[Token]) {
        let mut steps = 0;
        for token in tokens {
            match *token {
                // The others are still ready in the next turn: epoll is level-triggered, and
                // hands out its ready list in rotation.
                Token::Handshake { index, generation } if steps < HANDSHAKES_PER_TURN => {
                    steps += 1;
                    self.on_handshake(index, generation);
                }
                Token::Listener(n) => self.on_listener(n),
                _ => {}
            }
        }
    }

    fn on_listener(&mut self, n: usize) {
        let Some(&Listener { fd, route }) = self.listeners.all().get(n) else {
            return;
        };
        for _ in 0..ACCEPTS_PER_TURN {
            if self.limit_reached().is_some() {
                break;
            }
            match socket::accept(fd, OnExec::Keep) {
                Ok(Attempt::Done(accepted)) => self.begin_handshake(accepted.fd, route),
                Ok(Attempt::WouldBlock) => break,
                Err(e) => {
                    tracing::debug!(error = %e, "accept failed");
                    self.listeners
                        .pause(Pause::Descriptors, self.now_ms, &self.tools.count);
                    break;
                }
            }
        }
    }

    fn begin_handshake(&mut self, fd: Fd, route_index: u16) {
        self.tools.count.add(Count::Accepted, 1);
        let Some(route) = self.routes.get(usize::from(route_index)) else {
            fd.close();
            return;
        };
        let limits = HandshakeLimits {
            bytes_max: self.limits.handshake_bytes_max,
        };
        let handshake = Handshake::server(&route.context, limits);
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation & token::GENERATION_MASK;
        let deadline_ms = self.now_ms + self.limits.handshake_timeout_ms;
        let index = self
            .handshakes
            .begin(fd, route_index, generation, handshake, deadline_ms);
        let token = token::handshake(index, generation);
        if self.poller.add(fd, token, Interest::READ).is_err() {
            self.drop_handshake(index, generation);
            return;
        }
        // Often the ClientHello is there already.
        self.on_handshake(index, generation);
    }

    fn on_handshake(&mut self, index: u32, generation: u32) {
        let now = UnixTime::since_unix_epoch(
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        );
        let Some(entry) = self.handshakes.entry(index, generation) else {
            return;
        };
        let token = token::handshake(index, generation);
        match entry.step(&mut self.tools, &self.poller, token, now) {
            Step::Continues => {}
            Step::Established => self.establish(index, generation),
            Step::Gone => self.drop_handshake(index, generation),
            Step::Failed(failure) => {
                let peer = entry.fd;
                self.bursts
                    .handshake_failed(&failure, peer, self.now_ms, &self.tools.count);
                self.handshakes
                    .note_lingering(index, generation, self.now_ms);
            }
        }
    }

    fn end_handshake_in_time(&mut self, index: u32, generation: u32) {
        if let Some(entry) = self.handshakes.entry(index, generation)
            && !entry.is_lingering()
        {
            self.tools.count.add(Count::HandshakesTimedOut, 1);
            let (now_ms, fd) = (self.now_ms, entry.fd);
            self.bursts.note(Subject::HandshakeTimeout, now_ms, |more| {
                tracing::info!(peer = %peer_name(fd), more,
                    "handshake not finished within handshake_timeout; connection closed");
            });
        }
        self.drop_handshake(index, generation);
    }

    fn drop_handshake(&mut self, index: u32, generation: u32) {
        if let Some(entry) = self.handshakes.take(index, generation) {
            entry.fd.close();
            self.listeners.resume();
        }
    }

    /// The handshake is done: from here on the connection is its slot.
    fn establish(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.handshakes.take(index, generation) else {
            return;
        };
        let (fd, route) = (entry.fd, entry.route);
        let (Some(handshake), Some(index)) = (entry.into_handshake(), self.slots.insert()) else {
            fd.close();
            return;
        };
        self.slots.header().mark_busy(index);
        let now_s = (self.now_ms / 1000) as u32;
        let token = token::connection(index, generation, Side::Tls);
        let rested = self.slots.get_mut(index).map(|slot| {
            let cookie = socket::cookie(fd).unwrap_or(0) as u32;
            slot.begin(fd, cookie, route, generation, now_s);
            (
                interest::adopt(slot, &self.poller, token),
                handshake.rest(&mut slot.tls),
            )
        });
        let over = match rested {
            Some((Ok(()), Ok(rested))) => self.work(index, |work, slot| work.begin(slot, rested)),
            Some((_, Err(failure))) => {
                self.bursts
                    .handshake_failed(&failure, fd, self.now_ms, &self.tools.count);
                true
            }
            Some((Err(_), _)) | None => true,
        };
        self.finish_work(index, over);
    }

    // ---- accepting, stopping ----

    fn limit_reached(&self) -> Option<Pause> {
        let taken = self.slots.live() as usize + self.handshakes.live();
        if taken >= self.limits.connections_max as usize {
            Some(Pause::Full)
        } else if self.handshakes.live() >= self.limits.handshakes_max {
            Some(Pause::Handshakes)
        } else {
            None
        }
    }

    fn update_accepting(&mut self) {
        let limit = self.limit_reached();
        let Worker {
            listeners,
            poller,
            tools,
            ..
        } = self;
        match listeners.update(limit, self.now_ms, poller, &tools.count) {
            Ok(None) => {}
            Ok(Some(pause)) => self.bursts.note(Subject::Paused, self.now_ms, |more| {
                tracing::warn!(more, "accepting pauses: {}", pause.in_words());
            }),
            Err(e) => tracing::error!(error = %e, "epoll refused a listening socket"),
        }
    }

    fn on_orders(&mut self) {
        match orders::receive(self.orders) {
            Ok(Some(Order::Stop)) => {
                self.listeners.stop();
                self.stop_by_ms = Some(self.now_ms + self.limits.drain_timeout_ms);
            }
            Ok(Some(Order::TicketKeys(keys))) => {
                let replaced = TicketKeys::import(&keys).and_then(|keys| {
                    let mut routes = self.routes.iter();
                    routes.try_for_each(|route| route.context.replace_ticket_keys(&keys))
                });
                if let Err(error) = replaced {
                    tracing::error!(%error, "ticket keys from the main process are refused");
                }
            }
            Ok(None) => {}
            Err(error) => {
                // The connections do not end with main: they are served on.
                tracing::error!(%error, "the main process is gone; connections are served on");
                let _ = self.poller.remove(self.orders);
            }
        }
    }

    /// While stopping: whatever is at rest is closed properly; what is pending may end first.
    fn close_everything_at_rest(&mut self) {
        let late = self.stop_by_ms.is_some_and(|by_ms| by_ms <= self.now_ms);
        let live: Vec<u32> = self.slots.indices().collect();
        for index in live {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            let due = slot.at_rest() || slot.phase() == Phase::Connecting || late;
            if !due || (slot.phase() == Phase::Draining && !late) {
                continue;
            }
            self.slots.header().mark_busy(index);
            let over = self.work(index, |work, slot| work.stop(slot)) || late;
            self.finish_work(index, over);
        }
    }

    fn is_finished(&self) -> bool {
        let late = self.stop_by_ms.is_some_and(|by_ms| by_ms <= self.now_ms);
        self.stop_by_ms.is_some()
            && (late || (self.slots.live() == 0 && self.handshakes.live() == 0))
    }
}
