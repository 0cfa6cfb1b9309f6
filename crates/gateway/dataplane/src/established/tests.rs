//! Tests with real sockets and real slots, including a crash after every step of a move.

mod closing;
#[cfg(debug_assertions)]
mod dying;
mod halves;
#[cfg(debug_assertions)]
mod many;
mod pages;
mod routes;
mod short_memory;
mod times;

use super::*;
use crate::connection_log::ConnectionLog;
use crate::io::OsIo;
use crate::keeper::adopt_pending;
use crate::lifecycle::reload::Remembered;
use crate::lifecycle::stop::Stop;
use crate::memory::allowance::Allowance;
use crate::memory::backlog;
use crate::worker::{Inheritance, Worker};
use crate::workspace::Parts;
use dormouse_config::Lifetime;
use dormouse_config::{
    self as config, BackendDown, ConnectTime, Flag as Given, Machine, Truncation,
};
use dormouse_engine::stream::End;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::SLOT_LAYOUT_VERSION;
use dormouse_reactor::pending::{Handle, Pending};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};
use dormouse_record::{AlertDescription, GCM_UNITS_MAX, KeyIv, Role, Suite};
use dormouse_routes::parsed::Parsed;
use dormouse_routes::route::{Access, Direction, Route};
use dormouse_routes::socket_options::SocketOptions;
use dormouse_routes::table::Routes;
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::{ClientLimits, Clients};
use dormouse_tables::counters::Counters;
use dormouse_tables::traffic::Traffic;
use dormouse_testkit::{Cut, Event, Pair, PairSettings, Resting};
use routes::{keyring, only_route, route, routes_of, settings_of};
use std::collections::BTreeMap;
use zerocopy::{FromBytes as _, IntoBytes as _};

const PLACES: u32 = 8_000;
const PENDING: usize = 1 << 20;

/// Memory that outlives a worker, and the peers' ends of its connections.
struct World {
    slots: Fd,
    pending: Fd,
    counters: Shared,
    clients: Clients,
    orders: [Fd; 2],
    tls: Pair,
    /// By generation.
    ends: BTreeMap<u32, Ends>,
    worker: Option<Worker<OsIo>>,
}

struct Ends {
    client: Resting,
    tls: Fd,
    plain: Fd,
}

/// Limits for the workers of these tests.
fn limits() -> Limits {
    Limits {
        handshake_grace_ms: 1_000,
        heartbeat_ms: None,
        connections_max: PLACES,
        awake_max: PLACES,
        handshakes_max: 10,
        handshake_bytes_max: 65_536,
        pending_per_connection: 131_072,
        per_client: ClientLimits::default(),
        kernel_bytes_max: 1 << 30,
        sources: 1,
        handshake_timeout_ms: 10_000,
        timeout_jitter: 0,
        timeouts_since_ms: 0,
        stall_timeout_ms: 60_000,
        drain_timeout_ms: 10_000,
        log_handshakes: false,
        connection_log: None,
        shutdown_grace_ms: 10_000,
        shutdown_drain_ms: 60_000,
    }
}

fn sockets() -> config::Sockets {
    let flags = [
        ("listen", "127.0.0.1:8443"),
        ("to", "echo:"),
        ("self-signed", "x"),
    ];
    let flags = flags.map(|(name, value)| Given::new(name, value));
    let (section, machine) = (config::Section::Route, Machine::read());
    let loaded = config::load(None, section, &flags, &machine);
    loaded.expect("valid").config.sockets
}

impl World {
    fn new() -> World {
        let slots = Slab::<Slot>::create("slots", PLACES, SLOT_LAYOUT_VERSION).expect("slots");
        let pending = Pending::create("pending", PENDING).expect("pending memory");
        let (here, there) = socket::pair(OnExec::Close).expect("a pair of sockets");
        let mut world = World {
            slots: slots.fd(),
            pending: pending.fd(),
            counters: Shared::create("counters", 1).expect("counters"),
            clients: Clients::create(PLACES, 1).expect("a table"),
            orders: [here, there],
            tls: Pair::new(PairSettings::default()),
            ends: BTreeMap::new(),
            worker: None,
        };
        world.start_worker();
        world
    }

    /// Ends the current worker and starts another that adopts its connections.
    fn start_worker(&mut self) {
        self.worker = None;
        let live = |_: u32, slot: &Slot| slot.phase() != Phase::Free;
        let (mut slots, adopted) =
            Slab::adopt(self.slots, SLOT_LAYOUT_VERSION, live).expect("slots to adopt");
        let pending =
            adopt_pending(&mut slots, self.pending, PENDING).expect("pending memory to adopt");
        let route = route(&self.tls, &sockets());
        let parts = Parts {
            pending,
            count: Counters::new(self.counters.block(0).expect("a block")),
            clients: Clients::adopt(self.clients.fd(), PLACES).expect("the table"),
            backends: Backends::create(1).expect("a table"),
            connection_log: ConnectionLog::new(None, Fd::NONE),
            traffic: Traffic::create(1).expect("a table"),
            sessions: None,
            repair: None,
        };
        let os = OsIo::adopt(slots.header().epoll()).expect("a poller");
        self.worker = Some(
            Worker::adopt(
                Inheritance {
                    slots,
                    parts,
                    routes: routes_of(vec![route]),
                    parsed: Parsed::default(),
                    keyring: keyring(),
                    listeners: Vec::new(),
                    late: None,
                    limits: limits(),
                    orders: self.orders[1],
                    handover: Fd::NONE,
                    remembered: Remembered::default(),
                    set_logs: |_| {},
                    moved: adopted.moved.map(Moved::from),
                    // Other tests in this process have open descriptors, too.
                    keep: (3..20_000).map(Fd).collect(),
                },
                os,
            )
            .expect("a worker"),
        );
    }

    fn worker(&mut self) -> &mut Worker<OsIo> {
        self.worker.as_mut().expect("a worker")
    }

    /// A connection that is established on both sides.
    fn connect(&mut self) {
        let (tls, tls_here) = socket::pair(OnExec::Close).expect("a pair of sockets");
        self.connect_over(tls, tls_here);
    }

    /// The same with this TLS side: the client's socket and the worker's.
    fn connect_over(&mut self, tls: Fd, tls_here: Fd) {
        let (client, server) = self.tls.connect(Cut::Whole).expect("a handshake");
        let (plain, plain_here) = socket::pair(OnExec::Close).expect("a pair of sockets");
        let generation = self.ends.len() as u32 + 1;
        let parts = self.worker().parts();
        let slots = &mut parts.connections.slots;
        let index = slots.insert().expect("a free place");
        let slot = slots.get_mut(index).expect("a slot");
        slot.tls
            .as_mut_bytes()
            .copy_from_slice(server.state.as_bytes());
        let cookie = |fd| socket::cookie(fd).expect("a cookie") as u32;
        slot.begin(tls_here, cookie(tls_here), 0, generation, 1_000_000);
        slot.attach_plain(plain_here, cookie(plain_here));
        slot.set_phase(Phase::Established);
        let (settings, work) = (parts.settings, parts.work);
        parts
            .connections
            .finish(index, Step::default(), settings, work);
        // The connection made no handshake through the worker, so it has not been counted.
        parts.connections.count_phases();
        let ends = Ends { client, tls, plain };
        self.ends.insert(generation, ends);
    }

    fn close(&mut self, index: u32) {
        let worker = self.worker();
        let generation = worker
            .parts()
            .connections
            .slots
            .get(index)
            .expect("a slot")
            .generation;
        remove(worker, index);
        let ends = self
            .ends
            .remove(&generation)
            .expect("the connection's sockets");
        ends.tls.close();
        ends.plain.close();
    }

    /// Runs the event loop until nothing is ready.
    fn run(&mut self) {
        let worker = self.worker();
        // The loop's own deadlines are far away: without this a turn would wait for them.
        for _ in 0..4 {
            worker.parts().compaction.check_now();
            worker.turn().expect("a turn");
        }
    }

    /// Checks that every connection relays bytes in both directions and in order.
    fn check_all(&mut self, word: &str) {
        for (generation, ends) in &mut self.ends {
            let sealed = ends.client.seal(format!("{word} {generation}").as_bytes());
            let sent = socket::send(ends.tls, &sealed).expect("a writable socket");
            assert_eq!(sent, Attempt::Done(sealed.len()));
            let back = format!("{generation} {word}");
            let sent = socket::send(ends.plain, back.as_bytes()).expect("a writable socket");
            assert_eq!(sent, Attempt::Done(back.len()));
        }
        self.run();
        for (generation, ends) in &mut self.ends {
            let mut received = [0; 1024];
            let Ok(Attempt::Done(n)) = socket::recv(ends.plain, &mut received) else {
                panic!("{generation}: the plain side received nothing ({word})");
            };
            assert_eq!(&received[..n], format!("{word} {generation}").as_bytes());
            let Ok(Attempt::Done(n)) = socket::recv(ends.tls, &mut received) else {
                panic!("{generation}: the TLS side received nothing ({word})");
            };
            let events = ends.client.open(&received[..n]);
            let back = format!("{generation} {word}").into_bytes();
            assert_eq!(events, [Event::Data(back)]);
        }
    }
}

/// TLS 1.2 has no key update: the sealed data is delivered, then an alert says that there is more.
#[test]
fn an_exhausted_tls_1_2_key_loses_no_data() {
    // What each long message uses of the key, and what is left: enough for two.
    const UNITS_OF_FULL_RECORD: u64 = 257;
    const LONG: usize = 16_000;
    let mut world = World::new();
    world.connect();
    let key = || KeyIv {
        key: &[7; 16],
        iv: &[9; 12],
    };
    let suite = Suite::Aes128GcmSha256;
    // The records before this one count as full.
    let at = u64::from(GCM_UNITS_MAX - 2) / UNITS_OF_FULL_RECORD - 1;
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    // Handles the tickets of the handshake.
    assert!(ends.client.open(&[]).is_empty());
    let client = &mut ends.client.state;
    client
        .establish_tls12(Role::Client, suite, key(), at, key(), 0)
        .expect("a state");
    let (tls, plain) = (ends.tls, ends.plain);
    let slots = &mut world.worker().parts().connections.slots;
    let slot = slots.get_mut(0).expect("a slot");
    slot.tls
        .establish_tls12(Role::Server, suite, key(), 0, key(), at)
        .expect("a state");
    let mut sealed = Vec::new();
    let messages = [vec![1; LONG], vec![2; LONG], vec![3]];
    for message in &messages {
        let sent = socket::send(plain, message).expect("a writable socket");
        assert_eq!(sent, Attempt::Done(message.len()));
        world.run();
        let mut received = [0; 2 * LONG];
        if let Ok(Attempt::Done(n)) = socket::recv(tls, &mut received) {
            sealed.extend_from_slice(&received[..n]);
        }
    }
    let client = &mut world
        .ends
        .get_mut(&1)
        .expect("the connection's sockets")
        .client;
    let events = client.open(&sealed);
    let data = Event::Data(messages[..2].concat());
    let alert = End::Alert(AlertDescription::InternalError.code());
    assert_eq!(events, [data, Event::Ended(alert)]);
    // The backend sent more data: its socket reports an error, so it knows the data was lost.
    assert!(socket::recv(plain, &mut [0; 8]).is_err());
}

/// A compromised worker names a chunk that does not exist yet: a later connection might get it.
#[test]
fn a_slot_with_a_forged_chunk_is_not_adopted() {
    let mut world = World::new();
    world.connect();
    world.connect();
    let slots = &mut world.worker().parts().connections.slots;
    let slot = slots.get_mut(0).expect("a slot");
    slot.sealing_pending = Handle::read_from_bytes(&1_u32.to_ne_bytes()).expect("a handle");
    world.start_worker();
    let slots = &world.worker().parts().connections.slots;
    assert_eq!(slots.live(), 1, "the other connection continues");
    assert!(slots.get(0).is_none());
    world.ends.remove(&1);
    world.check_all("after");
}

fn remove(worker: &mut Worker<OsIo>, index: u32) {
    let parts = worker.parts();
    parts.connections.remove(index, None, parts.work);
}

fn move_slot(worker: &mut Worker<OsIo>, from: u32) -> Option<u32> {
    let parts = worker.parts();
    parts.connections.move_slot(from, parts.work)
}

fn rewatch(worker: &mut Worker<OsIo>, index: u32, side: Side) -> bool {
    let parts = worker.parts();
    parts.connections.rewatch(index, side, parts.work).is_ok()
}

fn relocate(worker: &mut Worker<OsIo>, from: u32) -> Option<Moved> {
    let parts = worker.parts();
    parts.connections.relocate(from, parts.work)
}

/// A worker that dies after any step of a move leaves a complete slot, and no byte is lost.
#[test]
fn a_crash_at_any_step_of_a_move_loses_nothing() {
    for steps in 0..=4 {
        let mut world = World::new();
        for _ in 0..20 {
            world.connect();
        }
        for index in [0, 3, 4, 11] {
            world.close(index);
        }
        world.check_all("before");
        let worker = world.worker();
        let moved = (steps > 0).then(|| move_slot(worker, 19).expect("a free place"));
        assert_eq!(moved.unwrap_or(0), 0);
        if steps > 1 {
            assert!(rewatch(worker, 0, Side::Tls));
        }
        if steps > 2 {
            assert!(rewatch(worker, 0, Side::Plain));
        }
        if steps > 3 {
            worker.parts().connections.slots.settle_move();
        }
        world.start_worker();
        world.check_all("after a crash");
        let worker = world.worker();
        assert_eq!(
            worker.parts().connections.slots.live(),
            16,
            "crash after step {steps}"
        );
        while let Some(last) = worker.parts().connections.slots.highest_live() {
            let moved = relocate(worker, last);
            if moved.is_none() {
                break;
            }
        }
        assert!(worker.parts().connections.slots.indices().eq(0..16));
        world.check_all("after compaction");
    }
}

/// Nine of ten connections close: the others are moved together, a few per turn, with their timers.
#[test]
fn memory_is_returned_when_most_connections_close() {
    let mut world = World::new();
    for _ in 0..600 {
        world.connect();
    }
    let full = world
        .worker()
        .parts()
        .connections
        .slots
        .resident_bytes()
        .expect("a size");
    for index in 0..600 {
        if index % 10 != 7 {
            world.close(index);
        }
    }
    assert_eq!(
        world.worker().parts().connections.slots.highest_live(),
        Some(597)
    );
    let armed = world.worker().parts().connections.wheel.armed();
    world.run();
    let worker = world.worker();
    assert!(worker.parts().connections.slots.indices().eq(0..60));
    assert_eq!(
        worker.parts().connections.wheel.armed(),
        armed,
        "timers are kept"
    );
    let left = worker
        .parts()
        .connections
        .slots
        .resident_bytes()
        .expect("a size");
    assert!(left * 8 < full, "{left} of {full} bytes are left");
    world.check_all("after compaction");
}

/// A slot whose descriptor refers to another socket after a crash is dropped and not counted.
#[test]
fn a_slot_with_another_socket_is_dropped() {
    let mut world = World::new();
    for _ in 0..3 {
        world.connect();
    }
    let slots = &mut world.worker().parts().connections.slots;
    for index in [0, 1, 2] {
        slots.get_mut(index).expect("a slot").backend = 1;
    }
    slots.get_mut(1).expect("a slot").tls_cookie ^= 1;
    slots.get_mut(2).expect("a slot").tls_cookie ^= 1;
    slots.get_mut(2).expect("a slot").set_phase(Phase::Draining);
    world.start_worker();
    assert_eq!(world.worker().parts().work.backends.load(1), 3);
    world.run();
    let parts = world.worker().parts();
    let connections = parts.connections;
    assert_eq!((connections.live(), connections.at_rest()), (1, 1));
    assert_eq!(connections.draining(), 0);
    assert_eq!(parts.work.backends.load(1), 1);
    // The plain sides are still the same sockets: they are closed, and not reported for ever.
    for (generation, is_closed) in [(1, false), (2, true), (3, true)] {
        let ended = socket::recv(world.ends[&generation].plain, &mut [0; 8]);
        assert_eq!(
            matches!(ended, Ok(Attempt::Done(0))),
            is_closed,
            "{generation}"
        );
    }
}

/// A worker dies when it has counted a new connection for its client, before the connection's first step.
#[test]
fn a_connection_that_never_began_is_not_counted_for_ever() {
    let mut world = World::new();
    let client = [192, 0, 2, 1].into();
    let limits = ClientLimits {
        connections_max: Some(1),
        ..ClientLimits::default()
    };
    let place = world.clients.place(client, limits, 0).expect("room");
    let (tls, tls_here) = socket::pair(OnExec::Close).expect("a pair of sockets");
    let slots = &mut world.worker().parts().connections.slots;
    let index = slots.insert().expect("a free place");
    slots.header().mark_busy(index);
    let slot = slots.get_mut(index).expect("a slot");
    let cookie = socket::cookie(tls_here).expect("a cookie") as u32;
    slot.begin(tls_here, cookie, 0, 1, 1_000_000);
    slot.set_client(place);
    world.clients.enter(place, limits).expect("the first one");
    world.start_worker();
    let next = world.clients.count_handshake(client, limits, 0);
    assert_eq!(next, Ok(()), "no connection is left");
    tls.close();
}

/// The kernel's send queues are measured if they can be longer than one connection's share of `kernel_memory`.
#[test]
fn longer_send_queues_of_a_reload_are_measured() {
    let mut world = World::new();
    let mut sockets = sockets();
    sockets.socket_buffer = config::ByteSize(1 << 20);
    let settings = settings_of(vec![route(&world.tls, &sockets)]);
    let work = world.worker().parts().work;
    work.kernel.limit_to(8 << 20);
    assert_eq!(work.allowance(0, Fd::NONE), Allowance::Full, "not measured");
    work.step.follow(&settings);
    assert_eq!(work.allowance(0, Fd::NONE), Allowance::NOTHING, "measured");
}

/// A TCP connection: the gateway's end and the peer's. Its queues are as short as the kernel allows, and together shorter
/// than what is pending then: some of that is left, however long the kernel takes to fill them.
fn tcp() -> (Fd, std::net::TcpStream) {
    use std::os::fd::AsRawFd as _;
    const SHORTEST: usize = 1;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    // Those whom it accepts have the same queue.
    socket::set_receive_buffer(Fd(listener.as_raw_fd()), SHORTEST).expect("a socket");
    let address = listener.local_addr().expect("an address");
    let here = std::net::TcpStream::connect(address).expect("connected");
    let (there, _) = listener.accept().expect("accepted");
    let here = Fd::from_owned(here.into());
    socket::set_send_buffer(here, SHORTEST).expect("a socket");
    here.set_nonblocking().expect("a socket");
    (here, there)
}

/// Replaces the plain side of the first connection.
fn replace_plain(world: &mut World, plain: Fd) {
    let slots = &mut world.worker().parts().connections.slots;
    let slot = slots.get_mut(0).expect("a slot");
    slot.detach_plain().close();
    slot.attach_plain(plain, socket::cookie(plain).expect("a cookie") as u32);
}

/// A connection whose plain side reads nothing, so that bytes for it are pending. Returns the plain side's peer.
fn with_pending_plaintext(world: &mut World) -> std::net::TcpStream {
    world.connect();
    let (plain, peer) = tcp();
    replace_plain(world, plain);
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    let tls = ends.tls;
    let mut unsent = ends.client.seal(&vec![7; 16 << 20]);
    // The kernel's queues grow for a while.
    let mut full = 0;
    while full < 10 {
        full += 1;
        if let Ok(Attempt::Done(n)) = socket::send(tls, &unsent) {
            unsent.drain(..n);
            full = 0;
        }
        world.run();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let parts = world.worker().parts();
    let slot = parts.connections.slots.get(0).expect("a slot");
    assert!(slot.has(Flag::OpeningBlocked));
    let pending = backlog::opened(slot, &parts.work.pending).len();
    assert!(pending > 16 << 10, "only {pending} bytes");
    peer
}

/// The error after the last byte that a peer receives; `None`: a proper end.
fn end_of(peer: std::net::TcpStream) -> Option<io::ErrorKind> {
    read_to_end(peer).err().map(|error| error.kind())
}

/// What a peer receives until its connection ends.
fn read_to_end(mut peer: std::net::TcpStream) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let timeout = std::time::Duration::from_secs(20);
    peer.set_read_timeout(Some(timeout)).expect("a timeout");
    let mut received = Vec::new();
    peer.read_to_end(&mut received).map(|_| received)
}

/// A backend that does not read until `drain_timeout` is over lacks bytes. It must not take that for a proper end.
#[test]
fn a_plain_side_that_lacks_bytes_is_reset() {
    let mut world = World::new();
    let peer = with_pending_plaintext(&mut world);
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let close = step::Event::Close(CloseReason::Drained);
    connections.step(0, close, settings, work);
    work.now_ms += settings.limits.drain_timeout_ms + 2_000;
    connections.step(0, step::Event::Timer, settings, work);
    assert_eq!(connections.live(), 0);
    assert_eq!(end_of(peer), Some(io::ErrorKind::ConnectionReset));

    // The same at the end of a stop, which frees all connections as they are.
    let mut world = World::new();
    let peer = with_pending_plaintext(&mut world);
    let parts = world.worker().parts();
    parts.connections.free_some(1, parts.work, |_| true);
    assert_eq!(end_of(peer), Some(io::ErrorKind::ConnectionReset));
}

/// Epoll fails, as when the kernel has no memory for a watch.
#[test]
fn a_connection_that_cannot_be_watched_ends_by_an_abort() {
    let mut world = World::new();
    world.connect();
    let (plain, peer) = tcp();
    replace_plain(&mut world, plain);
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let slot = connections.slots.get_mut(0).expect("a slot");
    work.io.unwatch(slot.tls_fd()).expect("watched");
    slot.tls_watch |= 4;
    connections.finish(0, Step::default(), settings, work);
    assert_eq!(connections.live(), 0);
    assert_eq!(end_of(peer), Some(io::ErrorKind::ConnectionReset));
}

/// Established connections are served between the timers of many others.
#[test]
fn a_turn_fires_a_bounded_number_of_timers() {
    const MANY: u32 = TIMERS_PER_TURN + 50;
    let mut world = World::new();
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    for generation in 1..=MANY {
        let (tls, peer) = socket::pair(OnExec::Close).expect("a pair of sockets");
        peer.close();
        let index = connections.slots.insert().expect("a free place");
        let slot = connections.slots.get_mut(index).expect("a slot");
        let cookie = socket::cookie(tls).expect("a cookie") as u32;
        slot.begin(tls, cookie, 0, generation, 1_000_000);
        slot.set_phase(Phase::Draining);
        connections.finish(index, Step::default(), settings, work);
    }
    connections.count_phases();
    work.now_ms += 10_000;
    connections.on_time(settings, work);
    assert_eq!(connections.live(), MANY - TIMERS_PER_TURN);
    let next_ms = connections.next_deadline_ms(work.now_ms);
    assert!(next_ms.is_some_and(|next_ms| next_ms <= work.now_ms));
    connections.on_time(settings, work);
    assert_eq!(connections.live(), 0);
}

/// A stop of many connections takes many turns. However late it is, no connection is freed before all are closed.
#[test]
fn a_turn_of_a_stop_ends_a_bounded_number_of_connections() {
    let mut world = World::new();
    for _ in 0..5 {
        world.connect();
    }
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let mut stop = Stop::new(work.now_ms, 0);
    work.now_ms += 60_000;
    let mut turns = Vec::new();
    while !stop.is_finished(connections.live(), 0, work.now_ms) {
        assert!(stop.next_deadline_ms(work.now_ms) <= work.now_ms);
        stop.end_some(2, connections, settings, work);
        turns.push((connections.live(), connections.draining()));
    }
    assert_eq!(turns, [(5, 2), (5, 4), (4, 4), (2, 2), (0, 0)]);
    for ends in world.ends.values_mut() {
        let mut received = [0; 4096];
        let Ok(Attempt::Done(n)) = socket::recv(ends.tls, &mut received) else {
            panic!("the client received nothing");
        };
        let events = ends.client.open(&received[..n]);
        assert_eq!(events, [Event::Ended(End::Closed)]);
    }
}
