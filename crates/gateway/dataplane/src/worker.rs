//! The worker: one thread, one loop, and the connections it serves.
//!
//! A turn of the loop serves established connections first, each for a bounded number of bytes; then
//! new work (listeners and handshakes) for a bounded time; then it fires timers.
//!
//! ```text
//! door/         listeners, admission, client addresses
//!    │ accepted
//! handshake/    the queue, one handshake after the other     outbound/   TLS to servers, warm
//!    │ established                                              │        connections
//!    ├──────────────────────────────────────────────────────────┘
//! established/  admit ──> begin ──> connect ──> at rest
//!                 event ──> step ──> opening, sealing ──> at rest
//!                 end ──> close ──> freed
//! memory/       pending bytes, send queues, connections that wait for either, compaction
//! lifecycle/    recovery, startup, reload, drain, stop, upgrade
//! ```
//!
//! Each part owns its fields and knows only the parts below it. A step on a connection reaches the
//! other parts through an [`Effect`], which the loop applies. All parts share the [`Workspace`] and
//! read the [`Settings`].

mod compaction;
mod ids;
mod orders;
mod orphaned;

use crate::client::Client;
use crate::context::WorkerContext;
use crate::door::listeners::Listener;
use crate::door::{ACCEPTS_PER_TURN, Door, Occupancy};
use crate::established::{Connections, Moved};
use crate::handshake::Handshakes;
use crate::handshake::in_flight::NewConnection;
use crate::io::Io;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::recover::{self, Inherited};
use crate::lifecycle::reload::Reloader;
use crate::lifecycle::reload::Remembered;
use crate::lifecycle::startup::{Startup, StartupProgress};
use crate::lifecycle::upgrade::Upgrade;
use crate::memory::cooling::Cooling;
use crate::outbound::Outbound;
use crate::outcome::{Effect, LocalClient};
use crate::settings::Settings;
use crate::token::{self, Token};
use crate::workspace::{Parts, Workspace};
use compaction::Compaction;
use dormouse_config::Log;
use dormouse_engine::TicketKeyring;
use dormouse_handover::orders::WorkerReport;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::Slot;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Events, Interest};
use dormouse_reactor::sandbox::OwnPorts;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket::{Accepted, Peer};
use dormouse_routes::loader::RouteLoader;
use dormouse_routes::parsed::Parsed;
use dormouse_routes::table::Routes;
use dormouse_tables::counters::Count;
use dormouse_tables::latency::Latency;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Time for new work per turn, before established connections are served again. A handshake step is
/// not interrupted: with a signature it takes up to a millisecond, so a turn rarely has a second one.
const NEWCOMERS_US: u64 = 200;

/// Events taken from the poller at once.
const EVENTS_PER_TURN: usize = 256;

/// One turn in this many is timed, because reading the clock costs time itself.
const TURNS_PER_TIMED: u32 = 8;

/// Reason for which a worker ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// It stopped: all connections are closed.
    Stopped,
    /// It handed over: all connections are open, and another binary continues them.
    HandedOver,
}

/// Everything that a worker starts with; most of it outlives the worker.
pub(crate) struct Inheritance {
    /// The connections.
    pub(crate) slots: Slab<Slot>,
    /// The tables, for the workspace.
    pub(crate) parts: Parts,
    /// Routes by number.
    pub(crate) routes: Routes,
    /// Parsed certificates and keys of the routes.
    pub(crate) parsed: Parsed,
    /// The ticket keys of all contexts.
    pub(crate) keyring: TicketKeyring,
    /// TLS contexts that are still to be built for the routes.
    pub(crate) late: Option<RouteLoader>,
    /// Each listener with the numbers of its routes.
    pub(crate) listeners: Vec<(Fd, Vec<u16>)>,
    /// Limits and timeouts.
    pub(crate) limits: Limits,
    /// The channel to main.
    pub(crate) orders: Fd,
    /// Descriptor at which the next worker finds its handover; a reload replaces the file behind it.
    pub(crate) handover: Fd,
    /// The parts of the handover that a reload compares with.
    pub(crate) remembered: Remembered,
    /// Sets the log level and format.
    pub(crate) set_logs: fn(&Log),
    /// The slot that the predecessor was moving when it died.
    pub(crate) moved: Option<Moved>,
    /// Other descriptors of the shared table that must stay open.
    pub(crate) keep: Vec<Fd>,
}

/// The worker: all parts of the loop.
pub(crate) struct Worker<I> {
    cx: WorkerContext<I>,
    door: Door,
    handshakes: Handshakes,
    outbound: Outbound,
    compaction: Compaction,
    cooling: Cooling,
    lifecycle: Lifecycle,
    events: Events,
    new_work: Vec<Token>,
    /// Turns until the next timed one.
    until_timed: u32,
}

impl<I: Io> Worker<I> {
    // ---- the loop ----

    /// Runs the loop until the worker has stopped or handed over.
    pub(crate) fn run(mut self) -> std::io::Result<Exit> {
        loop {
            self.turn()?;
            if let Some(exit) = self.exit() {
                return Ok(exit);
            }
        }
    }

    /// Runs one turn of the loop.
    pub(crate) fn turn(&mut self) -> std::io::Result<()> {
        let begun_us = self.wait()?;
        self.serve_connections();
        self.serve_new_work();
        self.serve_time();
        self.stop_if_orphaned();
        self.catch_up();
        self.note_counts();
        self.cx.work.flush_connection_log();
        let now_ms = self.cx.work.now_ms;
        self.cx.work.scratch.wipe_opened(now_ms);
        self.update_door();
        self.time_turn(begun_us);
        Ok(())
    }

    /// Waits until something is ready or due, and sets the time of the turn.
    fn wait(&mut self) -> std::io::Result<u64> {
        let timeout_ms = self.timeout_ms();
        self.cx.work.io.wait(&mut self.events, timeout_ms)?;
        self.cx.work.now_ms = self.cx.work.io.boottime_ms();
        let begun_us = self.cx.work.io.monotonic_us();
        let heartbeat = self.cx.connections.slots().header().heartbeat();
        heartbeat.store(begun_us / 1000, Ordering::Relaxed);
        Ok(begun_us)
    }

    fn timeout_ms(&self) -> Option<u64> {
        let now_ms = self.cx.work.now_ms;
        let heartbeat_ms = self.cx.settings.limits.heartbeat_ms;
        let others = self.outbound.live();
        let deadlines = [
            self.is_behind().then_some(now_ms),
            heartbeat_ms.map(|beat_ms| now_ms + beat_ms),
            self.handshakes
                .next_deadline_ms(others, &self.cx.settings, now_ms),
            self.outbound.next_deadline_ms(self.may_refill()),
            self.cx.connections.next_deadline_ms(now_ms),
            self.cx.work.next_early_rest_ms(),
            self.cx.work.tickets.next_deadline_ms(),
            self.cx.work.signatures.next_deadline_ms(now_ms),
            self.cx.work.next_measurement_ms(),
            self.cx.work.scratch.next_wipe_ms(),
            self.cx.work.connection_log.next_deadline_ms(),
            self.door.listeners.next_deadline_ms(),
            self.compaction.next_deadline_ms(),
            self.cooling.next_deadline_ms(),
            self.lifecycle.next_deadline_ms(now_ms),
        ];
        let next = deadlines.into_iter().flatten().min();
        next.map(|deadline_ms| deadline_ms.saturating_sub(now_ms))
    }

    /// Serves established connections and orders from main. Remembers events of new work for later.
    fn serve_connections(&mut self) {
        self.new_work.clear();
        for n in 0..self.events.len() {
            let event = self.events.get(n).expect("one of the events");
            match token::parse(event.token()) {
                Token::Connection(id, side) => {
                    let (settings, work) = (&self.cx.settings, &mut self.cx.work);
                    self.cx
                        .connections
                        .on_ready(id, side, event, settings, work);
                    self.apply_effects();
                }
                Token::Orders => self.receive_order(),
                Token::Repair => {
                    let (settings, work) = (&self.cx.settings, &mut self.cx.work);
                    self.cx.connections.on_repair(settings, work);
                    self.apply_effects();
                }
                token => self.new_work.push(token),
            }
        }
    }

    /// Accepts connections and advances handshakes, for a bounded time.
    fn serve_new_work(&mut self) {
        if self.new_work.is_empty() && !self.handshakes.has_work() {
            return;
        }
        let until_us = self.cx.work.io.monotonic_us() + NEWCOMERS_US;
        let mut originations = 0;
        for n in 0..self.new_work.len() {
            let token = self.new_work.get(n).copied();
            match token {
                Some(Token::Handshake(id)) => {
                    self.handshakes.on_ready(id, self.cx.work.now_ms);
                }
                // The first one makes a step in every turn, however long it takes to accept new connections. For the
                // others, if this turn has no time left, epoll reports them again in the next one.
                Some(Token::Origination(id))
                    if originations == 0 || self.cx.work.io.monotonic_us() < until_us =>
                {
                    originations += 1;
                    self.outbound.on_ready(id, &mut self.cx);
                }
                Some(Token::Listener(n)) => self.accept(n, until_us),
                _ => {}
            }
        }
        self.apply_effects();
        let others = self.outbound.live();
        self.handshakes.turn(until_us, others, &mut self.cx);
        self.apply_effects();
        let (work, main) = (&mut self.cx.work, self.lifecycle.orders);
        (work.signatures).send(|report| work.io.send_report(main, report));
    }

    /// Accepts from one listener.
    fn accept(&mut self, n: usize, until_us: u64) {
        // A reload in this turn may have replaced the listeners.
        let Some(listener) = self.door.listeners.all().get(n).cloned() else {
            return;
        };
        self.door.count_descriptors(&self.cx.work);
        let mut accepts = 0;
        while accepts < ACCEPTS_PER_TURN {
            // The first one is always accepted, so that each turn makes progress on any machine.
            let is_late = accepts > 0 && self.cx.work.io.monotonic_us() >= until_us;
            let occupancy = self.occupancy();
            let limit = self.door.limit_reached(occupancy, &self.cx.settings);
            if is_late || limit.is_some() {
                break;
            }
            let accepted = self.door.accept(listener.fd, occupancy, &self.cx.work);
            let Some(accepted) = accepted else {
                break;
            };
            self.take_in(accepted, &listener);
            accepts += 1;
        }
        self.door.note_accepted(n, accepts, &mut self.cx.work);
    }

    /// Starts the handshake of an accepted connection: with its client, or with a server for it.
    fn take_in(&mut self, accepted: Accepted, listener: &Listener) {
        let Accepted { fd, peer } = accepted;
        let route = self.cx.settings.route(listener.route);
        let route = route.expect("a listener has routes of the current configuration");
        if route.origin().is_some() {
            let client = LocalClient {
                fd,
                is_unix: peer == Peer::Unix,
                joined_s: None,
                awaits_greeting: route.starttls.has_greeting(),
            };
            return self.outbound.accept(client, listener.route, &mut self.cx);
        }
        let has_choice = listener.routes.len() > 1
            || route.needs_client_hello()
            || self.handshakes.has_challenge();
        let accepted = NewConnection {
            fd,
            client: Client::new(peer),
            route: listener.route,
            candidates: has_choice.then(|| Rc::clone(&listener.routes)),
        };
        self.handshakes.begin(accepted, &mut self.cx);
    }

    /// Fires timers, expires handshakes, and advances a drain or a stop.
    fn serve_time(&mut self) {
        let (settings, work) = (&self.cx.settings, &mut self.cx.work);
        self.cx.connections.on_time(settings, work);
        self.handshakes.expire(&mut self.cx);
        self.outbound.on_time(self.may_refill(), &mut self.cx);
        let (settings, work) = (&self.cx.settings, &mut self.cx.work);
        if let Some(drain) = &mut self.lifecycle.drain {
            drain.turn(&mut self.cx.connections, settings, work);
        }
        if let Some(stop) = &mut self.lifecycle.stop {
            stop.turn(&mut self.cx.connections, settings, work);
        }
        self.apply_effects();
        self.give_back_memory();
    }

    /// Whether pools of warm connections may be filled: not during an upgrade, a drain or a stop.
    fn may_refill(&self) -> bool {
        !self.lifecycle.upgrade.is_under_way() && !self.door.listeners.are_stopped()
    }

    /// Carries out the requests of steps, and pauses accepting if a handshake has found a shortage.
    fn apply_effects(&mut self) {
        let pauses = [self.handshakes.take_pause(), self.outbound.take_pause()];
        for pause in pauses.into_iter().flatten() {
            self.door.pause(pause, self.occupancy(), &self.cx.work);
        }
        while let Some(effect) = self.cx.connections.take_effect() {
            let occupancy = self.occupancy();
            let (outbound, cx) = (&mut self.outbound, &mut self.cx);
            match effect {
                Effect::PauseAccepting(pause) => self.door.pause(pause, occupancy, &cx.work),
                Effect::WarmEnded { route, lasted_s } => {
                    outbound.note_warm_ended(route, lasted_s, cx.work.now_ms);
                }
                Effect::ConnectBackend(request) => outbound.connect_backend(request, cx),
                Effect::ReplaceServer { client, route } => {
                    outbound.originate(Some(client), route, cx);
                }
            }
        }
    }

    /// Returns memory after a burst of handshakes, and compacts the slots.
    fn give_back_memory(&mut self) {
        let tickets_done = self.cx.work.tickets.expire(self.cx.work.now_ms);
        if self.handshakes.burst_ended() || tickets_done {
            self.cx.work.keys.clear();
            self.cx.work.io.return_heap();
            self.cx.connections.trim();
            self.cx.work.pending.trim();
        }
        let now_ms = self.cx.work.now_ms;
        self.cooling.turn(&mut self.cx.work.pending, now_ms);
        let is_quiet = !self.handshakes.has_queued()
            && !self.is_behind()
            && !self.cx.connections.follows_new_timeouts();
        let (outbound, cx) = (&mut self.outbound, &mut self.cx);
        self.compaction
            .turn(is_quiet, &mut cx.connections, outbound, &mut cx.work);
    }

    /// Whether work that was deferred at the start or by a reload is left. If so, the loop does not sleep.
    fn is_behind(&self) -> bool {
        let Lifecycle {
            startup,
            reloader,
            deferred,
            ..
        } = &self.lifecycle;
        !startup.is_done()
            || self.cx.connections.has_unverified()
            || reloader.is_loading()
            || !deferred.is_empty()
            || reloader.retirement.is_due()
    }

    /// Does a part of the deferred work, and reports to main when the worker has become quiet or empty.
    fn catch_up(&mut self) {
        if self.is_behind() {
            self.cx.connections.verify_some(&mut self.cx.work);
            // A reload builds all contexts, also those that a startup has not come to.
            match self.lifecycle.reloader.is_loading() {
                true => self.advance_reload(),
                false if !self.lifecycle.deferred.is_empty() => self.take_deferred(),
                false => self.advance_startup(),
            }
            self.release_former();
        }
        let in_flight = self.handshakes.live() + self.outbound.live();
        let (is_behind, now_ms) = (self.is_behind(), self.cx.work.now_ms);
        let upgrade = &mut self.lifecycle.upgrade;
        if upgrade.becomes_quiet(in_flight, is_behind, now_ms) {
            self.report(&WorkerReport::Quiet);
        }
        if in_flight == 0
            && self.cx.connections.live() == 0
            && let Some(number) = self.lifecycle.reports_empty.take()
        {
            self.report(&WorkerReport::Empty(number));
        }
    }

    fn advance_startup(&mut self) {
        let Lifecycle {
            startup, reloader, ..
        } = &mut self.lifecycle;
        let (routes, backends) = (&mut self.cx.settings.routes, &self.cx.work.backends);
        let is_idle = self.events.is_empty();
        match startup.turn(is_idle, routes, &mut reloader.parsed, backends) {
            StartupProgress::Continues => {}
            StartupProgress::Done => self.report(&WorkerReport::Ready),
            StartupProgress::Failed(error) => {
                // The predecessor could read them. Established connections continue.
                tracing::error!(%error, "certificates unusable; not accepting connections");
                self.door.listeners.stop();
                self.report(&WorkerReport::Unusable);
            }
        }
    }

    fn note_counts(&mut self) {
        ids::note(self.cx.connections.slots().header(), &self.cx.work);
        let in_flight = self.handshakes.live() + self.outbound.live();
        let pending = self.cx.work.pending.bytes_in_use();
        let connections = &self.cx.connections;
        let count = &self.cx.work.count;
        count.set(Count::Connections, u64::from(connections.live()));
        count.set(Count::AtRest, u64::from(connections.at_rest()));
        if let Some(link) = &mut self.cx.work.repair {
            link.places.note_handshakes(in_flight);
            count.set(Count::Resting, u64::from(link.abed()));
            count.set(Count::Awake, link.places.len() as u64);
        }
        count.set(Count::Handshaking, in_flight as u64);
        let begun = self.handshakes.begun() + self.outbound.live();
        count.set(Count::HandshakesBegun, begun as u64);
        count.set(Count::Warm, self.outbound.warm());
        count.set(Count::PendingBytes, pending as u64);
        count.set(Count::PacedNow, connections.paced() as u64);
        count.set(Count::KernelBytes, self.cx.work.kernel.sum() as u64);
    }

    /// Polls the listeners while there is room, once the certificates are loaded.
    fn update_door(&mut self) {
        if self.lifecycle.startup.is_done() {
            let occupancy = self.occupancy();
            self.door
                .update(occupancy, &self.cx.settings, &mut self.cx.work);
        }
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy {
            connections: self.cx.connections.live() as usize,
            awake: match &self.cx.work.repair {
                Some(link) => link.places.taken(),
                None => self.cx.connections.live() as usize,
            },
            handshakes: self.handshakes.live(),
            originations: self.outbound.live(),
            ended: self.cx.connections.freed()
                + self.handshakes.closed()
                + self.outbound.given_up(),
        }
    }

    /// Measures the duration of some of the turns that had events.
    fn time_turn(&mut self, begun_us: u64) {
        if self.events.is_empty() {
            return;
        }
        self.until_timed = match self.until_timed.checked_sub(1) {
            Some(left) => left,
            None => {
                let took_us = self.cx.work.io.monotonic_us().saturating_sub(begun_us);
                self.cx.work.count.observe(Latency::Wake, took_us);
                TURNS_PER_TIMED - 1
            }
        };
    }

    // ---- the beginning and the end ----

    /// Creates a worker, with the connections of its predecessor if there was one.
    pub(crate) fn adopt(inheritance: Inheritance, io: I) -> std::io::Result<Worker<I>> {
        let Inheritance {
            mut slots,
            parts,
            routes,
            parsed,
            keyring,
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
        let mut settings = Settings::new(limits, routes);
        let batches = io.agreement_batches();
        let mut work = Workspace::new(io, parts, &mut settings);
        ids::continue_from(slots.header(), &mut work);
        let accepting = listeners.iter();
        let accepting = accepting.map(|(fd, routes)| Listener::new(*fd, routes));
        let mut door = Door::new(accepting.collect(), keep.len());
        door.follow(&settings.sums);
        let mut ours: Vec<Fd> = listeners.into_iter().map(|(fd, _)| fd).collect();
        ours.push(orders);
        let recovered =
            recover::take_over(&mut slots, &Inherited { moved, ours, keep }, &mut work)?;
        let mut outbound = Outbound::new(&settings.sums);
        let mut connections = Connections::new(slots, recovered.unverified, work.now_ms);
        if let Some(same_poller) = recovered.same_poller {
            let warm = connections.restore(same_poller, &settings, &mut work);
            outbound.take_over(&warm, &connections);
        }
        connections.greet_repair(&mut work);
        // The tables may have counts of a predecessor, so this also runs without connections.
        connections.recount(&work);
        work.io.watch(orders, token::orders(), Interest::READ)?;
        if late.is_none() {
            work.io.send_report(orders, &WorkerReport::Ready);
        }
        let lifecycle = Lifecycle {
            orders,
            startup: Startup::new(late),
            reloader: Reloader::new(handover, remembered, (parsed, keyring), set_logs),
            deferred: Vec::new(),
            drain: None,
            reports_empty: None,
            stop: None,
            orphaned_until_ms: None,
            upgrade: Upgrade::No,
        };
        Ok(Worker {
            cx: WorkerContext {
                settings,
                work,
                connections,
            },
            door,
            handshakes: Handshakes::new(batches),
            outbound,
            compaction: Compaction::default(),
            cooling: Cooling::default(),
            lifecycle,
            events: Events::with_capacity(EVENTS_PER_TURN),
            new_work: Vec::with_capacity(EVENTS_PER_TURN),
            until_timed: 0,
        })
    }

    /// Returns how the worker has ended, if it has.
    pub(crate) fn exit(&self) -> Option<Exit> {
        if self.lifecycle.upgrade == Upgrade::HandedOver {
            // The epoll instance outlives this worker, and would keep reporting these descriptors.
            for listener in self.door.listeners.all() {
                let _ = self.cx.work.io.unwatch(listener.fd);
            }
            let _ = self.cx.work.io.unwatch(self.lifecycle.orders);
            if let Some(link) = &self.cx.work.repair {
                let _ = self.cx.work.io.unwatch(link.channel());
            }
            return Some(Exit::HandedOver);
        }
        let stop = self.lifecycle.stop.as_ref()?;
        let (connections, handshakes) = (self.cx.connections.live(), self.handshakes.live());
        stop.is_finished(connections, handshakes, self.cx.work.now_ms)
            .then_some(Exit::Stopped)
    }

    /// Local ports that this worker chooses itself.
    pub(crate) fn own_ports(&self) -> OwnPorts {
        let link = self.cx.work.repair.as_ref();
        link.map_or(OwnPorts::NONE, |link| link.ports.own)
    }

    /// The slots, for inspection.
    pub(crate) fn slots(&self) -> &Slab<Slot> {
        self.cx.connections.slots()
    }

    /// Wipes all kept keys.
    pub(crate) fn forget_keys(&mut self) {
        self.cx.work.keys.clear();
    }

    /// Number of handshakes in flight, with clients and with servers.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.live() + self.outbound.live()
    }

    /// The parts that tests of connections need.
    #[cfg(test)]
    pub(crate) fn parts(&mut self) -> TestParts<'_, I> {
        TestParts {
            connections: &mut self.cx.connections,
            compaction: &mut self.compaction,
            settings: &self.cx.settings,
            work: &mut self.cx.work,
        }
    }
}

/// The parts of a worker that tests need.
#[cfg(test)]
pub(crate) struct TestParts<'a, I> {
    pub(crate) connections: &'a mut Connections,
    pub(crate) compaction: &'a mut Compaction,
    pub(crate) settings: &'a Settings,
    pub(crate) work: &'a mut Workspace<I>,
}
