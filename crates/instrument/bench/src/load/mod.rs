//! Load: connections, many of them, from one or several generator processes.
//!
//! A generator holds a connection as the server should: as a record at rest, 192 bytes in a slab.
//! The controlling process holds no connections; it gives orders and measures.

mod connection;
mod contexts;
mod exchange;
mod fleet;
pub mod generator;
pub(crate) mod http;
mod job;
mod limits;
mod orders;
mod sources;
mod starttls;
mod wire;

pub use fleet::{Fleet, FleetReport, Launcher};
pub use job::Pacer;
pub(crate) use limits::refuse_foreign_load;
pub use limits::{Plan, is_this_machine};
pub use orders::{
    Cycle, Expect, IdentityFiles, Messages, Order, OrderReport, Setup, Tally, Tls, TlsSuite,
    TlsVersion, Traffic, Trust,
};
pub use starttls::{Dialogue, Starttls};
