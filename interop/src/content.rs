//! Content that is sent through a connection, and its digest.

use aws_lc_rs::digest::{Context, SHA256};

/// Counts bytes and digests them.
pub struct Meter {
    bytes: u64,
    digest: Context,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            bytes: 0,
            digest: Context::new(&SHA256),
        }
    }
}

impl Meter {
    /// Adds the next part.
    pub fn add(&mut self, part: &[u8]) {
        self.bytes += part.len() as u64;
        self.digest.update(part);
    }

    /// The number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The total of all parts.
    pub fn total(self) -> Total {
        let hex = self.digest.finish().as_ref().iter().fold(
            String::with_capacity(64),
            |mut hex, byte| {
                hex.push_str(&format!("{byte:02x}"));
                hex
            },
        );
        Total {
            bytes: self.bytes,
            sha256: hex,
        }
    }
}

/// Size of some content, and its SHA-256 in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Total {
    /// Number of bytes.
    pub bytes: u64,
    /// Digest in hexadecimal.
    pub sha256: String,
}

impl Total {
    /// The total of this content.
    pub fn of(content: &[u8]) -> Self {
        let mut meter = Meter::default();
        meter.add(content);
        meter.total()
    }
}

/// Random bytes, so that lost, duplicated or swapped parts are noticed.
pub fn random(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut content).expect("random bytes");
    content
}
