//! Tests that end a worker at every step of its work: between any two calls that move bytes or change
//! state that outlives the worker. Its successor continues with the state it finds.
//!
//! Each run plays the same script, from the same seed, and ends the worker one step later than the
//! previous run. After each run, at most one connection may be reset, and it must have delivered an
//! exact prefix; every other connection must deliver everything in both directions, in order. The
//! client opens received records with its own sequence numbers, so it would refuse a reused nonce and
//! a missing or repeated record.

use super::*;
use crate::memory::backlog;
use dormouse_reactor::step;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

const CONNECTIONS: u64 = 3;
const ROUNDS: u64 = 14;

struct Seed(u64);

impl Seed {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Bytes that the two peers of one connection have sent and received.
struct Traffic {
    /// Records sealed by the client and not sent yet.
    client_unsent: Vec<u8>,
    /// Content sealed by the client, and content received from the client on the plain side.
    client_sent: Vec<u8>,
    plain_received: Vec<u8>,
    /// Content queued on the plain side, the rest of it that is not sent yet, and content received by
    /// the client.
    plain_sent: Vec<u8>,
    plain_unsent: Vec<u8>,
    client_received: Vec<u8>,
    is_reset: bool,
}

struct Simulation {
    world: World,
    traffic: BTreeMap<u32, Traffic>,
    seed: Seed,
    /// Steps until the worker dies; negative after that.
    left: Rc<Cell<i64>>,
    deaths: u32,
}

impl Simulation {
    fn begin(seed: u64, dies_at: i64) -> Simulation {
        let mut world = World::new();
        for _ in 0..CONNECTIONS {
            world.connect();
        }
        let traffic = |_| Traffic {
            client_unsent: Vec::new(),
            client_sent: Vec::new(),
            plain_received: Vec::new(),
            plain_sent: Vec::new(),
            plain_unsent: Vec::new(),
            client_received: Vec::new(),
            is_reset: false,
        };
        Simulation {
            traffic: world.ends.keys().map(|&key| (key, traffic(key))).collect(),
            world,
            seed: Seed(seed),
            left: Rc::new(Cell::new(dies_at)),
            deaths: 0,
        }
    }

    /// Runs the event loop; the worker may die during it.
    fn run(&mut self) {
        let left = Rc::clone(&self.left);
        step::at_each(Some(Box::new(move || {
            left.set(left.get() - 1);
            if left.get() == 0 {
                // Without a panic message: this death is part of the test.
                resume_unwind(Box::new("died"));
            }
        })));
        let ran = catch_unwind(AssertUnwindSafe(|| self.world.run()));
        step::at_each(None);
        if ran.is_err() {
            assert_eq!(self.left.get(), 0, "the worker died for another reason");
            self.deaths += 1;
            self.world.start_worker();
            self.world.run();
        }
    }

    fn act(&mut self) {
        let key = 1 + self.seed.below(CONNECTIONS) as u32;
        let len = match self.seed.below(4) {
            0 => 300_000,
            1 => 40_000,
            _ => 1 + self.seed.below(3_000),
        } as usize;
        let content: Vec<u8> = (0..len).map(|_| self.seed.below(256) as u8).collect();
        let traffic = self
            .traffic
            .get_mut(&key)
            .expect("traffic of the connection");
        let ends = self
            .world
            .ends
            .get_mut(&key)
            .expect("the connection's sockets");
        match self.seed.below(5) {
            0 if ends.client.info.protocol == dormouse_engine::Version::Tls13 => {
                traffic.client_unsent.extend(ends.client.seal_key_update());
            }
            0..3 => {
                traffic.client_unsent.extend(ends.client.seal(&content));
                traffic.client_sent.extend(content);
            }
            _ => {
                traffic.plain_unsent.extend(&content);
                traffic.plain_sent.extend(content);
            }
        }
        // Sends all sealed bytes, or half of them: the cut may be inside a record.
        let limit = match self.seed.below(3) {
            0 => traffic.client_unsent.len() / 2,
            _ => traffic.client_unsent.len(),
        };
        let (tls, plain) = (ends.tls, ends.plain);
        traffic.send(tls, plain, limit);
    }

    /// Receives at both peers.
    fn receive(&mut self) {
        for (key, traffic) in &mut self.traffic {
            let Some(ends) = self.world.ends.get_mut(key) else {
                continue;
            };
            let mut buffer = vec![0; 65_536];
            while let Some(n) = traffic.receive(ends.plain, &mut buffer) {
                traffic.plain_received.extend(&buffer[..n]);
            }
            while let Some(n) = traffic.receive(ends.tls, &mut buffer) {
                for event in ends.client.open(&buffer[..n]) {
                    match event {
                        Event::Data(data) => traffic.client_received.extend(data),
                        other => panic!("connection {key}: {other:?}"),
                    }
                }
            }
        }
    }

    fn finish(&mut self) {
        for _ in 0..60 {
            for (key, traffic) in &mut self.traffic {
                let ends = &self.world.ends[key];
                let limit = traffic.client_unsent.len();
                traffic.send(ends.tls, ends.plain, limit);
            }
            self.run();
            self.receive();
            if self.traffic.values().all(Traffic::is_settled) {
                break;
            }
        }
    }

    fn check(&self, dies_at: i64) {
        let mut reset = 0;
        for (key, traffic) in &self.traffic {
            let at = format!("death at step {dies_at}, connection {key}");
            assert!(
                traffic.client_sent.starts_with(&traffic.plain_received),
                "{at}: the plain side received other bytes"
            );
            assert!(
                traffic.plain_sent.starts_with(&traffic.client_received),
                "{at}: the client received other bytes"
            );
            if traffic.is_reset {
                reset += 1;
            } else {
                assert_eq!(
                    traffic.plain_received.len(),
                    traffic.client_sent.len(),
                    "{at}: bytes to the plain side are missing"
                );
                assert_eq!(
                    traffic.client_received.len(),
                    traffic.plain_sent.len(),
                    "{at}: bytes to the client are missing"
                );
            }
        }
        assert!(
            reset <= self.deaths,
            "death at step {dies_at}: {reset} connections were reset"
        );
    }
}

impl Traffic {
    /// Whether everything has arrived, or the connection was reset.
    fn is_settled(&self) -> bool {
        self.is_reset
            || (self.plain_received.len() == self.client_sent.len()
                && self.client_received.len() == self.plain_sent.len())
    }

    /// Sends as much as the sockets accept, and from the client at most `limit` bytes.
    fn send(&mut self, tls: Fd, plain: Fd, limit: usize) {
        let limit = limit.min(self.client_unsent.len());
        if limit > 0
            && let Ok(Attempt::Done(n)) = socket::send(tls, &self.client_unsent[..limit])
        {
            self.client_unsent.drain(..n);
        }
        if !self.plain_unsent.is_empty()
            && let Ok(Attempt::Done(n)) = socket::send(plain, &self.plain_unsent)
        {
            self.plain_unsent.drain(..n);
        }
    }

    fn receive(&mut self, fd: Fd, buffer: &mut [u8]) -> Option<usize> {
        match socket::recv(fd, buffer) {
            Ok(Attempt::Done(n)) if n > 0 => Some(n),
            Ok(Attempt::WouldBlock) => None,
            // No peer closed its end: on a pair of unix sockets, this end is a reset.
            Ok(Attempt::Done(_)) | Err(_) => {
                self.is_reset = true;
                None
            }
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        for ends in self.world.ends.values() {
            ends.tls.close();
            ends.plain.close();
        }
        let world = &mut self.world;
        if let Some(worker) = &mut world.worker {
            for index in worker.slots().indices() {
                if let Some(slot) = worker.slots().get(index) {
                    slot.tls_fd().close();
                    slot.plain_fd().close();
                }
            }
            worker.parts().work.io.poller().close();
        }
        for fd in [world.slots, world.pending, world.counters.fd()] {
            fd.close();
        }
        world.orders.iter().for_each(|fd| fd.close());
    }
}

/// Plays the script to its end. Returns the number of steps.
fn play(seed: u64, dies_at: i64) -> i64 {
    let mut play = Simulation::begin(seed, dies_at);
    for round in 0..ROUNDS {
        play.act();
        play.run();
        // The peers read only in every third round, so that bytes stay pending.
        if round % 3 == 2 {
            play.receive();
        }
    }
    play.finish();
    play.check(dies_at);
    dies_at - play.left.get()
}

fn die_at_steps(seed: u64, stride: i64) {
    let steps = play(seed, i64::MAX);
    assert!(steps > 100, "only {steps} steps");
    for dies_at in (1..=steps).step_by(stride as usize) {
        play(seed, dies_at);
    }
}

/// At the end of a stop, connections are freed as they are. A slot that outlives the worker has all its pending bytes, and
/// no backend takes their loss for a proper end.
#[test]
fn a_worker_may_die_while_it_frees_connections() {
    let mut dies_at = 0;
    let mut has_died = true;
    while has_died {
        dies_at += 1;
        let mut world = World::new();
        let peer = with_pending_plaintext(&mut world);
        let parts = world.worker().parts();
        let slot = parts.connections.slots.get(0).expect("a slot");
        let (plain, cookie) = (slot.plain_fd(), slot.plain_cookie);
        let pending = backlog::opened(slot, &parts.work.pending).to_vec();
        let mut left = dies_at;
        step::at_each(Some(Box::new(move || {
            left -= 1;
            if left == 0 {
                resume_unwind(Box::new("died"));
            }
        })));
        let free = || parts.connections.free_some(1, parts.work, |_| true);
        has_died = catch_unwind(AssertUnwindSafe(free)).is_err();
        step::at_each(None);
        world.start_worker();
        let parts = world.worker().parts();
        let slot = parts.connections.slots.get(0);
        if let Some(slot) = slot.filter(|slot| slot.phase() != Phase::Free) {
            let kept = backlog::opened(slot, &parts.work.pending);
            assert!(kept == pending, "death at step {dies_at}: bytes are lost");
            plain.close();
            continue;
        }
        // Outside a test, the successor closes sockets that no slot names.
        if socket::cookie(plain).is_ok_and(|now| now as u32 == cookie) {
            plain.close();
        }
        let end = end_of(peer);
        let reset = Some(io::ErrorKind::ConnectionReset);
        assert_eq!(end, reset, "death at step {dies_at}");
    }
    assert!(dies_at > 5, "only {dies_at} steps");
}

#[test]
fn a_worker_may_die_at_any_step() {
    die_at_steps(1, 23);
    die_at_steps(2, 29);
}

#[test]
#[ignore = "minutes"]
fn a_worker_may_die_at_every_step() {
    std::thread::scope(|scope| {
        for seed in 1..=6 {
            scope.spawn(move || die_at_steps(seed, 1));
        }
    });
}
