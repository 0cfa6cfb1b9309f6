//! What a ClientHello requests: read before its handshake begins, and by rustls.

pub(crate) mod expected_handshake;
pub(crate) mod first_flight;
pub(crate) mod key_share;
pub(crate) mod requested;
