//! TLS termination: what `dormouse serve` does.
//!
//! ```text
//!   config ──> supervisor (main) ──handover──> keeper ──> worker
//!                                                          │
//!                                         slot: a connection at rest, 192 bytes
//! ```
//!
//! The idea that rules everything here: between two events a connection is its [`slot::Slot`] and
//! nothing else. The loop (`worker`) loads it, works in memory that all connections of the
//! thread share, and writes it back.
#![forbid(unsafe_code)]

mod backend_tls;
mod backends;
mod balance;
mod beside;
mod client_sessions;
mod clients;
pub mod config;
mod contexts;
mod control;
pub mod counters;
mod door;
mod errand;
mod fleet;
mod handover;
mod identities;
mod keeper;
mod latency;
mod layout;
mod material;
mod orders;
mod origin;
mod pace;
pub mod proxy_protocol;
mod route;
mod scout;
mod session_cache;
mod session_files;
mod share;
pub mod slot;
mod socket_options;
mod supervisor;
mod ticket_keys;
mod upgrade;
mod worker;

pub use control::process_entry as control_entry;
pub use errand::process_entry as errand_entry;
pub use fleet::process_entry as ticket_store_entry;
pub use keeper::process_entry as keeper_entry;
pub use material::acme::file_of as acme_file;
pub use material::{PairFiles, pairs as certificate_pairs};
pub use scout::process_entry as scout_entry;
pub use supervisor::{CAN_RESUME, ServeError, Source, resume, serve, try_resume};
