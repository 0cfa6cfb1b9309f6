//! Helper processes beside main and the workers. Work that blocks, or that parses untrusted input,
//! is done by an unprivileged, sandboxed helper.
//!
//! | process | does |
//! |---|---|
//! | [`control`] | answers the admin address |
//! | [`scout`] | looks up names of backends, checks backends |
//! | [`errand`] | queries OCSP responders and ACME servers, then exits |
//! | [`acme_hook`] | runs the operator's program that writes records of DNS, then exits |
//! | [`fleet`] | shares ticket keys through a store |
//! | [`connection_log`] | writes the lines of the connection log |
//! | [`redirect`] | answers plain HTTP with a redirect to https |
//! | [`signer`] | signs with keys in PKCS #11 tokens |
//! | [`spiffe`] | asks a SPIFFE agent for certificates and authorities |
//! | [`tcp_repair`] | takes quiet connections out of the kernel and brings them back |
//! | [`upgrade_trial`] | executes a new binary, which tells whether it can take over |
//!
//! [`helper`] starts them; `transport` connects to ticket stores, OCSP responders and ACME servers,
//! with TLS by a [`tls_file`];
//! `exchange` receives a request and sends its response; [`syslog`] forms messages, [`private_file`]
//! reads secrets.
#![forbid(unsafe_code)]

pub mod acme_hook;
pub mod connection_log;
pub mod control;
pub mod errand;
mod exchange;
pub mod fleet;
#[doc(hidden)]
pub mod fuzzed;
pub mod helper;
pub mod private_file;
pub mod redirect;
pub mod scout;
pub mod signer;
pub mod spiffe;
pub mod syslog;
pub mod tcp_repair;
pub mod tls_file;
mod transport;
pub mod upgrade_trial;
