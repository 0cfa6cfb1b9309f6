//! Helper processes beside main and the workers. Work that blocks, or that reads what strangers have
//! sent, is done by one of these, without privileges and confined.
//!
//! | process | does |
//! |---|---|
//! | [`control`] | answers the admin address |
//! | [`scout`] | looks up names of backends, checks backends |
//! | [`errand`] | asks the authorities of certificates (OCSP, ACME), and ends |
//! | [`fleet`] | shares ticket keys through a store |
//! | [`connection_log`] | writes the lines of the connection log |
//! | [`redirect`] | answers plain HTTP with a redirect to https |
//!
//! [`helper`] starts them; `transport` connects to stores and authorities; [`syslog`] forms messages.
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
pub mod syslog;
mod transport;
