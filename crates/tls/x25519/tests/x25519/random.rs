//! Random cases beside AWS-LC.

use crate::lanes;
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::rand;
use dormouse_x25519::{BASE_POINTS, Batch, EightLanes, LANES};
use proptest::prelude::*;

/// Compares public keys and secrets of one batch. AWS-LC refuses exactly the points whose result is zero.
fn compare(lanes: EightLanes, scalars: &Batch, points: &Batch) {
    let (mut public, mut secrets) = ([[0; 32]; LANES], [[0; 32]; LANES]);
    lanes.x25519(scalars, &BASE_POINTS, &mut public);
    lanes.x25519(scalars, points, &mut secrets);
    for lane in 0..LANES {
        let private = PrivateKey::from_private_key(&X25519, &scalars[lane]).expect("any scalar");
        let expected = private.compute_public_key().expect("a public key");
        let case = (scalars[lane], points[lane]);
        assert_eq!(public[lane][..], expected.as_ref()[..], "{case:?}");
        let point = UnparsedPublicKey::new(&X25519, &points[lane]);
        let secret = agreement::agree(&private, point, (), |secret| Ok(secret.to_vec()));
        let secret = secret.unwrap_or(vec![0; 32]);
        assert_eq!(secrets[lane][..], secret[..], "{case:?}");
    }
}

fn random() -> Batch {
    let mut batch = [[0; 32]; LANES];
    rand::fill(batch.as_flattened_mut()).expect("random bytes");
    batch
}

fn compare_random(batches: usize) {
    let Some(lanes) = lanes() else { return };
    for _ in 0..batches {
        compare(lanes, &random(), &random());
    }
}

#[test]
fn thousands_of_random_cases() {
    compare_random(4_000 / LANES);
}

#[test]
#[ignore = "a million cases take a minute or more"]
fn a_million_random_cases() {
    compare_random(1_000_000 / LANES);
}

/// Numbers whose limbs are at their limits, where carries run through: near 0, p and 2^255, runs of equal bits.
fn extreme() -> impl Strategy<Value = [u8; 32]> {
    const ENDS: [u8; 8] = [0, 0xff, 0x7f, 0x80, 1, 0xed, 0xec, 0xee];
    any::<[usize; 5]>().prop_map(|[first, last, runs, a, b]| {
        let end = |choice: usize| ENDS[choice % ENDS.len()];
        let (a, b) = (a % 32, b % 32);
        let middle = end(runs);
        std::array::from_fn(|at| match at {
            0 => end(first),
            31 => end(last),
            at if (a.min(b)..a.max(b)).contains(&at) => middle,
            _ => !middle,
        })
    })
}

proptest! {
    #[test]
    fn extreme_cases(
        scalars in proptest::collection::vec(extreme(), LANES),
        points in proptest::collection::vec(extreme(), LANES),
    ) {
        if let Some(lanes) = lanes() {
            let batch = |cases: Vec<[u8; 32]>| Batch::try_from(cases).expect("a case for each lane");
            compare(lanes, &batch(scalars), &batch(points));
        }
    }
}
