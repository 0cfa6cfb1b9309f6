//! A world: one machine, one worker at a time, its clients and backends, from a seed to the end.
//!
//! ```text
//!   scenario   what a seed stands for       setup    what main would have made
//!   pairs      TLS of the peers             check    what must be true at the end
//!   former     connections of a former worker   counted  one client, for counts of instructions
//! ```

pub(crate) mod check;
pub(crate) mod counted;
mod former;
pub(crate) mod pairs;
pub(crate) mod scenario;
mod setup;

use crate::Random;
use crate::io::{Fuse, Killed, SimIo};
use crate::kernel::{EndId, Family, Kernel, Sabotage};
use crate::peer::codec::Codec;
use crate::peer::plan::{LastAct, Plan, Speech};
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
use scenario::{Command, ProxyHeaders, Scenario, Way};
use setup::Setup;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use zerocopy::FromBytes as _;

/// After so many rounds nothing will come to an end any more.
const ROUNDS_MAX: u64 = 60_000;

/// Rounds in which nothing moves, before the clock is moved.
const QUIET_ROUNDS: u32 = 2;

/// Where limits are low.
const DESCRIPTORS_FEW: u64 = 40;

/// Turns with the clock standing still in which nothing moves, and the worker doesn't sleep.
const IDLE_TURNS_MAX: u32 = 2_000;

/// What proxies say of their clients.
const PROXY_CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)), 40_000);
const PROXY_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 2, 4)), 443);

/// What has happened in a world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Connections of clients.
    pub lives: u64,
    /// Bytes of content that have arrived.
    pub bytes: u64,
    /// Deaths of workers.
    pub deaths: u64,
    /// Steps that workers have made.
    pub steps: u64,
}

/// How far an upgrade is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upgrade {
    None,
    Quieting,
}

/// Everything there is.
pub struct World {
    scenario: Scenario,
    random: Random,
    kernel: Rc<RefCell<Kernel>>,
    fuse: Fuse,
    setup: Setup,
    worker: Option<DrivenWorker<SimIo>>,
    contexts: Contexts,
    peers: Vec<Peer>,
    spawned: u32,
    backends: usize,
    rounds: u64,
    quiet_rounds: u32,
    idle_turns: u32,
    kills: Vec<u64>,
    fuse_set: u64,
    upgrade: Upgrade,
    is_stopping: bool,
    is_stopped: bool,
    scratch: Vec<u8>,
    report: Report,
}

impl World {
    /// Runs a scenario to its end.
    ///
    /// # Errors
    /// Something happened that must not.
    pub fn run(
        scenario: Scenario,
        sabotage: Option<Sabotage>,
        traced: bool,
    ) -> Result<Report, Violation> {
        let made = World::new(scenario, sabotage, traced);
        let mut world = made.map_err(|error| Violation::of_gateway(error.to_string()))?;
        let done = world.live();
        step::at_each(None);
        if traced {
            world.describe();
        }
        done.map(|()| world.report)
    }

    fn new(scenario: Scenario, sabotage: Option<Sabotage>, traced: bool) -> io::Result<World> {
        let mut random = Random::new(scenario.seed ^ 0x5eed);
        let mut kernel = Kernel::new(random.number(), scenario.faults, scenario.buffers);
        let listener = kernel.listen(setup::LISTEN.parse().map_err(io::Error::other)?)?;
        let orders = kernel.open_orders()?;
        let addresses = setup::backends(scenario.way);
        let backends = addresses.len();
        for address in addresses {
            kernel.add_backend(address);
        }
        (kernel.traced, kernel.sabotage) = (traced, sabotage);
        let contexts = Contexts::new(pairs::protocols(random.once_in(4)), true);
        let mut world = World {
            setup: Setup::new(&scenario, listener, orders)?,
            kernel: Rc::new(RefCell::new(kernel)),
            fuse: Fuse::endless(),
            worker: None,
            contexts,
            peers: Vec::new(),
            spawned: 0,
            backends,
            rounds: 0,
            quiet_rounds: 0,
            idle_turns: 0,
            kills: scenario.kills.into_iter().rev().collect(),
            fuse_set: u64::MAX,
            upgrade: Upgrade::None,
            is_stopping: false,
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
        world.light_fuse();
        world.start_worker()?;
        Ok(world)
    }

    // ---- the story ----

    fn live(&mut self) -> Result<(), Violation> {
        while !self.is_over() {
            self.rounds += 1;
            if self.rounds > ROUNDS_MAX {
                check::peers(&self.scenario, &self.peers)?;
                return Err(Violation::of_gateway("it never ends"));
            }
            self.round()?;
        }
        check::peers(&self.scenario, &self.peers)?;
        self.check_leftovers()
    }

    fn is_over(&self) -> bool {
        let all_came = self.spawned == self.scenario.clients;
        let all_left = self.peers.iter().all(|peer| peer.is_closed);
        let kernel = self.kernel.borrow();
        let none_left = kernel.worker_ends().is_empty() && !kernel.has_unaccepted();
        if self.is_stopped {
            return all_left;
        }
        all_came && all_left && none_left
    }

    fn clients_are_gone(&self) -> bool {
        let mut clients = self.peers.iter().filter(|peer| peer.role == Role::Client);
        self.spawned == self.scenario.clients && clients.all(|peer| peer.is_closed)
    }

    fn round(&mut self) -> Result<(), Violation> {
        let before = self.kernel.borrow().changes();
        self.command();
        self.spawn();
        self.let_peers_act();
        self.kernel.borrow_mut().deliver();
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
            return self.pass_time();
        }
        Ok(())
    }

    fn let_peers_act(&mut self) {
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

    /// Nothing moves: the next thing that happens is a matter of time.
    fn pass_time(&mut self) -> Result<(), Violation> {
        let mut kernel = self.kernel.borrow_mut();
        let now_us = kernel.clock_us();
        let peers = self.peers.iter().filter_map(Peer::reads_again_us);
        let wake_us = kernel.wake_us.filter(|_| !self.is_stopped);
        let next = peers.chain(kernel.next_connect_us()).chain(wake_us).min();
        let Some(next_us) = next else {
            drop(kernel);
            check::peers(&self.scenario, &self.peers)?;
            return Err(Violation::of_gateway(
                "nothing moves, and nobody waits for the time",
            ));
        };
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

    fn spawn(&mut self) {
        let clients = self.peers.iter().filter(|peer| peer.role == Role::Client);
        let active = clients.filter(|peer| !peer.is_closed).count();
        let is_room = active < self.scenario.at_once as usize;
        let hesitates = !self.kernel.borrow().calm && self.random.once_in(3);
        if self.spawned == self.scenario.clients || !is_room || hesitates {
            return;
        }
        if self.is_stopped {
            self.spawned = self.scenario.clients;
            return;
        }
        self.spawned += 1;
        let socket = self.kernel.borrow_mut().connect_client(0);
        let codec = match self.scenario.way.has_tls_clients() {
            true => Codec::tls(self.contexts.client(), dormouse_record::State::empty()),
            false => Codec::Plain,
        };
        self.add_peer(Role::Client, socket, codec);
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
                let codec = match self.scenario.way.has_tls_backends() {
                    true => Codec::tls(self.contexts.server(), dormouse_record::State::empty()),
                    false => Codec::Plain,
                };
                self.add_peer(Role::Backend, socket, codec);
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
        let most = self.scenario.speech_max();
        let mut plan = Plan::any(random, codec.is_tls(), self.scenario.aborts, most);
        if most < u64::MAX {
            // By short queues a handshake with pauses would run out of time.
            plan.pause = 0;
        }
        let is_echo = role == Role::Backend && random.once_in(3);
        if is_echo {
            plan.speech = Speech::Echo;
            if plan.last != LastAct::End {
                plan.last = LastAct::Wait;
            }
        }
        if self.scenario.deaf_us > 0 && random.once_in(3) {
            plan.deaf_us = self.scenario.deaf_us;
        }
        if self.scenario.way == Way::Echo || role == Role::Client {
            // Both would wait for each other.
            plan.ends_last = false;
        }
        if self.kernel.borrow().family(socket) == Family::Unix {
            plan.last = LastAct::End;
        }
        let id = self.peers.len() as u32 + 1;
        self.report.lives += u64::from(role == Role::Client);
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
                self.is_stopped = true;
                self.worker = None;
                // The keeper ends, too, and with it the table.
                let kernel = &mut *self.kernel.borrow_mut();
                kernel.close_all_but(&[]);
                kernel.close_listeners();
                Ok(())
            }
            Ok(Ok(Some(Exit::HandedOver))) => self.go_on_as_another_binary(),
            Ok(Err(error)) => Err(Violation::of_gateway(format!("the loop failed: {error}"))),
            Err(cause) if cause.is::<Killed>() => self.bury(),
            Err(cause) => resume_unwind(cause),
        }
    }

    /// The worker is dead: who may notice, and the next one.
    fn bury(&mut self) -> Result<(), Violation> {
        self.note_death();
        self.start_worker()
            .map_err(|error| Violation::of_gateway(format!("no worker can start: {error}")))
    }

    fn note_death(&mut self) {
        self.report.deaths += 1;
        self.worker = None;
        if self.upgrade == Upgrade::Quieting {
            // Main gives the upgrade up; the order to be quiet may still be unread.
            self.upgrade = Upgrade::None;
            self.kernel.borrow_mut().orders.push_back(Order::Resume);
        }
        self.trace("the worker was killed");
        self.doom_unfinished(true);
        self.light_fuse();
    }

    fn light_fuse(&mut self) {
        self.report.steps += self.fuse_set.saturating_sub(self.fuse.left());
        self.fuse_set = self.kills.pop().unwrap_or(u64::MAX);
        self.fuse.set(self.fuse_set);
    }

    /// Starts the next worker, and the next, while they are killed in their beginning.
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
                Err(cause) if cause.is::<Killed>() => self.note_death(),
                Err(cause) => resume_unwind(cause),
            }
        }
    }

    /// The slots of another binary.
    fn go_on_as_another_binary(&mut self) -> Result<(), Violation> {
        self.worker = None;
        self.upgrade = Upgrade::None;
        self.trace("another binary goes on");
        self.doom_unfinished(false);
        let failed =
            |error: io::Error| Violation::of_gateway(format!("the upgrade failed: {error}"));
        self.setup.convert_slots().map_err(failed)?;
        self.start_worker().map_err(failed)
    }

    /// The connection that was being worked on, and those that are not established yet, may be
    /// reset.
    fn doom_unfinished(&mut self, died: bool) {
        let Ok(slots) = Foreign::open(self.setup.slots) else {
            return;
        };
        let mut named = Vec::new();
        let _ = slots.for_each(|index, bytes| {
            if let Ok(slot) = Slot::read_from_bytes(bytes)
                && slot.phase() != Phase::Free
            {
                named.push((index, slot.tls_fd(), slot.plain_fd()));
            }
            Ok::<(), io::Error>(())
        });
        let busy = slots.header().busy().filter(|_| died);
        if died && self.kernel.borrow().sabotage == Some(Sabotage::ForgetBusy) {
            slots.header().clear_busy();
        }
        let ends = self.kernel.borrow().worker_ends();
        let in_slot = |fd: Fd| {
            named
                .iter()
                .find(|(_, tls, plain)| *tls == fd || *plain == fd)
        };
        for &(fd, end) in &ends {
            let is_doomed = match in_slot(fd) {
                Some(&(index, ..)) => Some(index) == busy,
                None => true,
            };
            if is_doomed {
                self.doom(end, &ends, &named, 0);
            }
        }
    }

    /// The connection of which this is the worker's end, and what it is joined to.
    fn doom(&mut self, end: EndId, ends: &[(Fd, EndId)], named: &[(u32, Fd, Fd)], depth: u32) {
        let far = end.other();
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.socket == far) {
            peer.is_victim = true;
            return;
        }
        let Some(&(fd, _)) = ends.iter().find(|(_, known)| *known == far) else {
            return;
        };
        // A joint: the slot at its other end.
        let slot = named.iter().find(|(_, _, plain)| *plain == fd);
        if let Some(&(_, tls, _)) = slot.filter(|_| depth < 2)
            && let Some(&(_, end)) = ends.iter().find(|(known, _)| *known == tls)
        {
            self.doom(end, ends, named, depth + 1);
        }
    }

    // ---- main ----

    fn command(&mut self) {
        if self.scenario.options.warm > 0 && !self.is_stopping && self.clients_are_gone() {
            // Connections that nobody has asked for would never end.
            self.is_stopping = true;
            self.kernel.borrow_mut().orders.push_back(Order::Stop);
        }
        let (command, round) = self.scenario.command;
        if round != self.rounds || self.is_stopped {
            return;
        }
        self.trace("a command");
        let kernel = &mut *self.kernel.borrow_mut();
        match command {
            Command::None => {}
            Command::Stop => kernel.orders.push_back(Order::Stop),
            Command::Drain => {
                kernel.orders.push_back(Order::Drain {
                    over_ms: 3_000,
                    order: DrainOrder::Longest,
                });
                // Main stops listening.
                kernel.close_listeners();
                self.spawned = self.scenario.clients;
            }
            Command::Upgrade => {
                self.upgrade = Upgrade::Quieting;
                kernel.orders.push_back(Order::Quiesce);
            }
            Command::Reload => {
                let read = Handover::read(self.setup.handover);
                let told = read.and_then(|mut handover| {
                    handover.edition += 1;
                    Ok((handover.write()?, handover.edition))
                });
                if let (Ok((handover, edition)), Ok(listener)) = (told, kernel.pass_listener(0)) {
                    kernel.orders.push_back(Order::Listeners(vec![listener]));
                    kernel.orders.push_back(Order::Reload { handover, edition });
                }
            }
        }
    }

    fn receive_reports(&mut self) -> Result<(), Violation> {
        let reports = std::mem::take(&mut self.kernel.borrow_mut().reports);
        for report in reports {
            match report {
                WorkerReport::Quiet if self.upgrade == Upgrade::Quieting => {
                    self.kernel.borrow_mut().orders.push_back(Order::HandOver);
                }
                WorkerReport::NotReloaded(_, why) => {
                    return Err(Violation::of_gateway(format!("not reloaded: {why}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    // ---- the end ----

    fn check_leftovers(&mut self) -> Result<(), Violation> {
        self.report.steps += self.fuse_set.saturating_sub(self.fuse.left());
        self.report.bytes = self.peers.iter().map(|peer| peer.heard).sum();
        if self.is_stopped {
            return Ok(());
        }
        // What is only looked at now and then.
        for _ in 0..3 {
            self.turn()?;
        }
        let kernel = self.kernel.borrow();
        let (open, watched) = (kernel.open_descriptors(), kernel.watches());
        if open > 3 || watched > 2 {
            let what = format!("{open} descriptors are open, {watched} are watched");
            return Err(Violation::of_gateway(what));
        }
        for count in [
            Count::Connections,
            Count::AtRest,
            Count::Handshaking,
            Count::PendingBytes,
        ] {
            let left = self.setup.counters.sum(count as usize);
            if left != 0 {
                let what = format!("{left} {} are left", count.name());
                return Err(Violation::of_gateway(what));
            }
        }
        for address in setup::backends(self.scenario.way) {
            let place = self.setup.backends.place(&address.to_string());
            let load = self.setup.backends.load(place);
            if load != 0 {
                let what = format!("backend {address} has {load} connections, and there are none");
                return Err(Violation::of_gateway(what));
            }
        }
        Ok(())
    }

    // ---- for people ----

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
                "peer {} {:?} of {:?}: said {} {:?}, heard {} {:?}; closed {}, victim {}; {:?}",
                peer.id,
                peer.role,
                peer.partner(),
                peer.said,
                peer.said_end,
                peer.heard,
                peer.heard_end,
                peer.is_closed,
                peer.is_victim,
                peer.plan
            );
        }
    }
}
