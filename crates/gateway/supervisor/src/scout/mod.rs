//! Main's side of the scouts.
//!
//! ```text
//!   monitor   runs all the time: looks up names again, checks backends
//!   lookup    runs for a reload: looks up all names of the new configuration, once
//!   task      the work that a configuration needs       process   start of a scout
//! ```

mod lookup;
mod monitor;
mod process;
mod task;

pub(crate) use lookup::{FinishedLookup, FoundNames, ReloadLookup};
pub(crate) use monitor::BackendMonitor;
