//! A route at work: what its configuration became in this process.

use crate::config::Truncation;
use dormouse_engine::ServerContext;
use dormouse_reactor::socket::{Addr, Options};

/// One way through the program.
pub(crate) struct Route {
    /// Certificates, keys and suites: one for all connections, parsed once.
    pub(crate) context: ServerContext,
    /// Where plaintext goes; `None`: back to where it came from.
    pub(crate) backend: Option<Addr>,
    /// The backend as the configuration names it.
    pub(crate) backend_name: String,
    /// What a TCP end without close_notify means here.
    pub(crate) truncation: Truncation,
    /// What the kernel is asked for, on both sides.
    pub(crate) socket_options: Options,
}
