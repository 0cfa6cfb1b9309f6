//! Routes at run time: everything that is parsed once from the configuration and the handover, and
//! shared by all connections of a process.
//!
//! A worker carries connections by them, main builds them once before a reload is given out, and a
//! scout speaks TLS with backends by the same contexts. So they are apart from the loop.
#![forbid(unsafe_code)]

pub mod backend_tls;
pub mod balance;
pub mod contexts;
mod engine_values;
pub mod identities;
pub mod origin;
pub mod route;
pub mod route_filter;
pub mod session_cache;
pub mod socket_options;
