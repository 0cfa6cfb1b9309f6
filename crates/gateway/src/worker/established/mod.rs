//! Established connections: slots, and the steps that move their bytes.

pub(crate) mod begin;
pub(crate) mod close;
pub(crate) mod connect;
pub(crate) mod connect_times;
pub(crate) mod connections;
pub(crate) mod flow;
pub(crate) mod interest;
pub(crate) mod opening;
pub(crate) mod pass_through;
pub(crate) mod sealing;
pub(crate) mod step;
pub(crate) mod tickets;
pub(crate) mod timers;
