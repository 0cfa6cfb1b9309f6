//! What speakers say: each has bytes of its own, which begin with its number.
//!
//! So whoever hears them knows who speaks, and each byte that is wrong, missing or told twice.

use crate::Random;
use std::sync::OnceLock;

/// Bytes at the beginning that say who speaks.
pub(crate) const NAME_BYTES: usize = 4;

const TABLE_BYTES: usize = 1 << 17;

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| Random::new(7).bytes(TABLE_BYTES))
}

/// A prime, so that no two places of what a speaker says look alike.
const PERIOD: u64 = 65_521;

/// The bytes of a speaker behind its name, from `offset` on: as many as are asked for, or as lie in
/// one piece.
fn beyond_name(speaker: u32, offset: u64, len: usize) -> &'static [u8] {
    let first = (u64::from(speaker) * 7_919 % (TABLE_BYTES as u64 - PERIOD)) as usize;
    let at = (offset % PERIOD) as usize;
    let len = len.min(PERIOD as usize - at);
    &table()[first + at..first + at + len]
}

/// Writes the bytes of a speaker from `offset` on.
pub(crate) fn write(speaker: u32, mut offset: u64, mut out: &mut [u8]) {
    let name = speaker.to_le_bytes();
    while !out.is_empty() {
        let n = match name.get(offset as usize..).filter(|name| !name.is_empty()) {
            Some(name) => {
                let n = name.len().min(out.len());
                out[..n].copy_from_slice(&name[..n]);
                n
            }
            None => {
                let piece = beyond_name(speaker, offset, out.len());
                out[..piece.len()].copy_from_slice(piece);
                piece.len()
            }
        };
        offset += n as u64;
        out = &mut out[n..];
    }
}

/// Are these the bytes of a speaker from `offset` on?
pub(crate) fn is_content(speaker: u32, mut offset: u64, mut bytes: &[u8]) -> bool {
    let name = speaker.to_le_bytes();
    while !bytes.is_empty() {
        let expected = match name.get(offset as usize..).filter(|name| !name.is_empty()) {
            Some(name) => &name[..name.len().min(bytes.len())],
            None => beyond_name(speaker, offset, bytes.len()),
        };
        let n = expected.len();
        if bytes[..n] != *expected {
            return false;
        }
        offset += n as u64;
        bytes = &bytes[n..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_known_again_and_nothing_else_is() {
        let mut said = vec![0; 200_000];
        write(9, 0, &mut said);
        assert!(is_content(9, 0, &said));
        assert!(is_content(9, 1_234, &said[1_234..]));
        assert!(!is_content(9, 1_233, &said[1_234..]));
        assert!(!is_content(8, 0, &said));
        said[150_000] ^= 1;
        assert!(!is_content(9, 0, &said));
    }
}
