//! What a program around the engine decides or learns during a handshake.
//!
//! Each hook is called in the midst of [`Connection::handle`](crate::stream::Connection::handle), on
//! the caller's thread, and must answer at once. It has no access to the connection that waits for
//! it. What a hook may cost, and what happens when it fails, is said where it is defined.

pub(crate) mod choose_identity;
pub(crate) mod exporter;
pub(crate) mod judge_certificate;
pub(crate) mod secret_log;
pub(crate) mod sign;
