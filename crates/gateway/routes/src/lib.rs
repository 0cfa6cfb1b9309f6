//! Routes at run time: everything that is parsed once from the configuration and the handover, and
//! shared by all connections of a process.
//!
//! Three processes build routes: a worker for its connections, main to test a configuration before a
//! reload, and the scout to check backends with the same TLS contexts. So they are independent of the
//! worker's loop.
#![forbid(unsafe_code)]

pub mod backend_tls;
pub mod balance;
pub mod contexts;
mod engine_values;
pub mod loader;
pub mod origin;
pub mod parsed;
pub mod route;
pub mod route_filter;
pub mod session_cache;
pub mod socket_options;
pub mod table;
