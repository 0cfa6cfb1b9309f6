//! Sessions that later handshakes resume: tickets, the server's cache, the client's store.

pub(crate) mod client_session;
pub(crate) mod client_store;
pub(crate) mod refusal;
pub(crate) mod restore;
pub(crate) mod resumption;
pub(crate) mod server_flight;
pub(crate) mod server_session;
pub(crate) mod server_store;
pub(crate) mod ticket_watch;
pub(crate) mod tickets;
