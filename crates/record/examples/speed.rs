//! How fast records are opened and sealed, on this machine, now:
//!
//! ```sh
//! cargo run --release -p dormouse-record --example speed
//! ```
//!
//! A *wake* is what a connection at rest costs when a small record comes and one goes back: both keys expanded from
//! the state, 64 bytes opened, 64 bytes sealed. *Kept keys* is the same without the expansion. Each figure is the
//! best of many short rounds, since other work on the machine only ever adds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dormouse_record::{
    CONTENT_MAX, KeyIv, OpenKey, Opened, Protocol, Role, SealKey, State, Suite, open, record_room,
    seal_in_place,
};

/// Short rounds, many of them: the best is one that nothing interrupted.
const ROUNDS: usize = 300;

fn main() {
    println!(
        "{:<8} {:<24} {:>10} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "", "", "wake", "kept keys", "open key", "seal key", "open 16 kB", "seal 16 kB"
    );
    for protocol in [Protocol::Tls13, Protocol::Tls12] {
        for suite in Suite::ALL {
            let mut ends = Ends::new(protocol, suite);
            let wake = ends.wakes(64, 500);
            let small = ends.exchange(64, 500);
            let open_key = best(500, || drop(black_box(OpenKey::new(&ends.server))));
            let seal_key = best(500, || drop(black_box(SealKey::new(&ends.server))));
            let large = ends.exchange(CONTENT_MAX, 40);
            println!(
                "{:<8} {:<24} {:>7} ns {:>7} ns {:>7} ns {:>7} ns {:>7.2} GB/s {:>7.2} GB/s",
                format!("{protocol:?}"),
                format!("{suite:?}"),
                wake.as_nanos(),
                (small.open + small.seal).as_nanos(),
                open_key.as_nanos(),
                seal_key.as_nanos(),
                CONTENT_MAX as f64 / large.open.as_nanos() as f64,
                CONTENT_MAX as f64 / large.seal.as_nanos() as f64,
            );
        }
    }
}

/// Time of one call, in the best of many short rounds.
fn best(calls: u32, mut call: impl FnMut()) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..calls {
                call();
            }
            start.elapsed() / calls
        })
        .min()
        .unwrap_or_default()
}

struct Ends {
    server: State,
    client: State,
}

struct Exchange {
    open: Duration,
    seal: Duration,
}

impl Ends {
    fn new(protocol: Protocol, suite: Suite) -> Self {
        let (up, down) = ([1; 48], [2; 48]);
        let (mut server, mut client) = (State::empty(), State::empty());
        let established = match protocol {
            Protocol::Tls13 => {
                let [up, down] = [&up, &down].map(|secret| &secret[..suite.secret_len()]);
                server
                    .establish_tls13(Role::Server, suite, up, 0, down, 0)
                    .and(client.establish_tls13(Role::Client, suite, down, 0, up, 0))
            }
            Protocol::Tls12 => {
                let [up, down] = [&up, &down].map(|secret| KeyIv {
                    key: &secret[..suite.key_len()],
                    iv: &secret[..12],
                });
                server
                    .establish_tls12(Role::Server, suite, up, 0, down, 0)
                    .and(client.establish_tls12(Role::Client, suite, down, 0, up, 0))
            }
        };
        established.expect("secrets of the right length");
        Self { server, client }
    }

    /// One record in, one out, keys expanded for it. The client's records are made beforehand.
    fn wakes(&mut self, len: usize, count: usize) -> Duration {
        let mut least = Duration::MAX;
        for _ in 0..ROUNDS {
            let mut records = self.make_records(len, count);
            let start = Instant::now();
            for record in &mut records {
                let mut open_key = OpenKey::new(&self.server);
                let mut seal_key = SealKey::new(&self.server);
                open_one(&mut self.server, &mut open_key, record);
                let sealed = seal_in_place(&mut self.server, &mut seal_key, record, len);
                black_box(sealed.expect("room"));
            }
            least = least.min(start.elapsed() / count as u32);
        }
        least
    }

    fn make_records(&mut self, len: usize, count: usize) -> Vec<Vec<u8>> {
        let mut key = SealKey::new(&self.client);
        let room = record_room(&self.client);
        (0..count)
            .map(|_| {
                let mut record = vec![7; room.header + len + room.trailer];
                seal_in_place(&mut self.client, &mut key, &mut record, len).expect("room");
                record
            })
            .collect()
    }

    /// Opening and sealing apart, with kept keys.
    fn exchange(&mut self, len: usize, count: usize) -> Exchange {
        let mut open_key = OpenKey::new(&self.server);
        let mut seal_key = SealKey::new(&self.server);
        let mut best = Exchange {
            open: Duration::MAX,
            seal: Duration::MAX,
        };
        for _ in 0..ROUNDS {
            let mut records = self.make_records(len, count);
            let start = Instant::now();
            for record in &mut records {
                open_one(&mut self.server, &mut open_key, record);
            }
            best.open = best.open.min(start.elapsed() / count as u32);
            let start = Instant::now();
            for record in &mut records {
                let sealed = seal_in_place(&mut self.server, &mut seal_key, record, len);
                black_box(sealed.expect("room"));
            }
            best.seal = best.seal.min(start.elapsed() / count as u32);
        }
        best
    }
}

fn open_one(state: &mut State, key: &mut OpenKey, record: &mut [u8]) {
    match open(state, key, record) {
        Ok(Opened::Data { plaintext, .. }) => drop(black_box(plaintext)),
        other => panic!("{other:?}"),
    }
}
