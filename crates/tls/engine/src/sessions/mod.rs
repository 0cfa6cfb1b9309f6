//! Sessions that later handshakes resume.
//!
//! | file | subject |
//! |---|---|
//! | `tickets` | server: stateless tickets, and the keys that seal them |
//! | `ticket_messages` | server: the messages that carry tickets of TLS 1.3 |
//! | `server_store` | server: sessions kept by id, for tickets that are used once and for TLS 1.2 |
//! | `server_sessions` | server: the trait of the caller's store, and the entry that a connection uses |
//! | `server_session` | server: a parser for rustls' session encoding |
//! | `resumption`, `refusal` | server: whether a session may be resumed, and why not |
//! | `client_session` | client: a session as bytes, and the trait of the caller's store |
//! | `client_facts` | client: what the current handshake has to do with sessions |
//! | `memory_store` | client: rustls' own store, with a limit |
//! | `group_hints` | client: the groups that servers chose |
//! | `server_flight` | client: the unencrypted session data of a TLS 1.2 server |
//! | `ticket_watch` | client: tickets that come after the handshake |

pub(crate) mod client_facts;
pub(crate) mod client_session;
pub(crate) mod group_hints;
pub(crate) mod memory_store;
pub(crate) mod refusal;
pub(crate) mod resumption;
pub(crate) mod server_flight;
pub(crate) mod server_session;
pub(crate) mod server_sessions;
pub(crate) mod server_store;
pub(crate) mod ticket_messages;
pub(crate) mod ticket_watch;
pub(crate) mod tickets;
