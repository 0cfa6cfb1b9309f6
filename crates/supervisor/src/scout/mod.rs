//! Scouts, as main sees them.
//!
//! ```text
//!   monitor   runs along with the configuration: looks up names again, checks backends
//!   lookup    runs for a reload: looks up all names of the new configuration, once
//!   task      what a configuration asks of a scout      process   starting and ending one
//! ```

mod lookup;
mod monitor;
mod process;
mod task;

pub(crate) use lookup::{FinishedLookup, FoundNames, ReloadLookup};
pub(crate) use monitor::BackendMonitor;
