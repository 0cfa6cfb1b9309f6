//! The worker: one thread, one loop, and the slots it owns.
//!
//! A turn of the loop: wait; work on established connections, each for a bounded number of bytes;
//! then accept and make steps of handshakes for a bounded time; then timers. So those who are in
//! come before those who want in.
//!
//! Working on a connection is always the same: mark the slot busy, let the flows work, settle what
//! follows from the slot's new state (ends to pass on, what to wait for, which timer), unmark.
//!
//! ```text
//! coming in      accepting     when                     newcomers     from a listener to a slot
//!                admitting     who may                  introducing   who the client is
//!                choosing      by which route           queue         whose turn it is
//!                handshaking   not established yet      in_flight     one of those
//!                through       TLS that is not ours     challenges    showing that a name is ours
//! to a server    connecting    in plain text            connects      how long that takes
//!                originating   by TLS                   under_way     those on their way
//!                trouble       when it fails            warm          connections kept ready
//! established    established   a slot is lent out       work          one step with it
//!                beginning     the first step           tickets       what still comes
//!                opening       tls_in ──> plain_out     sealing       plain_in ──> tls_out
//!                flow          what both share          backlog       pending bytes
//!                interest      what epoll is told       timers        what happens in its time
//!                closing       ends, aborts             paced         who has passed enough
//! memory         starved       who waits for it         kernel_memory the sum of send queues
//!                compacting    pages come back
//! the worker     recover       what a dead one left     passing       first and last moments
//!                reloading     other routes             ending        stop and drain
//!                reporting     what is logged           bursts        and how often
//!                token         what epoll gives back
//! ```

mod accepting;
mod admitting;
mod backlog;
mod beginning;
mod bursts;
mod challenges;
mod choosing;
mod closing;
mod compacting;
mod connecting;
mod connects;
mod ending;
mod established;
mod flow;
mod handshaking;
mod in_flight;
mod interest;
mod introducing;
mod io;
mod kernel_memory;
mod newcomers;
mod opening;
mod originating;
mod paced;
mod passing;
mod queue;
mod recover;
mod reloading;
mod reporting;
mod sealing;
mod starved;
mod through;
mod tickets;
mod timers;
mod token;
mod trouble;
mod under_way;
mod warm;
mod work;

use accepting::{Listener, Listeners};
use bursts::Bursts;
use challenges::Challenge;
use closing::Ending;
use compacting::Compaction;
use dormouse_config::Log;
use dormouse_handover::orders::{Order, Word};
use dormouse_handover::share::Limits;
use dormouse_handover::slot::{Phase, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::pending::Pending;
use dormouse_reactor::poller::Events;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::timer::Wheel;
use dormouse_routes::contexts::LateContexts;
use dormouse_routes::identities::Identities;
use dormouse_routes::route::Route;
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::Clients;
use dormouse_tables::counters::Counters;
use dormouse_tables::latency::Latency;
use ending::Ends;
use flow::Tools;
use handshaking::Handshakes;
pub use io::Io;
pub(crate) use io::OsIo;
use kernel_memory::KernelMemory;
use originating::{Errand, Plain};
use passing::Passing;
use recover::Doubts;
pub(crate) use reloading::Remembered;
use std::sync::atomic::Ordering;
pub(crate) use token::Token;
use under_way::Originations;
use warm::Pool;

/// Standard streams, epoll, and what a library opens for a moment.
const DESCRIPTORS_SPARE: u64 = 8;

/// One in so many turns of the loop is timed.
const TURNS_PER_TIMED: u32 = 8;

/// How a worker came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Everything is closed.
    Stopped,
    /// Everything is open, and put down for another binary.
    HandedOver,
}

/// Everything a worker begins with; most of it outlives it.
pub(crate) struct Inheritance {
    pub(crate) slots: Slab<Slot>,
    pub(crate) pending: Pending,
    pub(crate) counters: Counters,
    pub(crate) clients: Clients,
    pub(crate) backends: Backends,
    pub(crate) routes: Vec<Route>,
    /// What was parsed for them.
    pub(crate) identities: Identities,
    /// The contexts of the routes, if they are still to be made.
    pub(crate) late: Option<LateContexts>,
    /// Each with the numbers of the routes behind it.
    pub(crate) listeners: Vec<(Fd, Vec<u16>)>,
    pub(crate) limits: Limits,
    /// The channel to main.
    pub(crate) orders: Fd,
    /// Where the next worker will find its handover: a reload puts another in its place.
    pub(crate) handover: Fd,
    /// What it goes by, of that.
    pub(crate) remembered: Remembered,
    /// Sets what is logged.
    pub(crate) set_logs: fn(&Log),
    /// A slot that the predecessor was moving when it died: where it was, and where it is.
    pub(crate) moved: Option<(u32, u32)>,
    /// Other descriptors of the shared table which are to stay open.
    pub(crate) keep: Vec<Fd>,
}

/// One thread of work.
pub(crate) struct Worker<I> {
    slots: Slab<Slot>,
    tools: Tools<I>,
    wheel: Wheel,
    handshakes: Handshakes,
    originations: Originations,
    /// Backends to connect to by TLS, once the slot is settled which they are for.
    errands: Vec<Errand>,
    /// A local client who is to be given another connection, and by which route.
    left_behind: Option<(Plain, u16)>,
    listeners: Listeners,
    routes: Vec<Route>,
    clients: Clients,
    late: Option<LateContexts>,
    identities: Identities,
    challenge: Option<Challenge>,
    doubts: Doubts,
    passing: Passing,
    turns: u32,
    /// Turns until one is timed again.
    until_timed: u32,
    limits: Limits,
    orders: Fd,
    handover: Fd,
    remembered: Remembered,
    set_logs: fn(&Log),
    /// Listeners that came for a reload which is still to come.
    arrived: Vec<Fd>,
    bursts: Bursts,
    generation: u32,
    now_ms: u64,
    /// Connections at rest: kept up to date wherever a slot is worked on.
    at_rest: u32,
    /// While the slots that a predecessor left are looked at for long queues: the next one.
    survey_from: Option<u32>,
    /// When to look next for silent clients, while every handshake's place is taken.
    silent_look_ms: u64,
    ending: Ends,
    /// Connections which are over, and whose last bytes are being delivered.
    leaving: u32,
    compaction: Compaction,
    /// Descriptors of the table which are not connections.
    descriptors_reserved: u64,
    /// Connections for which there are descriptors now.
    descriptors_suffice_for: u64,
    descriptors_looked_ms: u64,
}

impl<I: Io> Worker<I> {
    /// Takes over what there is: nothing at first, a dead predecessor's connections later.
    pub(crate) fn adopt(inheritance: Inheritance, io: I) -> std::io::Result<Worker<I>> {
        let Inheritance {
            slots,
            pending,
            counters,
            clients,
            backends,
            routes,
            identities,
            late,
            listeners,
            limits,
            orders,
            handover,
            remembered,
            set_logs,
            moved,
            keep,
        } = inheritance;
        let now_ms = io.boottime_ms();
        let listeners = listeners
            .into_iter()
            .map(|(fd, door)| Listener::new(fd, &door))
            .collect();
        let send_buffers = (routes.iter()).map(|route| route.sockets.send_buffer_bytes());
        let send_buffer = send_buffers.max().unwrap_or(0);
        let mut worker = Worker {
            wheel: Wheel::new(now_ms),
            handshakes: Handshakes::new(),
            originations: Originations::new(Pool::of(&routes)),
            errands: Vec::new(),
            left_behind: None,
            listeners: Listeners::new(listeners),
            tools: Tools::new(
                pending,
                KernelMemory::new(limits.kernel_bytes_max, io.random()),
                counters,
                backends,
                limits.pending_per_connection,
                send_buffer,
                io,
            ),
            generation: 0,
            bursts: Bursts::default(),
            at_rest: 0,
            survey_from: None,
            silent_look_ms: 0,
            ending: Ends::default(),
            leaving: 0,
            handover,
            remembered,
            set_logs,
            arrived: Vec::new(),
            compaction: Compaction::default(),
            descriptors_reserved: keep.len() as u64 + DESCRIPTORS_SPARE,
            descriptors_suffice_for: u64::MAX,
            descriptors_looked_ms: 0,
            slots,
            routes,
            clients,
            late,
            identities,
            challenge: None,
            doubts: Doubts::default(),
            passing: Passing::default(),
            turns: 0,
            until_timed: 0,
            limits,
            orders,
            now_ms,
        };
        worker.limit_steps();
        worker.recover(moved, &keep)?;
        worker.count_phases();
        if worker.late.is_none() {
            worker.tools.io.say(worker.orders, &Word::Ready);
        }
        Ok(worker)
    }

    /// Works until told to stop, and everything is closed; or until told to hand over.
    pub(crate) fn run(mut self) -> std::io::Result<End> {
        let mut events = Events::with_capacity(256);
        let mut newcomers = Vec::with_capacity(256);
        loop {
            self.turn(&mut events, &mut newcomers)?;
            if let Some(end) = self.end() {
                return Ok(end);
            }
        }
    }

    /// One turn: waits, works on connections, lets new ones in, attends to time.
    pub(crate) fn turn(
        &mut self,
        events: &mut Events,
        newcomers: &mut Vec<Token>,
    ) -> std::io::Result<()> {
        self.tools.io.wait(events, self.timeout_ms())?;
        self.now_ms = self.tools.io.boottime_ms();
        let begun_us = self.tools.io.monotonic_us();
        self.slots
            .header()
            .heartbeat()
            .store(begun_us / 1000, Ordering::Relaxed);
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
        self.on_newcomers(newcomers);
        self.on_time();
        if self.is_behind() {
            self.catch_up(events.len());
        }
        self.look_at_passing();
        if !events.is_empty() {
            self.time_turn(begun_us);
        }
        Ok(())
    }

    /// Notes how long a turn with something to do took: one in so many, for a look at the clock.
    fn time_turn(&mut self, begun_us: u64) {
        self.until_timed = match self.until_timed.checked_sub(1) {
            Some(left) => left,
            None => {
                let took_us = self.tools.io.monotonic_us().saturating_sub(begun_us);
                self.tools.count.observe(Latency::Wake, took_us);
                TURNS_PER_TIMED - 1
            }
        };
    }

    fn timeout_ms(&self) -> Option<u64> {
        if self.handshakes.queue.is_ready(self.may_begin()) {
            return Some(0);
        }
        let deadlines = [
            self.is_behind().then_some(self.now_ms),
            self.passing_deadline_ms(),
            self.limits
                .heartbeat_ms
                .map(|beat_ms| self.now_ms + beat_ms),
            self.wheel.next_deadline(),
            self.handshakes.next_deadline_ms(),
            self.originations.next_deadline_ms(),
            self.tools.tickets.next_deadline_ms(),
            self.listeners.next_deadline_ms(),
            self.ending.next_deadline_ms(self.now_ms),
            self.tools.starved.next_deadline_ms(),
            self.tools.paced.next_deadline_ms(),
            self.tools.kernel.next_deadline_ms(),
            self.survey_from.map(|_| self.now_ms),
            self.room_deadline_ms(),
            self.compaction.next_deadline_ms(),
        ];
        let next = deadlines.into_iter().flatten().min();
        next.map(|deadline_ms| deadline_ms.saturating_sub(self.now_ms))
    }

    /// How much a step receives follows from the limits.
    fn limit_steps(&mut self) {
        let limits = &self.limits;
        self.tools
            .limit_steps(limits.pending_per_connection, limits.per_client);
    }

    /// Counts from the start what is kept up to date from then on.
    fn count_phases(&mut self) {
        let live = self.slots.indices();
        let slots = live.filter_map(|index| self.slots.get(index));
        let phases = slots.map(|slot| (slot.at_rest(), slot.phase() == Phase::Draining));
        let (at_rest, leaving) = phases.fold((0, 0), |(at_rest, leaving), slot| {
            (at_rest + u32::from(slot.0), leaving + u32::from(slot.1))
        });
        (self.at_rest, self.leaving) = (at_rest, leaving);
    }

    // ---- orders ----

    fn on_orders(&mut self) {
        match self.tools.io.receive_order(self.orders) {
            Ok(Some(Order::Stop)) => self.begin_to_stop(),
            Ok(Some(Order::Drain { over_ms, order })) => self.begin_to_drain(over_ms, order),
            Ok(Some(Order::StopDrain)) => self.stop_draining(),
            Ok(Some(Order::Listeners(fds))) => self.arrived.extend(fds),
            Ok(Some(Order::Reload { handover, edition })) => self.reload(handover, edition),
            Ok(Some(Order::TicketKeys(keys))) => self.take_ticket_keys(&keys),
            Ok(Some(Order::Challenge(number, shown))) => self.set_challenge(number, shown),
            Ok(Some(Order::Addresses { name, addresses })) => {
                self.set_addresses(&name, &addresses);
            }
            Ok(Some(Order::Quiesce)) => self.quiesce(),
            Ok(Some(Order::Resume)) => self.resume(),
            Ok(Some(Order::HandOver)) => self.hand_over(),
            Ok(None) => {}
            Err(error) => {
                // The connections do not end with main: they are served on.
                tracing::error!(%error, "the main process is gone; connections are served on");
                let _ = self.tools.io.unwatch(self.orders);
            }
        }
    }
}
