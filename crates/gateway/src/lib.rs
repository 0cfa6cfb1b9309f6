//! TLS termination: listeners, the loop, backends, limits.
#![forbid(unsafe_code)]

pub mod config;

use std::process::ExitCode;

/// Serves until told to end.
pub fn serve(_config: config::Config) -> ExitCode {
    ExitCode::from(3)
}

/// The life of a process which `serve` has started.
pub fn process_entry(_args: &[String], _start_logs: fn(&config::Log)) -> ExitCode {
    ExitCode::from(3)
}
