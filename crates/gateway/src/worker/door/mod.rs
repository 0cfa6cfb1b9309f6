//! The door: listeners, who may come in, and who a client is.

pub(crate) mod admission;
pub(crate) mod client;
pub(crate) mod listeners;
