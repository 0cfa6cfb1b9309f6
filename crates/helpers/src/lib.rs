//! Helper processes beside main and the workers. Work that blocks, or that parses untrusted input,
//! is done by an unprivileged, sandboxed helper.
//!
//! | process | does |
//! |---|---|
//! | [`control`] | answers the admin address |
//! | [`scout`] | looks up names of backends, checks backends |
//! | [`errand`] | asks the authorities of certificates (OCSP, ACME), and ends |
//! | [`fleet`] | shares ticket keys through a store |
//! | [`errand`] | queries OCSP responders and ACME servers, then exits |
//! | [`redirect`] | answers plain HTTP with a redirect to https |
//!
//! [`helper`] starts them; `transport` connects to ticket stores, OCSP responders and ACME servers.
#![forbid(unsafe_code)]

pub mod connection_log;
pub mod control;
pub mod errand;
pub mod fleet;
#[doc(hidden)]
pub mod fuzzed;
pub mod helper;
pub mod redirect;
pub mod scout;
mod transport;
