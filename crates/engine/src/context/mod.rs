//! What all connections of a server or a client share: settings, checked and made ready once.

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod suites;
pub(crate) mod warm_up;
