//! libdormouse: TLS for C. The header is the documentation; `include/dormouse.h` is generated from this source,
//! and a test compares them.
//!
//! A thin layer over `dormouse_embed`: C arguments become slices and handles become objects (`boundary`,
//! `registry`), then one call does the work.
#![allow(non_camel_case_types)] // C names
#![allow(non_snake_case)] // C enum constants

mod boundary;
mod callback;
mod client;
mod connection;
#[doc(hidden)]
pub mod fuzzed;
mod handshake;
mod hooks;
mod identity;
mod kept;
mod key_table;
mod registry;
mod server;
mod sign;
mod status;
mod tickets;

pub use boundary::dormouse_connection;
pub use client::*;
pub use connection::*;
pub use handshake::*;
pub use hooks::*;
pub use identity::*;
pub use kept::*;
pub use server::*;
pub use sign::*;
pub use status::*;
pub use tickets::*;
