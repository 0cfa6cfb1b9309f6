//! TLS to servers: connections that the worker originates.

pub(crate) mod attempts;
pub(crate) mod failure;
pub(crate) mod originate;
pub(crate) mod warm;
