//! Sockets that main opens or inherits: listeners, unix sockets, and those to systemd and syslog.

pub(crate) mod control_addresses;
pub(crate) mod listening;
pub(crate) mod socket_file;
pub(crate) mod syslog;
pub(crate) mod systemd;
