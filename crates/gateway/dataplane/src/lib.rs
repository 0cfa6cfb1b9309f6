//! The data path: the worker, which carries connections, and the keeper, which outlives it.
//!
//! Between two events a connection is its [`Slot`](dormouse_handover::slot::Slot) and nothing else.
//! The loop loads the slot, works in memory that all connections of the thread share, and writes the
//! slot back.
#![forbid(unsafe_code)]

mod awake;
mod bursts;
mod client;
mod close_reason;
mod connection_log;
mod context;
mod deadlines;
mod door;
pub mod driven;
mod entries;
mod established;
mod handshake;
mod handshake_log;
mod io;
pub mod keeper;
mod lifecycle;
mod memory;
pub mod mqtt;
mod numbers;
mod outbound;
mod outcome;
mod own_ports;
mod pause;
pub mod proxy_protocol;
mod repair_link;
mod settings;
pub mod starttls;
mod token;
mod trace;
mod traced_end;
mod traffic;
mod worker;
mod workspace;

pub use io::Io;
pub use worker::Exit;
