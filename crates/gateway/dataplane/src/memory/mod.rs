//! Memory: pending bytes, kernel send queues, and connections that wait for memory or a rate limit.

pub(crate) mod allowance;
pub(crate) mod backlog;
pub(crate) mod cooling;
pub(crate) mod holders;
pub(crate) mod kernel;
pub(crate) mod starved;
pub(crate) mod waits;
