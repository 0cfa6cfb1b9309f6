//! Arithmetic modulo p = 2^255 - 19, in eight lanes.
//!
//! # Representation
//!
//! An [`Element`] has five limbs in radix 2^51: in each lane its value is the sum of limbs\[i\] * 2^(51 i). A limb lies in a
//! lane of 64 bits, but `madd52` multiplies only its low 52 bits. The product of two limbs has 104 bits: `madd52lo` adds
//! its low 52 bits to an accumulator, `madd52hi` its high 52 bits.
//!
//! # Bounds
//!
//! Every `Element` between two operations is *reduced*: each limb is below [`LIMB_BOUND`] = 2^51 + 2^15, so it fits into
//! 52 bits, and the value is below 2p. Each operation takes reduced elements and returns a reduced one. Its comment shows
//! that no accumulator reaches 2^64 and that [`carry`](Element::carry) gets what it can reduce. `debug_assert`s check the
//! same in tests.
// The loops' variables are the indices of the formulas.
#![allow(clippy::needless_range_loop)]

use core::arch::x86_64::{
    __m512i, _mm256_extract_epi64, _mm512_add_epi64, _mm512_and_si512, _mm512_castsi512_si256,
    _mm512_cmplt_epu64_mask, _mm512_extracti64x4_epi64, _mm512_madd52hi_epu64,
    _mm512_madd52lo_epu64, _mm512_or_si512, _mm512_set_epi64, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi64, _mm512_sub_epi64, _mm512_xor_si512,
};

use crate::batch::{Batch, LANES};

/// Number of limbs.
const LIMBS: usize = 5;

/// The bits of a limb.
const MASK: i64 = (1 << 51) - 1;

/// Upper bound of the limbs of a reduced element.
const LIMB_BOUND: i64 = (1 << 51) + (1 << 15);

/// Upper bound of the limbs that [`Element::carry`] reduces.
const CARRY_BOUND: i64 = 1 << 61;

/// 2p in radix 2^51. Each limb is above [`LIMB_BOUND`].
const TWICE_P: [i64; LIMBS] = [
    (1 << 52) - 38,
    (1 << 52) - 2,
    (1 << 52) - 2,
    (1 << 52) - 2,
    (1 << 52) - 2,
];

const _: () = assert!(LIMB_BOUND < 1 << 52 && TWICE_P[0] > LIMB_BOUND && TWICE_P[1] > LIMB_BOUND);

/// An integer modulo p in each lane.
#[derive(Clone, Copy)]
pub(crate) struct Element([__m512i; LIMBS]);

impl Element {
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(crate) fn zero() -> Element {
        Element([_mm512_setzero_si512(); LIMBS])
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(crate) fn one() -> Element {
        let mut one = Element::zero();
        one.0[0] = _mm512_set1_epi64(1);
        one
    }

    /// Reads u-coordinates (`decodeUCoordinate` of RFC 7748 §5): little-endian, without the highest bit. They may be
    /// above p. Each limb is below 2^51.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(crate) fn decode(bytes: &Batch) -> Element {
        let [a, b, c, d] = words(bytes);
        let limbs = [
            a,
            _mm512_or_si512(_mm512_srli_epi64::<51>(a), _mm512_slli_epi64::<13>(b)),
            _mm512_or_si512(_mm512_srli_epi64::<38>(b), _mm512_slli_epi64::<26>(c)),
            _mm512_or_si512(_mm512_srli_epi64::<25>(c), _mm512_slli_epi64::<39>(d)),
            _mm512_srli_epi64::<12>(d),
        ];
        Element(low_bits(limbs))
    }

    /// Writes the numbers from 0 to p - 1 that the element stands for.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(crate) fn encode(&self, bytes: &mut Batch) {
        let [a, b, c, d, e] = self.canonical();
        let words = [
            _mm512_or_si512(a, _mm512_slli_epi64::<51>(b)),
            _mm512_or_si512(_mm512_srli_epi64::<13>(b), _mm512_slli_epi64::<38>(c)),
            _mm512_or_si512(_mm512_srli_epi64::<26>(c), _mm512_slli_epi64::<25>(d)),
            _mm512_or_si512(_mm512_srli_epi64::<39>(d), _mm512_slli_epi64::<12>(e)),
        ];
        for (at, word) in words.into_iter().enumerate() {
            for (lane, word) in lanes(word).into_iter().enumerate() {
                bytes[lane][8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// Adds. The limbs are below 2 * [`LIMB_BOUND`] before the carry.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(crate) fn add(&self, other: &Element) -> Element {
        let mut sum = self.0;
        for i in 0..LIMBS {
            sum[i] = _mm512_add_epi64(sum[i], other.0[i]);
        }
        Element::carry(sum)
    }

    /// Subtracts, and adds 2p, so that no limb becomes negative. The limbs are below 2^53 before the carry.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(crate) fn sub(&self, other: &Element) -> Element {
        let mut difference = self.0;
        for i in 0..LIMBS {
            let raised = _mm512_add_epi64(difference[i], _mm512_set1_epi64(TWICE_P[i]));
            difference[i] = _mm512_sub_epi64(raised, other.0[i]);
        }
        Element::carry(difference)
    }

    /// Multiplies.
    ///
    /// The product of limbs i and j has the weight 2^(51 (i + j)). Its low 52 bits go to `low[i + j]`. Its high 52 bits
    /// have the weight 2^(51 (i + j) + 52), so twice their sum goes to `low[i + j + 1]`.
    ///
    /// At most five products have the same weight, so `high[k]` < 5 * 2^52, and `low[k]` < 15 * 2^52 < 2^56.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(crate) fn mul(&self, other: &Element) -> Element {
        self.check();
        other.check();
        let (a, b) = (&self.0, &other.0);
        let mut high = [_mm512_setzero_si512(); 2 * LIMBS - 1];
        for i in 0..LIMBS {
            for j in 0..LIMBS {
                high[i + j] = _mm512_madd52hi_epu64(high[i + j], a[i], b[j]);
            }
        }
        let mut low = [_mm512_setzero_si512(); 2 * LIMBS];
        for k in 0..2 * LIMBS - 1 {
            low[k + 1] = twice(high[k]);
        }
        for i in 0..LIMBS {
            for j in 0..LIMBS {
                low[i + j] = _mm512_madd52lo_epu64(low[i + j], a[i], b[j]);
            }
        }
        Element::fold(low)
    }

    /// Squares: as [`Element::mul`], but computes the product of limbs i and j != i once and doubles it.
    ///
    /// High bits are doubled as in `mul`, so those of i != j count four times, the low bits of i != j and the high bits of
    /// i = i twice, and the low bits of i = i once. The loops add them in this order, and double all sums in between. In
    /// the end the sums are those of `mul`, and so are the bounds.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(crate) fn square(&self) -> Element {
        self.check();
        let a = &self.0;
        let mut twofold = [_mm512_setzero_si512(); 2 * LIMBS];
        for i in 0..LIMBS {
            for j in i + 1..LIMBS {
                twofold[i + j + 1] = _mm512_madd52hi_epu64(twofold[i + j + 1], a[i], a[j]);
            }
        }
        for sum in &mut twofold {
            *sum = twice(*sum);
        }
        for i in 0..LIMBS {
            twofold[2 * i + 1] = _mm512_madd52hi_epu64(twofold[2 * i + 1], a[i], a[i]);
            for j in i + 1..LIMBS {
                twofold[i + j] = _mm512_madd52lo_epu64(twofold[i + j], a[i], a[j]);
            }
        }
        let mut low = twofold;
        for sum in &mut low {
            *sum = twice(*sum);
        }
        for i in 0..LIMBS {
            low[2 * i] = _mm512_madd52lo_epu64(low[2 * i], a[i], a[i]);
        }
        Element::fold(low)
    }

    /// Returns `self` + `factor` * `other`, where `factor` is below 2^17.
    ///
    /// The low bits of a product are below 2^52, its high bits below 2^17. So each limb is below 2^51 + 2^15 + 2^52 +
    /// 38 * 2^17 < 2^53 before the carry.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(crate) fn add_product(&self, factor: u32, other: &Element) -> Element {
        debug_assert!(factor < 1 << 17);
        self.check();
        other.check();
        let factor = _mm512_set1_epi64(factor.into());
        let mut high = [_mm512_setzero_si512(); LIMBS];
        let mut sum = self.0;
        for i in 0..LIMBS {
            high[i] = _mm512_madd52hi_epu64(high[i], other.0[i], factor);
            sum[i] = _mm512_madd52lo_epu64(sum[i], other.0[i], factor);
        }
        // The weight of the highest sum is 2 * 2^255, which is 2 * 19 modulo p.
        sum[0] = _mm512_madd52lo_epu64(sum[0], high[LIMBS - 1], _mm512_set1_epi64(2 * 19));
        for i in 1..LIMBS {
            sum[i] = _mm512_add_epi64(sum[i], twice(high[i - 1]));
        }
        Element::carry(sum)
    }

    /// Returns the inverse, or zero for zero: the power of p - 2 = 2^255 - 21, in 254 squarings and 11 multiplications.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(crate) fn invert(&self) -> Element {
        let x2 = self.square(); // the power of 2
        let x9 = self.mul(&x2.square_times(2)); // of 9
        let x11 = x9.mul(&x2); // of 11
        let x5_0 = x11.square().mul(&x9); // of 31 = 2^5 - 2^0
        let x10_0 = x5_0.square_times(5).mul(&x5_0); // of 2^10 - 2^0
        let x20_0 = x10_0.square_times(10).mul(&x10_0);
        let x40_0 = x20_0.square_times(20).mul(&x20_0);
        let x50_0 = x40_0.square_times(10).mul(&x10_0);
        let x100_0 = x50_0.square_times(50).mul(&x50_0);
        let x200_0 = x100_0.square_times(100).mul(&x100_0);
        let x250_0 = x200_0.square_times(50).mul(&x50_0);
        x250_0.square_times(5).mul(&x11) // of 2^255 - 2^5 + 11
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    fn square_times(&self, times: usize) -> Element {
        let mut power = *self;
        for _ in 0..times {
            power = power.square();
        }
        power
    }

    /// Swaps two elements in the lanes in which `swap` has all bits; in the others it has none.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(crate) fn swap_if(swap: __m512i, a: &mut Element, b: &mut Element) {
        for i in 0..LIMBS {
            let change = _mm512_and_si512(swap, _mm512_xor_si512(a.0[i], b.0[i]));
            a.0[i] = _mm512_xor_si512(a.0[i], change);
            b.0[i] = _mm512_xor_si512(b.0[i], change);
        }
    }

    /// Reduces a product of ten limbs, each below 2^56: 2^255 is 19 modulo p, so limb k + 5 counts 19 times at limb k.
    /// The sums are below 20 * 2^56 < 2^61.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    fn fold(product: [__m512i; 2 * LIMBS]) -> Element {
        let mut sum = [_mm512_setzero_si512(); LIMBS];
        for k in 0..LIMBS {
            let high = product[k + LIMBS];
            // 19 = 16 + 2 + 1
            let three = _mm512_add_epi64(high, twice(high));
            let nineteen = _mm512_add_epi64(three, _mm512_slli_epi64::<4>(high));
            sum[k] = _mm512_add_epi64(product[k], nineteen);
        }
        Element::carry(sum)
    }

    /// Moves the bits above the 51st of each limb, which must be below [`CARRY_BOUND`] = 2^61, to the next one; those of
    /// the highest limb count 19 times at the lowest.
    ///
    /// A carry is below 2^10, so a limb becomes less than 2^51 + 19 * 2^10 < [`LIMB_BOUND`].
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    fn carry(limbs: [__m512i; LIMBS]) -> Element {
        debug_assert!(are_below(&limbs, CARRY_BOUND));
        let mut carried = low_bits(limbs);
        let top = _mm512_srli_epi64::<51>(limbs[LIMBS - 1]);
        carried[0] = _mm512_madd52lo_epu64(carried[0], top, _mm512_set1_epi64(19));
        for i in 1..LIMBS {
            carried[i] = _mm512_add_epi64(carried[i], _mm512_srli_epi64::<51>(limbs[i - 1]));
        }
        let carried = Element(carried);
        carried.check();
        carried
    }

    /// Returns the limbs, each below 2^51, of the value modulo p.
    ///
    /// The value v is below 2p. So v + 19 reaches 2^255 exactly if v is p or more, and then v - p is v + 19 - 2^255.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn canonical(&self) -> [__m512i; LIMBS] {
        self.check();
        let mut is_p_or_more = _mm512_set1_epi64(19);
        for i in 0..LIMBS {
            is_p_or_more = _mm512_srli_epi64::<51>(_mm512_add_epi64(self.0[i], is_p_or_more));
        }
        let mut carry =
            _mm512_madd52lo_epu64(_mm512_setzero_si512(), is_p_or_more, _mm512_set1_epi64(19));
        let mut limbs = self.0;
        for limb in &mut limbs {
            *limb = _mm512_add_epi64(*limb, carry);
            carry = _mm512_srli_epi64::<51>(*limb);
        }
        low_bits(limbs)
    }

    /// Asserts in tests that the element is reduced.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    fn check(&self) {
        debug_assert!(are_below(&self.0, LIMB_BOUND));
    }
}

/// Reads 32 bytes of each lane as four numbers of 64 bits, lowest first.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(crate) fn words(bytes: &Batch) -> [__m512i; 4] {
    let mut words = [_mm512_setzero_si512(); 4];
    for (at, word) in words.iter_mut().enumerate() {
        let mut of = [0; LANES];
        for (of, bytes) in of.iter_mut().zip(bytes) {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * at..8 * at + 8]);
            *of = i64::from_le_bytes(word);
        }
        let [a, b, c, d, e, f, g, h] = of;
        *word = _mm512_set_epi64(h, g, f, e, d, c, b, a);
    }
    words
}

/// Returns the number in each lane.
#[target_feature(enable = "avx512f,avx512ifma")]
fn lanes(vector: __m512i) -> [i64; LANES] {
    let (low, high) = (
        _mm512_castsi512_si256(vector),
        _mm512_extracti64x4_epi64::<1>(vector),
    );
    [
        _mm256_extract_epi64::<0>(low),
        _mm256_extract_epi64::<1>(low),
        _mm256_extract_epi64::<2>(low),
        _mm256_extract_epi64::<3>(low),
        _mm256_extract_epi64::<0>(high),
        _mm256_extract_epi64::<1>(high),
        _mm256_extract_epi64::<2>(high),
        _mm256_extract_epi64::<3>(high),
    ]
}

#[target_feature(enable = "avx512f,avx512ifma")]
#[inline]
fn low_bits(mut limbs: [__m512i; LIMBS]) -> [__m512i; LIMBS] {
    for limb in &mut limbs {
        *limb = _mm512_and_si512(*limb, _mm512_set1_epi64(MASK));
    }
    limbs
}

#[target_feature(enable = "avx512f,avx512ifma")]
#[inline]
fn twice(vector: __m512i) -> __m512i {
    _mm512_add_epi64(vector, vector)
}

#[target_feature(enable = "avx512f,avx512ifma")]
#[inline]
fn are_below(limbs: &[__m512i; LIMBS], bound: i64) -> bool {
    let mut are_below = 0xff;
    for limb in limbs {
        are_below &= _mm512_cmplt_epu64_mask(*limb, _mm512_set1_epi64(bound));
    }
    are_below == 0xff
}
