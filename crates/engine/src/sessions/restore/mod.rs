//! Values of rustls for sessions that were kept as bytes.

pub(crate) mod tls12;
pub(crate) mod tls13;
