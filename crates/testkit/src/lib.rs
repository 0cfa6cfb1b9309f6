//! What the tests share: a pair of connections in memory, certificates, PEM files.
//!
//! Everything here is the real thing: real handshakes, real keys. Only the network is missing.
#![forbid(unsafe_code)]

mod authority;
mod clock;
mod files;
mod pair;
mod resting;

pub use authority::{Authority, Leaf, RSA_BITS};
pub use clock::{NOW_S, now};
pub use files::PemFiles;
pub use pair::{Cut, Ends, Outcome, Pair, PairSettings, Side, Tamper, drive, drive_tampered};
pub use resting::{Event, Resting};
