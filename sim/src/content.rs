//! The content that peers send: each sender has its own sequence of bytes, which begins with its number.
//!
//! A receiver can therefore tell who sent the bytes, and detects any wrong, missing or repeated byte.

use crate::Random;
use std::sync::OnceLock;

/// Length of the sender's number at the beginning.
pub(crate) const ID_BYTES: usize = 4;

const TABLE_BYTES: usize = 1 << 17;

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| Random::new(7).bytes(TABLE_BYTES))
}

/// Length after which a sender's content repeats; a prime, so that shifted content never looks right.
const PERIOD: u64 = 65_521;

/// A sender's content after its number, from `offset` on: at most `len` bytes, and fewer where the
/// content repeats.
fn after_id(sender: u32, offset: u64, len: usize) -> &'static [u8] {
    let first = (u64::from(sender) * 7_919 % (TABLE_BYTES as u64 - PERIOD)) as usize;
    let at = (offset % PERIOD) as usize;
    let len = len.min(PERIOD as usize - at);
    &table()[first + at..first + at + len]
}

/// Writes a sender's content from `offset` on.
pub(crate) fn write(sender: u32, mut offset: u64, mut out: &mut [u8]) {
    let id = sender.to_le_bytes();
    while !out.is_empty() {
        let n = match id.get(offset as usize..).filter(|id| !id.is_empty()) {
            Some(id) => {
                let n = id.len().min(out.len());
                out[..n].copy_from_slice(&id[..n]);
                n
            }
            None => {
                let piece = after_id(sender, offset, out.len());
                out[..piece.len()].copy_from_slice(piece);
                piece.len()
            }
        };
        offset += n as u64;
        out = &mut out[n..];
    }
}

/// Whether these bytes are a sender's content from `offset` on.
pub(crate) fn is_content(sender: u32, mut offset: u64, mut bytes: &[u8]) -> bool {
    let id = sender.to_le_bytes();
    while !bytes.is_empty() {
        let expected = match id.get(offset as usize..).filter(|id| !id.is_empty()) {
            Some(id) => &id[..id.len().min(bytes.len())],
            None => after_id(sender, offset, bytes.len()),
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
    fn only_the_senders_own_content_is_recognised() {
        let mut content = vec![0; 200_000];
        write(9, 0, &mut content);
        assert!(is_content(9, 0, &content));
        assert!(is_content(9, 1_234, &content[1_234..]));
        assert!(!is_content(9, 1_233, &content[1_234..]));
        assert!(!is_content(8, 0, &content));
        content[150_000] ^= 1;
        assert!(!is_content(9, 0, &content));
    }
}
