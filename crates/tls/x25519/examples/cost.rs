//! Time of a key pair and an agreement, in eight lanes and by AWS-LC: how many connections a batch must have to pay.
//!
//!     cargo run -p dormouse-x25519 --profile release-lto --example cost
#![forbid(unsafe_code)]

use aws_lc_rs::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::rand::{self, SystemRandom};
use dormouse_x25519::{BASE_POINTS, EightLanes, LANES};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 200;

fn main() {
    let Some(lanes) = EightLanes::detect() else {
        return println!("this CPU has no AVX-512 IFMA");
    };
    let mut peer = [[0; 32]; LANES];
    rand::fill(peer.as_flattened_mut()).expect("random bytes");
    let random = SystemRandom::new();
    let batch_us = shortest_us(|| {
        let (mut scalars, mut results) = ([[0; 32]; LANES], [[0; 32]; LANES]);
        rand::fill(scalars.as_flattened_mut()).expect("random bytes");
        lanes.x25519(&scalars, &BASE_POINTS, &mut results);
        black_box(results);
        lanes.x25519(&scalars, &peer, &mut results);
        black_box(results);
    });
    let one_us = shortest_us(|| {
        let private = EphemeralPrivateKey::generate(&X25519, &random).expect("a key");
        black_box(private.compute_public_key().expect("a key"));
        let peer = UnparsedPublicKey::new(&X25519, &peer[0]);
        agreement::agree_ephemeral(private, peer, (), |secret| {
            black_box(secret);
            Ok(())
        })
        .expect("a secret");
    });
    println!("key pair and agreement:");
    println!(
        "  eight lanes  {batch_us:.1} µs a batch, {:.1} µs each",
        batch_us / LANES as f64
    );
    println!(
        "  AWS-LC       {one_us:.1} µs; a batch pays from {:.1} on",
        batch_us / one_us
    );
}

/// The shortest time of many: the others were interrupted.
fn shortest_us(mut work: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    times.min().expect("there are rounds").as_secs_f64() * 1e6
}
