//! X25519 in eight lanes beside the vectors of RFC 7748 and Wycheproof, and beside AWS-LC.
//!
//! On a CPU without AVX-512 IFMA there is nothing to test, which each test prints.
#![forbid(unsafe_code)]

mod answers;
mod random;

use dormouse_x25519::{BASE_POINTS, Batch, EightLanes, LANES};

/// Returns the implementation, or says why there is none.
fn lanes() -> Option<EightLanes> {
    let lanes = EightLanes::detect();
    if lanes.is_none() {
        eprintln!("not tested: this CPU has no AVX-512 IFMA");
    }
    lanes
}

/// Computes a case in each lane, beside other cases.
fn in_each_lane(lanes: EightLanes, scalar: [u8; 32], point: [u8; 32]) -> [u8; 32] {
    let mut found = None;
    for lane in 0..LANES {
        let mut scalars: Batch = std::array::from_fn(|other| [other as u8 + 1; 32]);
        let mut points = BASE_POINTS;
        (scalars[lane], points[lane]) = (scalar, point);
        let mut results = [[0xff; 32]; LANES];
        lanes.x25519(&scalars, &points, &mut results);
        let result = results[lane];
        assert_eq!(*found.get_or_insert(result), result, "lane {lane} differs");
    }
    found.expect("there are lanes")
}
