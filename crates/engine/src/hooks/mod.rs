//! Hooks through which a program takes part in a handshake.
//!
//! [`Connection::handle`](crate::stream::Connection::handle) calls each hook on the caller's thread, and the
//! hook must return at once. It has no access to the connection that waits for it. Each hook's documentation
//! says what it may cost, and what happens when it fails.

pub(crate) mod choose_identity;
pub(crate) mod exporter;
pub(crate) mod judge_certificate;
pub(crate) mod secret_log;
pub(crate) mod sign;
