//! The function X25519 of RFC 7748 §5, with the names of its pseudocode.

use core::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_srlv_epi64, _mm512_sub_epi64, _mm512_xor_si512,
};

use crate::batch::Batch;
use crate::field::{Element, words};

/// (A - 2) / 4 for curve25519's A = 486662.
const A24: u32 = 121_665;

/// Number of bits of a scalar.
const BITS: usize = 255;

/// Writes X25519(k, u) of each lane into `results`.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(crate) fn x25519(k: &Batch, u: &Batch, results: &mut Batch) {
    let k = Scalars::decode(k);
    let x_1 = Element::decode(u);
    let mut x_2 = Element::one();
    let mut z_2 = Element::zero();
    let mut x_3 = x_1;
    let mut z_3 = Element::one();
    let mut swap = _mm512_setzero_si512();

    for t in (0..BITS).rev() {
        let k_t = k.bit(t);
        swap = _mm512_xor_si512(swap, k_t);
        Element::swap_if(swap, &mut x_2, &mut x_3);
        Element::swap_if(swap, &mut z_2, &mut z_3);
        swap = k_t;

        let a = x_2.add(&z_2);
        let aa = a.square();
        let b = x_2.sub(&z_2);
        let bb = b.square();
        let e = aa.sub(&bb);
        let c = x_3.add(&z_3);
        let d = x_3.sub(&z_3);
        let da = d.mul(&a);
        let cb = c.mul(&b);
        x_3 = da.add(&cb).square();
        z_3 = x_1.mul(&da.sub(&cb).square());
        x_2 = aa.mul(&bb);
        z_2 = e.mul(&aa.add_product(A24, &e));
    }
    Element::swap_if(swap, &mut x_2, &mut x_3);
    Element::swap_if(swap, &mut z_2, &mut z_3);

    x_2.mul(&z_2.invert()).encode(results);
}

/// A scalar in each lane.
struct Scalars([__m512i; 4]);

impl Scalars {
    /// `decodeScalar25519`: clears the three lowest bits and the highest one, and sets the second highest.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn decode(bytes: &Batch) -> Scalars {
        let [a, b, c, d] = words(bytes);
        let lowest = _mm512_and_si512(a, _mm512_set1_epi64(!7));
        let highest = _mm512_and_si512(d, _mm512_set1_epi64(i64::MAX));
        let highest = _mm512_or_si512(highest, _mm512_set1_epi64(1 << 62));
        Scalars([lowest, b, c, highest])
    }

    /// Returns all bits in the lanes whose scalar has bit `t`, and none in the others. `t` is public.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    fn bit(&self, t: usize) -> __m512i {
        let shift = _mm512_set1_epi64((t % 64) as i64);
        let shifted = _mm512_srlv_epi64(self.0[t / 64], shift);
        let bit = _mm512_and_si512(shifted, _mm512_set1_epi64(1));
        _mm512_sub_epi64(_mm512_setzero_si512(), bit)
    }
}
