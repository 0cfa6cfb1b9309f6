//! X25519 (RFC 7748) of eight connections at once, on CPUs with AVX-512 IFMA.
//!
//! A vector register has eight lanes of 64 bits. Each lane computes the agreement of another connection, with the same
//! instructions in the same order, so eight agreements take little longer than one takes alone.
//!
//! Files: `field.rs` has the arithmetic modulo p = 2^255 - 19, `ladder.rs` the function X25519 itself.
//!
//! **Constant time.** No branch and no address depends on a scalar, a point or anything computed from them. Loops count
//! to constants, arrays have constant indices, and a conditional swap is an XOR with a mask. The instructions on secrets
//! are additions, subtractions, logic, shifts by constants and by public numbers, and `vpmadd52luq`/`vpmadd52huq`, the
//! multiplications of AVX-512 IFMA, whose duration does not depend on their operands.
//!
//! **Wiping.** After each call, [`EightLanes::x25519`] overwrites the vector registers and the part of the stack that the
//! ladder used. Scalars and results lie in arrays of the caller, who wipes them.
//!
//! The caller refuses points of low order, whose result is zero, and compares this implementation with another one
//! before it relies on it.
// `unsafe` is in one block, which calls the code for AVX-512 IFMA: see `compute`.
#![deny(unsafe_code)]

mod batch;
#[cfg(target_arch = "x86_64")]
mod field;
#[cfg(target_arch = "x86_64")]
mod ladder;

pub use batch::{Batch, LANES};

/// The u-coordinate of the base point (RFC 7748 §4.1), for each lane. With it, X25519 makes public keys.
pub const BASE_POINTS: Batch = [BASE_POINT; LANES];

const BASE_POINT: [u8; 32] = {
    let mut point = [0; 32];
    point[0] = 9;
    point
};

/// Proof that this CPU has AVX-512 IFMA, and that the operating system saves its registers.
#[derive(Clone, Copy, Debug)]
pub struct EightLanes(());

impl EightLanes {
    /// Asks the CPU.
    pub fn detect() -> Option<EightLanes> {
        has_ifma().then_some(EightLanes(()))
    }

    /// Writes X25519(scalar, point) of each lane into `results`.
    ///
    /// A scalar may be any 32 bytes: the function clamps it. A point may be any 32 bytes, too: its highest bit is
    /// ignored, and a number above p counts modulo p (RFC 7748 §5).
    pub fn x25519(self, scalars: &Batch, points: &Batch, results: &mut Batch) {
        compute(self, scalars, points, results);
        scrub_stack();
    }
}

#[cfg(target_arch = "x86_64")]
fn has_ifma() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_ifma() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline(never)]
fn compute(_has_ifma: EightLanes, scalars: &Batch, points: &Batch, results: &mut Batch) {
    // SAFETY: `ladder::x25519` and the instructions below need AVX-512F and AVX-512 IFMA. An `EightLanes` exists only if
    // `detect` found both. The instructions change vector registers only, and all of them are declared as changed.
    unsafe {
        ladder::x25519(scalars, points, results);
        // Ordinary code never touches registers 16 to 31, so they would keep intermediate values.
        core::arch::asm!(
            "vzeroall", // registers 0 to 15
            "vpxorq zmm16, zmm16, zmm16",
            "vpxorq zmm17, zmm17, zmm17",
            "vpxorq zmm18, zmm18, zmm18",
            "vpxorq zmm19, zmm19, zmm19",
            "vpxorq zmm20, zmm20, zmm20",
            "vpxorq zmm21, zmm21, zmm21",
            "vpxorq zmm22, zmm22, zmm22",
            "vpxorq zmm23, zmm23, zmm23",
            "vpxorq zmm24, zmm24, zmm24",
            "vpxorq zmm25, zmm25, zmm25",
            "vpxorq zmm26, zmm26, zmm26",
            "vpxorq zmm27, zmm27, zmm27",
            "vpxorq zmm28, zmm28, zmm28",
            "vpxorq zmm29, zmm29, zmm29",
            "vpxorq zmm30, zmm30, zmm30",
            "vpxorq zmm31, zmm31, zmm31",
            clobber_abi("sysv64"),
            options(nomem, nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn compute(_: EightLanes, _: &Batch, _: &Batch, _: &mut Batch) {
    unreachable!("no other CPU has AVX-512 IFMA")
}

/// Overwrites the part of the stack that [`compute`] used: there the compiler stores vectors for which it has no
/// register.
#[inline(never)]
fn scrub_stack() {
    let zeros = [0_u8; 16_384];
    std::hint::black_box(&zeros);
}
