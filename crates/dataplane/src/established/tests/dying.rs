//! A worker dies at every single step of its work: between any two of the calls by which bytes move
//! and anything that outlives it changes. Its successor goes on with what is there.
//!
//! Each run plays the same script, from the same seed, and lets the worker die one step later than
//! the run before. What must be true after each: at most one connection is reset, and has delivered
//! an exact beginning; every other one delivers everything, both ways, in order. The client opens
//! what comes to it with its own sequence numbers, so a nonce that was used twice, a record that is
//! missing or came twice would be refused.

use super::*;
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

/// The far ends of one connection, and what they have said and heard.
struct Talk {
    /// Sealed, and not sent yet.
    unsent: Vec<u8>,
    /// What the client said, and what the plain side heard of it.
    said: Vec<u8>,
    heard: Vec<u8>,
    /// What the plain side said, and what the client heard of it.
    answered: Vec<u8>,
    unanswered: Vec<u8>,
    understood: Vec<u8>,
    is_over: bool,
}

struct Play {
    world: World,
    talks: BTreeMap<u32, Talk>,
    seed: Seed,
    /// Steps until the worker dies; counts on below zero.
    left: Rc<Cell<i64>>,
    deaths: u32,
}

impl Play {
    fn begin(seed: u64, dies_at: i64) -> Play {
        let mut world = World::new();
        for _ in 0..CONNECTIONS {
            world.connect();
        }
        let talk = |_| Talk {
            unsent: Vec::new(),
            said: Vec::new(),
            heard: Vec::new(),
            answered: Vec::new(),
            unanswered: Vec::new(),
            understood: Vec::new(),
            is_over: false,
        };
        Play {
            talks: world.ends.keys().map(|&key| (key, talk(key))).collect(),
            world,
            seed: Seed(seed),
            left: Rc::new(Cell::new(dies_at)),
            deaths: 0,
        }
    }

    /// Turns of the loop, in which the worker may die.
    fn run(&mut self) {
        let left = Rc::clone(&self.left);
        step::at_each(Some(Box::new(move || {
            left.set(left.get() - 1);
            if left.get() == 0 {
                // Without a message: this death is meant.
                resume_unwind(Box::new("died"));
            }
        })));
        let ran = catch_unwind(AssertUnwindSafe(|| self.world.run()));
        step::at_each(None);
        if ran.is_err() {
            assert_eq!(self.left.get(), 0, "the worker died of something else");
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
        let talk = self.talks.get_mut(&key).expect("a talk");
        let ends = self.world.ends.get_mut(&key).expect("its ends");
        match self.seed.below(5) {
            0 if ends.client.info.protocol == dormouse_engine::Version::Tls13 => {
                talk.unsent.extend(ends.client.seal_key_update());
            }
            0..3 => {
                talk.unsent.extend(ends.client.seal(&content));
                talk.said.extend(content);
            }
            _ => {
                talk.unanswered.extend(&content);
                talk.answered.extend(content);
            }
        }
        // All of what is sealed, or up to somewhere in the middle of a record.
        let most = match self.seed.below(3) {
            0 => talk.unsent.len() / 2,
            _ => talk.unsent.len(),
        };
        let (tls, plain) = (ends.tls, ends.plain);
        talk.send(tls, plain, most);
    }

    /// The far ends take what has come.
    fn hear(&mut self) {
        for (key, talk) in &mut self.talks {
            let Some(ends) = self.world.ends.get_mut(key) else {
                continue;
            };
            let mut room = vec![0; 65_536];
            while let Some(n) = talk.receive(ends.plain, &mut room) {
                talk.heard.extend(&room[..n]);
            }
            while let Some(n) = talk.receive(ends.tls, &mut room) {
                for event in ends.client.open(&room[..n]) {
                    match event {
                        Event::Data(data) => talk.understood.extend(data),
                        other => panic!("connection {key}: {other:?}"),
                    }
                }
            }
        }
    }

    fn finish(&mut self) {
        for _ in 0..60 {
            for (key, talk) in &mut self.talks {
                let ends = &self.world.ends[key];
                let most = talk.unsent.len();
                talk.send(ends.tls, ends.plain, most);
            }
            self.run();
            self.hear();
            if self.talks.values().all(Talk::is_settled) {
                break;
            }
        }
    }

    fn judge(&self, dies_at: i64) {
        let mut reset = 0;
        for (key, talk) in &self.talks {
            let at = format!("death at step {dies_at}, connection {key}");
            assert!(talk.said.starts_with(&talk.heard), "{at}: not a beginning");
            assert!(
                talk.answered.starts_with(&talk.understood),
                "{at}: nor back"
            );
            if talk.is_over {
                reset += 1;
            } else {
                assert_eq!(talk.heard.len(), talk.said.len(), "{at}: bytes are missing");
                assert_eq!(
                    talk.understood.len(),
                    talk.answered.len(),
                    "{at}: on the way back"
                );
            }
        }
        assert!(
            reset <= self.deaths,
            "death at step {dies_at}: {reset} connections were reset"
        );
    }
}

impl Talk {
    /// Everything has been said and heard, or nothing more will be.
    fn is_settled(&self) -> bool {
        self.is_over
            || (self.heard.len() == self.said.len() && self.understood.len() == self.answered.len())
    }

    /// Sends what is taken; a connection that is over takes nothing.
    fn send(&mut self, tls: Fd, plain: Fd, most: usize) {
        let most = most.min(self.unsent.len());
        if most > 0
            && let Ok(Attempt::Done(n)) = socket::send(tls, &self.unsent[..most])
        {
            self.unsent.drain(..n);
        }
        if !self.unanswered.is_empty()
            && let Ok(Attempt::Done(n)) = socket::send(plain, &self.unanswered)
        {
            self.unanswered.drain(..n);
        }
    }

    fn receive(&mut self, fd: Fd, room: &mut [u8]) -> Option<usize> {
        match socket::recv(fd, room) {
            Ok(Attempt::Done(n)) if n > 0 => Some(n),
            Ok(Attempt::WouldBlock) => None,
            // An end that nobody asked for: a reset, on a pair of unix sockets.
            Ok(Attempt::Done(_)) | Err(_) => {
                self.is_over = true;
                None
            }
        }
    }
}

impl Drop for Play {
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

/// Plays the script to its end. Returns how many steps were made.
fn play(seed: u64, dies_at: i64) -> i64 {
    let mut play = Play::begin(seed, dies_at);
    for round in 0..ROUNDS {
        play.act();
        play.run();
        // At times nobody reads, so that bytes are left pending.
        if round % 3 == 2 {
            play.hear();
        }
    }
    play.finish();
    play.judge(dies_at);
    dies_at - play.left.get()
}

fn die_at_steps(seed: u64, stride: i64) {
    let steps = play(seed, i64::MAX);
    assert!(steps > 100, "only {steps} steps");
    for dies_at in (1..=steps).step_by(stride as usize) {
        play(seed, dies_at);
    }
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
