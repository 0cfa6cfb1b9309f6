//! The configuration: plain data, checked as a whole.
//!
//! ```text
//! a file, flags ──> raw (values with places) ──> Config ──> Plan (on this machine)
//! ```
//!
//! The table in `options.rs` is the only place where an option is described. What
//! is wrong is collected, not returned at the first mistake, and every mistake has
//! its place, the reason and what would be right.

mod address;
mod nearest;
mod options;
mod raw;
mod table;
mod types;
mod units;

use serde::{Deserialize, Serialize};

pub use options::{Limits, Log, Process, Route, Sockets, Tickets, Timeouts};
pub use table::{Default as OptionDefault, OptionSpec};
pub use types::{
    Backend, ByteSize, CertificateFiles, Count, Kind, Listen, LogFormat, LogLevel, TlsVersion,
    Truncation,
};

use table::Group;

/// Everything that `serve` does, decided before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The ways through the program; at least one.
    pub routes: Vec<Route>,
    /// The program as a whole.
    pub process: Process,
    /// How much there may be of everything.
    pub limits: Limits,
    /// How long anything may take.
    pub timeouts: Timeouts,
    /// What the kernel is asked for.
    pub sockets: Sockets,
    /// Resumption.
    pub tickets: Tickets,
    /// Standard error.
    pub log: Log,
}

impl Config {
    /// Every option at its default, and no route.
    fn blank() -> Self {
        Self {
            routes: Vec::new(),
            process: Process::blank(),
            limits: Limits::blank(),
            timeouts: Timeouts::blank(),
            sockets: Sockets::blank(),
            tickets: Tickets::blank(),
            log: Log::blank(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_can_be_read() {
        let config = Config::blank();
        assert_eq!(config.limits.pending_memory, ByteSize(64 << 20));
        Route::blank();
    }
}
