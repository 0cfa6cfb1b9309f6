//! Helpers for tests: a client and a server connected in memory, certificates, PEM files.
//!
//! Handshakes, keys and certificates are real; only the network is missing.
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
