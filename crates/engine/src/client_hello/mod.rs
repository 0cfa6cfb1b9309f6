//! Inspection of a ClientHello before its handshake begins.

pub(crate) mod expected_handshake;
pub(crate) mod first_flight;
