//! Parsers of this crate that take strangers' bytes, for `fuzz/` alone: no interface.

use crate::material;

/// The certificates of a file that may also hold their key.
pub fn certificates_in(text: &str) -> String {
    material::pair::certificates_in(text)
}
