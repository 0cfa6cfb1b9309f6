//! A look at a ClientHello before its handshake begins.

pub(crate) mod offer;
pub(crate) mod requested;
