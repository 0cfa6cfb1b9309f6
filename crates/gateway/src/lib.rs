//! TLS termination: listeners, the loop, backends, limits.
#![forbid(unsafe_code)]

pub mod config;
