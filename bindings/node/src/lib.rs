//! The native half of the npm package `dormouse`: contexts and sessions, without sockets.
//!
//! | | |
//! |---|---|
//! | `contexts` | settings of servers and clients, prepared once |
//! | `session` | the functions on a connection that JavaScript calls: bytes in, bytes out |
//! | `table` | the connections of a thread, found by number |
//! | `details` | handshake results, shared by connections with equal ones |
//! | `judge` | results of verifying peers' certificates, by OpenSSL's names |
//! | `ends` | how connections end |
//! | `client_session` | sessions that a client resumes |
//! | `exported` | a connection as bytes, for another process |
//! | `key_log` | secrets for Wireshark, on request |
//! | `encrypted_key` | private keys with a passphrase |
//! | `pkcs12` | PKCS #12 files |
//!
//! A connection is a number for JavaScript. An object with a finalizer would cost more than the connection.
#![deny(unsafe_code)] // `forbid` refuses the macros of napi-rs

mod client_session;
pub mod contexts;
mod details;
pub mod encrypted_key;
mod ends;
mod errors;
mod exported;
mod judge;
mod key_log;
pub mod pkcs12;
pub mod session;
mod table;
