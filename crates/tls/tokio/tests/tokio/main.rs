//! Streams over pipes in memory, with the same crate or a bare session as their peer.

mod ends;
mod handshakes;
mod moved;
mod pair;
mod transfer;
