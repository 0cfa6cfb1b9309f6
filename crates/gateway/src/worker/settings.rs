//! What the configuration says to one worker: routes and limits. A reload replaces them; a step only
//! reads them.

use crate::clients::ClientLimits;
use crate::route::Route;

/// What one worker may use: the configuration's limits, divided by the number of workers.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) connections_max: u32,
    pub(crate) handshakes_max: usize,
    pub(crate) handshake_bytes_max: usize,
    pub(crate) pending_per_connection: usize,
    pub(crate) per_client: ClientLimits,
    /// What the kernel may hold in long send queues.
    pub(crate) kernel_bytes_max: u64,
    /// Addresses from which backends on this machine are connected to.
    pub(crate) sources: u32,
    pub(crate) handshake_timeout_ms: u64,
    pub(crate) idle_timeout_ms: Option<u64>,
    pub(crate) total_timeout_ms: Option<u64>,
    pub(crate) partial_record_timeout_ms: u64,
    pub(crate) backend_connect_timeout_ms: u64,
    pub(crate) drain_timeout_ms: u64,
    /// A log line for every handshake.
    pub(crate) log_handshakes: bool,
    pub(crate) shutdown_grace_ms: u64,
    pub(crate) handshake_grace_ms: u64,
    /// The loop turns at least this often, so that its keeper sees that it lives.
    pub(crate) heartbeat_ms: Option<u64>,
}

/// Routes and limits.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    /// By number: see [`crate::route::by_number`].
    pub(crate) routes: Vec<Route>,
}

impl Settings {
    /// The route of this number.
    pub(crate) fn route(&self, number: u16) -> Option<&Route> {
        self.routes.get(usize::from(number))
    }
}
