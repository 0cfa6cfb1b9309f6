//! Handshakes with clients: from the accepted socket to the record at rest.

pub(crate) mod challenge;
pub(crate) mod in_flight;
pub(crate) mod log;
pub(crate) mod queue;
pub(crate) mod route_choice;
pub(crate) mod table;
pub(crate) mod turns;
