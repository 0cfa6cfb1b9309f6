//! The life of the worker: recovery, reload, drain, stop, upgrade.

pub(crate) mod drain;
pub(crate) mod recover;
pub(crate) mod reload;
pub(crate) mod upgrade;
