//! The data path: the worker, which carries connections, and the keeper, which outlives it.
//!
//! The idea that rules everything here: between two events a connection is its
//! [`Slot`](dormouse_handover::slot::Slot) and nothing else. The loop loads it, works in memory that
//! all connections of the thread share, and writes it back.
#![forbid(unsafe_code)]

pub mod driven;
pub mod keeper;
pub mod proxy_protocol;
mod worker;

pub use worker::{End, Io};
