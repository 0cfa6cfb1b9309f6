//! Parsers of this crate that take strangers' bytes, for `fuzz/` alone: no interface.

use crate::material;
use crate::ticket_keys;

/// Reads the ticket keys of another program: their lengths.
pub fn foreign_ticket_keys(bytes: &[u8]) -> Option<Vec<usize>> {
    ticket_keys::foreign::key_lengths(bytes)
}

/// The certificates of a file that may also hold their key.
pub fn certificates_in(text: &str) -> String {
    material::pair::certificates_in(text)
}
