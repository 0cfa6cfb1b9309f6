//! Parsers of untrusted bytes in this crate, exposed for `fuzz/` only; not a public API.

use crate::material;

/// Extracts the certificates from a file that may also hold their key.
pub fn certificates_in(text: &str) -> String {
    material::pair::certificates_in(text)
}
