//! Tables in shared memory, which all processes of a gateway see.
//!
//! | table | written by | read by |
//! |---|---|---|
//! | [`counters`], [`latency`] | workers, main | control |
//! | [`clients`], with [`pace`] | workers | workers |
//! | [`backends`] | workers, main | workers, control |
//! | [`traffic`] | workers | control |
//! | [`client_sessions`] | workers, main | workers, main |
//!
//! Each table has a fixed size and no locks: a process that dies during a write blocks no other process.
#![forbid(unsafe_code)]

pub mod backends;
pub mod client_sessions;
pub mod clients;
pub mod counters;
pub mod hash;
pub mod latency;
pub mod pace;
pub mod traffic;
