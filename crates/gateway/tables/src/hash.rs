//! Hash functions for finding places in tables. They are not cryptographic.

/// Returns the FNV-1a hash of a text, never 0. It is the same in every process.
pub fn of_text(text: &str) -> u64 {
    of_bytes(text.as_bytes())
}

/// Returns the FNV-1a hash of bytes, never 0. It is the same in every process.
pub fn of_bytes(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    hash.max(1)
}

/// Spreads the bits of a number (the finaliser of MurmurHash3).
pub fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}
