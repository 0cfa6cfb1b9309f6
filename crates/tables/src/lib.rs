//! Tables in shared memory: what all processes of a gateway see at once.
//!
//! | table | written by | read by |
//! |---|---|---|
//! | [`counters`], [`latency`] | workers, main | control |
//! | [`clients`], with [`pace`] | workers | workers |
//! | [`backends`] | workers, main | workers, control |
//! | [`traffic`] | workers | control |
//! | [`client_sessions`] | workers, main | workers, main |
//!
//! Each has a fixed size and takes no lock: a process that dies while it writes blocks nobody.
#![forbid(unsafe_code)]

pub mod backends;
pub mod client_sessions;
pub mod clients;
pub mod counters;
pub mod hash;
pub mod latency;
pub mod pace;
pub mod traffic;
