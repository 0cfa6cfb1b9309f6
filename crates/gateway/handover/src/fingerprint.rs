//! Short fingerprints of certificates: what an entry for the connection log has room for.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The first bytes of a certificate's SHA-256 digest. Of a billion certificates, no two have the same by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ShortFingerprint(pub [u8; ShortFingerprint::BYTES]);

impl ShortFingerprint {
    /// Its length.
    pub const BYTES: usize = 8;

    /// The first bytes of a digest.
    pub fn of(digest: [u8; 32]) -> ShortFingerprint {
        let first = digest.first_chunk();
        ShortFingerprint(*first.expect("a digest is longer"))
    }
}

impl fmt::Display for ShortFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<ShortFingerprint> for String {
    fn from(fingerprint: ShortFingerprint) -> String {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for ShortFingerprint {
    type Error = String;

    fn try_from(text: String) -> Result<ShortFingerprint, String> {
        text.parse()
    }
}

impl FromStr for ShortFingerprint {
    type Err = String;

    /// Reads the whole digest or its first bytes, in hexadecimal digits, with or without colons between the bytes.
    fn from_str(text: &str) -> Result<ShortFingerprint, String> {
        let digits: String = text.chars().filter(|c| *c != ':').collect();
        let is_one =
            matches!(digits.len(), 16 | 64) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let first = digits.get(..16).filter(|_| is_one);
        let number = first.and_then(|first| u64::from_str_radix(first, 16).ok());
        let number = number.ok_or_else(|| {
            format!("`{text}` is not a fingerprint; give the SHA-256 digest of a certificate, or its first 16 digits")
        })?;
        Ok(ShortFingerprint(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_or_its_first_bytes_are_read() {
        let mut digest = [0xab; 32];
        digest[0] = 1;
        let short = ShortFingerprint::of(digest);
        assert_eq!(short.to_string(), "01ababababababab");
        let whole = format!("01{}", "ab".repeat(31));
        let with_colons = format!("01{}", ":AB".repeat(31));
        for text in [&*short.to_string(), &whole, &with_colons] {
            assert_eq!(text.parse(), Ok(short), "{text}");
        }
        for wrong in [
            "",
            "01ab",
            "shop.example.com",
            "+1ababababababab",
            &whole[1..],
        ] {
            assert!(wrong.parse::<ShortFingerprint>().is_err(), "{wrong}");
        }
    }
}
