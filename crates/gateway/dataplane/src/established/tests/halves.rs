//! Tests of timeouts and drains with TLS to the backend: one connection has two slots, each with timers.

use super::closing::{add_two_halves, heard_by, readable, step_ready, with_two_halves};
use super::*;
use crate::lifecycle::drain::Drain;
use crate::outcome::LocalClient;
use dormouse_engine::Handshake;
use dormouse_handover::control::DrainOrder;
use dormouse_handover::slot::TimerPurpose;
use dormouse_testkit::now;

/// The halves of a connection.
const CLIENT: u32 = 0;
const BACKEND: u32 = 1;

const TIMEOUT_MS: u64 = 600_000;
/// More than the rounding of a slot's times, and the time by which the backend's half is later.
const MORE_MS: u64 = 5_000;

/// A connection whose halves were opened and active long ago.
struct Halves {
    world: World,
    settings: Settings,
    began_ms: u64,
}

impl Halves {
    /// Only one of the timeouts is set.
    fn new(is_total: bool) -> Halves {
        let world = with_two_halves();
        let timeout = |is_set: bool| is_set.then_some(TIMEOUT_MS);
        let lifetime = Lifetime {
            idle_ms: timeout(!is_total),
            total_ms: timeout(is_total),
            rest_after_ms: None,
            stall_ms: None,
            connect_ms: 5_000,
            record_ms: 60_000,
        };
        let route = Route {
            lifetime,
            ..route(&world.tls, &sockets())
        };
        let settings = settings_of(vec![route]);
        let mut halves = Halves {
            world,
            settings,
            began_ms: 0,
        };
        halves.began_ms = halves.slot(CLIENT).opened_by_ms();
        halves.at(0);
        halves
    }

    /// Sets the time since the beginning.
    fn at(&mut self, ms: u64) {
        self.world.worker().parts().work.now_ms = self.began_ms + ms;
    }

    fn slot(&mut self, index: u32) -> &mut Slot {
        let slots = &mut self.world.worker().parts().connections.slots;
        slots.get_mut(index).expect("a slot")
    }

    fn live(&mut self) -> u32 {
        self.world.worker().parts().connections.live()
    }

    fn step(&mut self, index: u32, event: step::Event) {
        let parts = self.world.worker().parts();
        let connections = parts.connections;
        if connections.slots.get(index).is_some() {
            connections.step(index, event, &self.settings, parts.work);
        }
    }

    fn timer(&mut self, index: u32) {
        self.slot(index).set_timer_purpose(TimerPurpose::Idle);
        self.step(index, step::Event::Timer);
    }

    fn ready(&mut self, index: u32, side: Side) {
        self.step(index, step::Event::Ready(side, readable()));
    }

    /// The TLS peer of a half sends some bytes of this record, and the half reads them.
    fn send(&mut self, index: u32, record: &[u8]) {
        let tls = self.world.ends[&(index + 1)].tls;
        let sent = socket::send(tls, record).expect("a writable socket");
        assert_eq!(sent, Attempt::Done(record.len()));
        self.ready(index, Side::Tls);
    }

    fn seal(&mut self, index: u32, message: &[u8]) -> Vec<u8> {
        let ends = self.world.ends.get_mut(&(index + 1)).expect("sockets");
        ends.client.seal(message)
    }

    fn heard(&mut self, index: u32) -> Vec<Event> {
        heard_by(&mut self.world, index + 1)
    }
}

#[test]
fn a_timeout_ends_both_halves_properly() {
    for (is_total, first) in [(false, CLIENT), (true, CLIENT), (true, BACKEND)] {
        let mut halves = Halves::new(is_total);
        halves.at(TIMEOUT_MS + MORE_MS);
        halves.timer(first);
        halves.timer(CLIENT + BACKEND - first);
        halves.ready(CLIENT, Side::Plain);
        halves.ready(BACKEND, Side::Plain);
        for index in [CLIENT, BACKEND] {
            assert_eq!(halves.heard(index), [Event::Ended(End::Closed)]);
            // A reset must not overtake the alert.
            assert!(halves.slot(index).tls_end() == TlsEnd::Linger, "{index}");
        }
    }
}

/// The backend has sent half a record of its answer. The client must not take the end for a proper one.
#[test]
fn a_timeout_in_an_answer_of_a_backend_with_tls_is_no_proper_end() {
    for is_total in [false, true] {
        let mut halves = Halves::new(is_total);
        let record = halves.seal(BACKEND, b"an answer");
        halves.send(BACKEND, &record[..10]);
        halves.at(TIMEOUT_MS + MORE_MS);
        halves.timer(CLIENT);
        assert_eq!(halves.live(), 2, "the client's half waits");
        halves.timer(BACKEND);
        halves.ready(CLIENT, Side::Plain);
        assert_eq!(halves.live(), 0);
        assert_eq!(halves.heard(CLIENT), []);
    }
}

/// The client has sent half a record of its request.
#[test]
fn a_timeout_in_a_request_for_a_backend_with_tls_is_no_proper_end() {
    for is_total in [false, true] {
        let mut halves = Halves::new(is_total);
        let record = halves.seal(CLIENT, b"a request");
        halves.send(CLIENT, &record[..10]);
        halves.at(TIMEOUT_MS + MORE_MS);
        halves.timer(BACKEND);
        halves.ready(CLIENT, Side::Plain);
        halves.ready(BACKEND, Side::Plain);
        assert_eq!(halves.live(), 0);
        assert_eq!(halves.heard(BACKEND), []);
    }
}

/// A long record arrives slowly: the client's half sees nothing of it before its end.
#[test]
fn an_idle_half_waits_while_the_backends_is_active() {
    let mut halves = Halves::new(false);
    let record = halves.seal(BACKEND, b"an answer");
    halves.at(TIMEOUT_MS - MORE_MS);
    halves.send(BACKEND, &record[..10]);
    halves.at(TIMEOUT_MS + MORE_MS);
    halves.timer(CLIENT);
    halves.timer(BACKEND);
    halves.send(BACKEND, &record[10..]);
    halves.ready(CLIENT, Side::Plain);
    assert_eq!(halves.heard(CLIENT), [Event::Data(b"an answer".to_vec())]);
    assert_eq!(halves.live(), 2);
}

/// The client's half takes nothing, because of a rate limit: its wait must not count.
#[test]
fn an_idle_half_waits_until_the_other_has_taken_its_bytes() {
    let mut halves = Halves::new(false);
    let record = halves.seal(BACKEND, b"an answer");
    halves.send(BACKEND, &record);
    halves.slot(CLIENT).set(Flag::Paced);
    halves.at(TIMEOUT_MS + MORE_MS);
    halves.timer(BACKEND);
    halves.timer(CLIENT);
    halves.slot(CLIENT).clear(Flag::Paced);
    halves.ready(CLIENT, Side::Plain);
    assert_eq!(halves.heard(CLIENT), [Event::Data(b"an answer".to_vec())]);
    assert_eq!(halves.live(), 2);
}

/// Neither TLS peer reads, so each half has bytes of the other one to pass on.
#[test]
fn halves_that_wait_for_each_other_are_reset() {
    let mut halves = Halves::new(false);
    for index in [CLIENT, BACKEND] {
        let record = halves.seal(index, b"more than a mark");
        halves.send(index, &record);
    }
    halves.at(TIMEOUT_MS + MORE_MS);
    halves.timer(CLIENT);
    let slot = halves.slot(CLIENT);
    assert!(slot.phase() == Phase::Draining && slot.plain_end() == PlainEnd::Reset);
    assert_eq!(halves.heard(CLIENT), []);
}

/// The backend has ended long ago, and the client sends slowly: that is no timeout.
#[test]
fn an_end_of_the_backend_ends_its_direction_only() {
    let mut halves = Halves::new(false);
    halves.at(TIMEOUT_MS - MORE_MS);
    let ends = halves.world.ends.get_mut(&2).expect("sockets");
    let record = ends.client.seal_close();
    halves.send(BACKEND, &record);
    halves.ready(CLIENT, Side::Plain);
    assert_eq!(halves.heard(CLIENT), [Event::Ended(End::Closed)]);
    halves.at(TIMEOUT_MS + MORE_MS);
    halves.timer(CLIENT);
    halves.timer(BACKEND);
    let record = halves.seal(CLIENT, b"a request");
    halves.send(CLIENT, &record);
    halves.ready(BACKEND, Side::Plain);
    assert_eq!(halves.heard(BACKEND), [Event::Data(b"a request".to_vec())]);
    assert_eq!(halves.live(), 2);
}

/// Four connections in eight slots, for eight seconds. Their clients wait for the gateway to close.
#[test]
fn a_drain_counts_connections_not_halves() {
    const OVER_MS: u64 = 8_000;
    let mut world = World::new();
    for _ in 0..4 {
        add_two_halves(&mut world);
    }
    let parts = world.worker().parts();
    let live = parts.connections.live();
    let slot = parts.connections.slots.get(0).expect("a slot");
    let began_ms = slot.opened_by_ms();
    let mut drain = Drain::new(began_ms, OVER_MS, DrainOrder::Longest, live);
    let mut ended = (0, 0);
    for tenth in 0..=120 {
        let parts = world.worker().parts();
        let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
        work.now_ms = began_ms + tenth * 100;
        drain.turn(connections, settings, work);
        for index in (0..live).chain(0..live) {
            step_ready(&mut world, index, Side::Plain);
        }
        let mut ends = |of| {
            (0_u32..4)
                .filter(|n| !heard_by(&mut world, 2 * n + of).is_empty())
                .count()
        };
        ended = (ended.0 + ends(1), ended.1 + ends(2));
        let of_line = (tenth as usize).div_ceil(10).min(8);
        assert!(2 * ended.0 <= of_line + 1, "{ended:?} after {tenth}");
        // The backend's half ends first, and the client's two searches later at the latest.
        let of_line = (tenth as usize).saturating_sub(30) / 10;
        assert!(2 * ended.1 + 1 >= of_line.min(8), "{ended:?} after {tenth}");
    }
    assert_eq!(ended, (4, 4));
}

/// The connect to the backend may take long. `total_timeout` counts from the client's handshake, for both halves.
#[test]
fn both_halves_have_one_age() {
    const CLIENT_OPENED_S: u32 = 1_000;
    let mut world = World::new();
    let (mut client, mut server) = world.tls.handshakes();
    let mut sent = Vec::new();
    for _ in 0..2 {
        client.handle_input(now(), &sent).expect("a handshake");
        server
            .handle_input(now(), &output(&mut client))
            .expect("a handshake");
        sent = output(&mut server);
    }
    let (fd, peer) = socket::pair(OnExec::Close).expect("a pair of sockets");
    let parts = world.worker().parts();
    let (end, other_end) = parts.work.io.joint().expect("a pair of sockets");
    let socket = NewSocket {
        fd,
        route: 0,
        generation: 1,
        is_watched: false,
    };
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let new = connections.reserve(&socket, work).expect("a slot");
    let rested = client.rest(&mut connections.new_slot(&new).tls);
    let first = First::Originated {
        rested: Box::new(rested.expect("established")),
        client: Some(LocalClient {
            fd: end,
            is_unix: true,
            joined_s: Some(CLIENT_OPENED_S),
            awaits_greeting: false,
        }),
        took_ms: 0,
    };
    let index = connections.begin(new, first, settings, work);
    let index = index.expect("a connection");
    let slot = connections.slots.get(index).expect("a slot");
    assert_eq!(slot.opened_s, CLIENT_OPENED_S);
    assert!(slot.is_joined());
    peer.close();
    other_end.close();
}

fn output(handshake: &mut Handshake) -> Vec<u8> {
    let output = handshake.output().to_vec();
    handshake.output_sent(output.len());
    output
}
