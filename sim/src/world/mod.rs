//! A world: a simulated kernel, one worker at a time, and its clients and backends.
//!
//! ```text
//!   scenario   the scenario of a seed            setup    the worker's environment
//!   pairs      TLS of the peers                  check    checks at the end
//!   former     connections of a former worker    counted  one client, for counts of instructions
//!   crowd      an honest client beside hogs
//! ```

pub(crate) mod check;
pub(crate) mod counted;
pub(crate) mod crowd;
mod former;
mod leftovers;
pub(crate) mod pairs;
pub(crate) mod scenario;
mod setup;

use crate::Random;
use crate::io::{Fuse, Killed, SimIo};
use crate::kernel::{EndId, Family, Kernel, Repair, RepairCounts, Sabotage};
use crate::peer::codec::Codec;
use crate::peer::plan::{Ending, Plan, Source};
use crate::peer::{Peer, READ_MAX, Role};
use check::Violation;
use dormouse_dataplane::Exit;
use dormouse_dataplane::driven::DrivenWorker;
use dormouse_dataplane::proxy_protocol::Endpoints;
use dormouse_handover::Handover;
use dormouse_handover::control::DrainOrder;
use dormouse_handover::orders::{Order, WorkerReport};
use dormouse_handover::slot::{Phase, Slot};
use dormouse_reactor::slab::Foreign;
use dormouse_reactor::{Fd, step};
use dormouse_tables::counters::Count;
use pairs::Contexts;
use scenario::{Command, ProxyHeaders, RouteKind, Scenario};
use setup::Setup;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use zerocopy::FromBytes as _;

/// Limit of rounds: a simulation that takes longer never ends.
const ROUNDS_MAX: u64 = 60_000;

/// Rounds without a change before the clock is advanced.
const QUIET_ROUNDS: u32 = 2;

/// The limit of descriptors in scenarios with low limits.
const DESCRIPTORS_FEW: u64 = 40;

/// Time from a drain until it is stopped: longer than the worker waits before it makes warm connections.
const DRAIN_US: u64 = 10_000_000;

/// Limit of turns without a change in which the worker's wait ends at once.
const IDLE_TURNS_MAX: u32 = 2_000;

/// Addresses in the PROXY headers that clients send.
const PROXY_CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)), 40_000);
const PROXY_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 2, 4)), 443);

/// Totals of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Number of client connections.
    pub connections: u64,
    /// Bytes of content received.
    pub bytes: u64,
    /// Deaths of workers.
    pub deaths: u64,
    /// Steps of workers.
    pub steps: u64,
    /// Pauses of accepting because the kernel had no memory.
    pub memory_pauses: u64,
    /// Failures that were counted for a backend.
    pub connects_failed: u64,
    /// What tcp-repair has done.
    pub repair: RepairCounts,
}

/// The state of an upgrade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upgrade {
    None,
    Quieting,
}

/// The state of a simulation.
pub struct World {
    scenario: Scenario,
    random: Random,
    kernel: Rc<RefCell<Kernel>>,
    fuse: Fuse,
    setup: Setup,
    worker: Option<DrivenWorker<SimIo>>,
    contexts: Contexts,
    peers: Vec<Peer>,
    clients_started: u32,
    backends: usize,
    rounds: u64,
    quiet_rounds: u32,
    idle_turns: u32,
    kills: Vec<u64>,
    fuse_set: u64,
    upgrade: Upgrade,
    is_stopping: bool,
    /// When a drain is to be stopped.
    stop_drain_us: Option<u64>,
    is_stopped: bool,
    scratch: Vec<u8>,
    report: Report,
}

impl World {
    /// Runs a scenario to its end.
    ///
    /// # Errors
    /// When a check fails.
    pub fn run(
        scenario: Scenario,
        sabotage: Option<Sabotage>,
        traced: bool,
    ) -> Result<Report, Violation> {
        let made = World::new(scenario, sabotage, traced);
        let mut world = made.map_err(|error| Violation::of_gateway(error.to_string()))?;
        let result = world.run_rounds();
        step::at_each(None);
        if traced {
            world.describe();
        }
        result.map(|()| world.report)
    }

    fn new(scenario: Scenario, sabotage: Option<Sabotage>, traced: bool) -> io::Result<World> {
        let mut random = Random::new(scenario.seed ^ 0x5eed);
        let mut kernel = Kernel::new(random.number(), scenario.faults, scenario.buffers);
        let listener = kernel.listen(setup::LISTEN.parse().map_err(io::Error::other)?)?;
        let orders = kernel.open_orders()?;
        let rest = setup::begin_repair(&scenario, &mut kernel)?;
        let addresses = setup::backends(scenario.route_kind);
        let backends = addresses.len();
        for address in addresses {
            kernel.add_backend(address);
        }
        (kernel.traced, kernel.sabotage) = (traced, sabotage);
        let contexts = Contexts::new(pairs::protocols(random.once_in(4)), true);
        let mut world = World {
            setup: Setup::new(&scenario, listener, orders, rest)?,
            kernel: Rc::new(RefCell::new(kernel)),
            fuse: Fuse::endless(),
            worker: None,
            contexts,
            peers: Vec::new(),
            clients_started: 0,
            backends,
            rounds: 0,
            quiet_rounds: 0,
            idle_turns: 0,
            kills: scenario.kills.into_iter().rev().collect(),
            fuse_set: u64::MAX,
            upgrade: Upgrade::None,
            is_stopping: false,
            stop_drain_us: None,
            is_stopped: false,
            scratch: vec![0; READ_MAX],
            report: Report::default(),
            scenario,
            random,
        };
        world.kernel.borrow_mut().calm = true;
        world.establish()?;
        world.kernel.borrow_mut().calm = false;
        if scenario.low_limits {
            world.kernel.borrow_mut().limit_descriptors(DESCRIPTORS_FEW);
        }
        world.set_fuse();
        world.start_worker()?;
        Ok(world)
    }

    // ---- rounds ----

    fn run_rounds(&mut self) -> Result<(), Violation> {
        while !self.is_finished() {
            self.rounds += 1;
            if self.rounds > ROUNDS_MAX {
                check::peers(&self.scenario, &self.peers)?;
                return Err(Violation::of_gateway("the simulation does not end"));
            }
            self.round()?;
        }
        check::peers(&self.scenario, &self.peers)?;
        let sum = |count| self.setup.counters.sum(count as usize);
        self.report.memory_pauses = sum(Count::PausedMemory);
        if let Some(repair) = &self.kernel.borrow().repair {
            self.report.repair = repair.counts;
        }
        self.report.connects_failed = sum(Count::BackendConnectsFailed);
        self.check_leftovers()
    }

    fn is_finished(&self) -> bool {
        let all_started = self.clients_started == self.scenario.clients;
        let peers_closed = self.peers.iter().all(|peer| peer.is_closed);
        let kernel = self.kernel.borrow();
        let worker_closed = kernel.worker_ends().is_empty() && !kernel.has_unaccepted();
        if self.is_stopped {
            return peers_closed;
        }
        let comes_back = self.scenario.command.0 == Command::DrainAndBack;
        let rests = kernel.repair.as_ref().is_some_and(Repair::is_busy);
        all_started && peers_closed && worker_closed && !rests && !comes_back
    }

    fn clients_are_finished(&self) -> bool {
        let mut clients = self.peers.iter().filter(|peer| peer.role == Role::Client);
        self.clients_started == self.scenario.clients && clients.all(|peer| peer.is_closed)
    }

    fn round(&mut self) -> Result<(), Violation> {
        let before = self.kernel.borrow().changes();
        self.command();
        self.start_client();
        self.run_peers();
        self.kernel.borrow_mut().deliver();
        self.kernel.borrow_mut().run_repair();
        self.accept_at_backends();
        if !self.is_stopped {
            let turns = 1 + self.random.below(2);
            for _ in 0..turns {
                self.turn()?;
            }
        }
        let moved = self.kernel.borrow().changes() != before;
        self.quiet_rounds = if moved { 0 } else { self.quiet_rounds + 1 };
        let is_quiet = self.quiet_rounds > 0;
        self.kernel.borrow_mut().calm = is_quiet;
        if self.quiet_rounds > QUIET_ROUNDS {
            return self.advance_clock();
        }
        Ok(())
    }

    fn run_peers(&mut self) {
        let kernel = &mut *self.kernel.borrow_mut();
        let count = self.peers.len().max(1);
        let first = self.random.below(count);
        for n in 0..self.peers.len() {
            let peer = &mut self.peers[(first + n) % count];
            if kernel.calm || !self.random.once_in(3) {
                peer.act(kernel, &mut self.random, &mut self.scratch);
            }
        }
    }

    /// Advances the clock to the next deadline, because nothing moves before it. A worker that is awake nevertheless, because
    /// its wait ends at once or still reports events, spins.
    fn advance_clock(&mut self) -> Result<(), Violation> {
        let mut kernel = self.kernel.borrow_mut();
        let now_us = kernel.clock_us();
        let peers = self.peers.iter().filter_map(Peer::resumes_us);
        let wake_us = kernel.wake_us.filter(|_| !self.is_stopped);
        let next = peers.chain(kernel.next_connect_us()).chain(wake_us);
        let repair = kernel.repair.as_ref();
        let repeat_us = repair.and_then(Repair::repeat_us).filter(|at| *at > now_us);
        let next = next.chain(self.stop_drain_us).chain(repeat_us).min();
        let Some(next_us) = next else {
            drop(kernel);
            check::peers(&self.scenario, &self.peers)?;
            return Err(Violation::of_gateway(
                "no event is pending and no deadline is set",
            ));
        };
        let is_awake = kernel.has_reported && !self.is_stopped;
        let next_us = if is_awake { now_us } else { next_us };
        if next_us <= now_us {
            self.idle_turns += 1;
            if self.idle_turns > IDLE_TURNS_MAX {
                return Err(Violation::of_gateway("the worker spins"));
            }
        } else {
            self.idle_turns = 0;
        }
        kernel.advance_to(next_us.max(now_us + 1));
        self.quiet_rounds = 0;
        Ok(())
    }

    // ---- peers ----

    fn start_client(&mut self) {
        let clients = self.peers.iter().filter(|peer| peer.role == Role::Client);
        let active = clients.filter(|peer| !peer.is_closed).count();
        let is_full = active >= self.scenario.at_once as usize;
        let is_delayed = !self.kernel.borrow().calm && self.random.once_in(3);
        if self.clients_started == self.scenario.clients || is_full || is_delayed {
            return;
        }
        if self.is_stopped {
            self.clients_started = self.scenario.clients;
            return;
        }
        self.clients_started += 1;
        let socket = self.kernel.borrow_mut().connect_client(0);
        let codec = match self.scenario.route_kind.has_tls_clients() {
            true => Codec::tls(self.contexts.client(), dormouse_record::State::empty()),
            false => Codec::Plain,
        };
        self.add_peer(Role::Client, socket, codec);
        if self.scenario.options.starttls {
            let client = self.peers.last_mut().expect("added");
            match self.scenario.route_kind.has_tls_clients() {
                true => client.ask_for_tls(),
                false => client.expect_greeting(),
            }
        }
        if self.scenario.options.proxy_headers == ProxyHeaders::FromClients {
            let endpoints = Endpoints {
                client: PROXY_CLIENT,
                server: PROXY_SERVER,
            };
            self.peers.last_mut().expect("added").send_header(endpoints);
        }
    }

    fn accept_at_backends(&mut self) {
        for backend in 0..self.backends {
            loop {
                let accepted = self.kernel.borrow_mut().accept_backend(backend);
                let Some(socket) = accepted else { break };
                let codec = match self.scenario.route_kind.has_tls_backends() {
                    true => Codec::tls(self.contexts.server(), dormouse_record::State::empty()),
                    false => Codec::Plain,
                };
                self.add_peer(Role::Backend, socket, codec);
                if self.scenario.options.starttls {
                    let backend = self.peers.last_mut().expect("added");
                    match self.scenario.route_kind.has_tls_backends() {
                        true => backend.offer_tls(),
                        false => backend.greet(),
                    }
                }
                if matches!(
                    self.scenario.options.proxy_headers,
                    ProxyHeaders::ToBackendsV1 | ProxyHeaders::ToBackendsV2
                ) {
                    self.peers.last_mut().expect("added").expect_header();
                }
            }
        }
    }

    fn add_peer(&mut self, role: Role, socket: EndId, codec: Codec) {
        let random = &mut self.random;
        let most = self.scenario.content_max();
        let mut plan = Plan::any(random, codec.is_tls(), self.scenario.aborts, most);
        if most < u64::MAX {
            // With short queues a handshake with pauses would time out.
            plan.pause = 0;
        }
        let is_echo = role == Role::Backend && random.once_in(3);
        if is_echo {
            plan.source = Source::Echo;
            if plan.ending != Ending::Close {
                plan.ending = Ending::Wait;
            }
        }
        if self.scenario.stall_us > 0 && random.once_in(3) {
            plan.stall_us = self.scenario.stall_us;
        }
        if self.scenario.options.rests {
            plan.lulls = 20;
            if self.scenario.stall_us > 0 {
                // Lulls of some advance the clock, and others would read too slowly for the gateway's limit.
                plan.pause = 0;
            }
        }
        if self.scenario.route_kind == RouteKind::Echo || role == Role::Client {
            // Otherwise both peers could wait for each other's end.
            plan.ends_last = false;
        }
        if self.kernel.borrow().family(socket) == Family::Unix {
            plan.ending = Ending::Close;
        }
        let id = self.peers.len() as u32 + 1;
        self.report.connections += u64::from(role == Role::Client);
        self.peers.push(Peer::new(id, role, plan, socket, codec));
    }

    // ---- the worker ----

    fn turn(&mut self) -> Result<(), Violation> {
        let Some(worker) = &mut self.worker else {
            return Ok(());
        };
        let fuse = self.fuse.clone();
        step::at_each(Some(Box::new(move || fuse.step())));
        let turned = catch_unwind(AssertUnwindSafe(|| worker.turn()));
        step::at_each(None);
        match turned {
            Ok(Ok(None)) => self.receive_reports(),
            Ok(Ok(Some(Exit::Stopped))) => {
                let in_use = worker.slots().live();
                if in_use != 0 {
                    let what = format!("the worker stopped, and {in_use} slots were not wiped");
                    return Err(Violation::of_gateway(what));
                }
                self.is_stopped = true;
                self.worker = None;
                // The keeper exits too, which closes its descriptor table.
                let kernel = &mut *self.kernel.borrow_mut();
                kernel.close_all_but(&[]);
                kernel.close_listeners();
                Ok(())
            }
            Ok(Ok(Some(Exit::HandedOver))) => self.complete_upgrade(),
            Ok(Err(error)) => {
                let what = format!("the event loop failed: {error}");
                Err(Violation::of_gateway(what))
            }
            Err(cause) if cause.is::<Killed>() => self.replace_worker(),
            Err(cause) => resume_unwind(cause),
        }
    }

    /// Starts the next worker after a death.
    fn replace_worker(&mut self) -> Result<(), Violation> {
        self.handle_death();
        self.start_worker()
            .map_err(|error| Violation::of_gateway(format!("the next worker failed: {error}")))
    }

    fn handle_death(&mut self) {
        self.report.deaths += 1;
        self.worker = None;
        if self.upgrade == Upgrade::Quieting {
            // Main aborts the upgrade; the order to quiesce may still be unread.
            self.upgrade = Upgrade::None;
            self.kernel.borrow_mut().orders.push_back(Order::Resume);
        }
        if self.is_stopping {
            // Main repeats the order, because the dead worker may have read it.
            self.kernel.borrow_mut().orders.push_back(Order::Stop);
        }
        self.trace("the worker was killed");
        self.mark_unfinished(true);
        self.set_fuse();
    }

    fn set_fuse(&mut self) {
        self.report.steps += self.fuse_set.saturating_sub(self.fuse.left());
        self.fuse_set = self.kills.pop().unwrap_or(u64::MAX);
        self.fuse.set(self.fuse_set);
    }

    /// Starts workers until one is not killed while it starts.
    fn start_worker(&mut self) -> io::Result<()> {
        loop {
            let (kernel, fuse) = (Rc::clone(&self.kernel), self.fuse.clone());
            let io = move |_former| Ok(SimIo::new(kernel, fuse));
            let fuse = self.fuse.clone();
            step::at_each(Some(Box::new(move || fuse.step())));
            let handover = self.setup.handover;
            let begun = catch_unwind(AssertUnwindSafe(|| DrivenWorker::begin(handover, io)));
            step::at_each(None);
            match begun {
                Ok(worker) => {
                    self.worker = Some(worker?);
                    return Ok(());
                }
                Err(cause) if cause.is::<Killed>() => self.handle_death(),
                Err(cause) => resume_unwind(cause),
            }
        }
    }

    /// Converts the slots and starts the worker of the new binary.
    fn complete_upgrade(&mut self) -> Result<(), Violation> {
        self.worker = None;
        self.upgrade = Upgrade::None;
        self.trace("the new binary takes over");
        self.mark_unfinished(false);
        let failed =
            |error: io::Error| Violation::of_gateway(format!("the upgrade failed: {error}"));
        self.setup.convert_slots().map_err(failed)?;
        self.start_worker().map_err(failed)
    }

    /// Marks the peers of connections that may be reset: those that are not established yet and, after a
    /// death, the one that the worker was busy with.
    fn mark_unfinished(&mut self, died: bool) {
        let Ok(slots) = Foreign::open(self.setup.slots) else {
            return;
        };
        let mut used = Vec::new();
        let _ = slots.for_each(|index, bytes| {
            if let Ok(slot) = Slot::read_from_bytes(bytes)
                && slot.phase() != Phase::Free
            {
                used.push((index, slot.tls_fd(), slot.plain_fd()));
            }
            Ok::<(), io::Error>(())
        });
        let busy = slots.header().busy().filter(|_| died);
        if died && self.kernel.borrow().sabotage == Some(Sabotage::ForgetBusy) {
            slots.header().clear_busy();
        }
        let ends = self.kernel.borrow().worker_ends();
        let in_slot = |fd: Fd| {
            used.iter()
                .find(|(_, tls, plain)| *tls == fd || *plain == fd)
        };
        let kernel = self.kernel.clone();
        let is_silent = |end: EndId| kernel.borrow().is_silent(end);
        for &(fd, end) in ends.iter().filter(|(_, end)| !is_silent(*end)) {
            let may_be_reset = match in_slot(fd) {
                Some(&(index, ..)) => Some(index) == busy,
                None => true,
            };
            if may_be_reset {
                self.mark(end, &ends, &used, 0);
            }
        }
    }

    /// Marks the peer at the other side of a worker's end, and the peer of a joined connection.
    fn mark(&mut self, end: EndId, ends: &[(Fd, EndId)], used: &[(u32, Fd, Fd)], depth: u32) {
        let far = end.other();
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.socket == far) {
            peer.may_be_reset = true;
            return;
        }
        let Some(&(fd, _)) = ends.iter().find(|(_, known)| *known == far) else {
            return;
        };
        // The end belongs to a joint: continue with the slot at its other end.
        let slot = used.iter().find(|(_, _, plain)| *plain == fd);
        if let Some(&(_, tls, _)) = slot.filter(|_| depth < 2)
            && let Some(&(_, end)) = ends.iter().find(|(known, _)| *known == tls)
        {
            self.mark(end, ends, used, depth + 1);
        }
    }

    // ---- main ----

    fn command(&mut self) {
        let may_stop = !self.is_stopping && self.upgrade == Upgrade::None;
        let may_stop = may_stop && self.has_warm_again();
        if self.scenario.options.warm > 0 && may_stop && self.clients_are_finished() {
            // Warm connections would never end by themselves. Main ends an upgrade before it stops workers.
            self.is_stopping = true;
            self.kernel.borrow_mut().orders.push_back(Order::Stop);
        }
        let (command, round) = self.scenario.command;
        let now_us = self.kernel.borrow().clock_us();
        if self.stop_drain_us.take_if(|at| *at <= now_us).is_some() {
            self.kernel.borrow_mut().orders.push_back(Order::StopDrain);
        }
        if round != self.rounds || self.is_stopped {
            return;
        }
        self.trace("an order");
        if command == Command::Reload {
            return self.order_reload();
        }
        let kernel = &mut *self.kernel.borrow_mut();
        match command {
            Command::None | Command::Reload => {}
            Command::Stop => kernel.orders.push_back(Order::Stop),
            Command::Drain => {
                kernel.orders.push_back(Order::Drain {
                    over_ms: 3_000,
                    order: DrainOrder::Longest,
                });
                // Main closes its listeners.
                kernel.close_listeners();
                self.clients_started = self.scenario.clients;
            }
            Command::DrainAndBack => {
                kernel.orders.push_back(Order::Drain {
                    over_ms: 0,
                    order: DrainOrder::Longest,
                });
                self.stop_drain_us = Some(now_us + DRAIN_US);
            }
            Command::Upgrade => {
                self.upgrade = Upgrade::Quieting;
                kernel.orders.push_back(Order::Quiesce);
            }
        }
    }

    fn order_reload(&self) {
        let kernel = &mut *self.kernel.borrow_mut();
        let read = Handover::read(self.setup.handover);
        let written = read.and_then(|mut handover| {
            handover.edition += 1;
            Ok((handover.write()?, handover.edition))
        });
        if let (Ok((handover, number)), Ok(listener)) = (written, kernel.pass_listener(0)) {
            kernel.orders.push_back(Order::Listeners(vec![listener]));
            kernel.orders.push_back(Order::Reload { handover, number });
        }
    }

    /// Whether all warm connections are there, if a drain has closed them.
    fn has_warm_again(&self) -> bool {
        let (command, round) = self.scenario.command;
        if command != Command::DrainAndBack {
            return true;
        }
        let slots = self.worker.as_ref().map(DrivenWorker::slots);
        let warm = slots.map_or(0, |slots| {
            let all = slots.indices().filter_map(|index| slots.get(index));
            all.filter(|slot| slot.phase() == Phase::Warm).count()
        });
        let is_over = self.rounds > round && self.stop_drain_us.is_none();
        is_over && warm == self.scenario.options.warm as usize
    }

    fn receive_reports(&mut self) -> Result<(), Violation> {
        let reports = std::mem::take(&mut self.kernel.borrow_mut().reports);
        for report in reports {
            match report {
                WorkerReport::Quiet if self.upgrade == Upgrade::Quieting => {
                    self.kernel.borrow_mut().orders.push_back(Order::HandOver);
                }
                // Its predecessor has received the listeners, and died before the rest. Main repeats the order.
                WorkerReport::NotReloaded(..) if self.report.deaths > 0 => self.order_reload(),
                WorkerReport::NotReloaded(_, reason) => {
                    return Err(Violation::of_gateway(format!("reload failed: {reason}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    // ---- traces ----

    fn trace(&self, what: &str) {
        let kernel = self.kernel.borrow();
        if kernel.traced {
            eprintln!("{:>12} ---- {what}", kernel.clock_us());
        }
    }

    fn describe(&self) {
        eprintln!("{:#?}", self.scenario);
        for peer in &self.peers {
            eprintln!(
                "peer {} {:?} with {:?}: sent {} {:?}, received {} {:?}; closed {}, may be reset {}; {:?}",
                peer.id,
                peer.role,
                peer.partner(),
                peer.content_sent,
                peer.sent_end,
                peer.content_received,
                peer.received_end,
                peer.is_closed,
                peer.may_be_reset,
                peer.plan
            );
        }
    }
}
