//! What a step on one connection asks of the rest of the worker.
//!
//! A step sees its slot and the workspace, and nothing else: neither the door nor other connections.
//! What has to happen there is an [`Effect`], which the loop applies when the step is done and its
//! slot is unmarked.

use crate::door::pause::Pause;
use crate::outbound::request::{BackendRequest, LocalClient};

/// Something for another part of the worker to do.
pub(crate) enum Effect {
    /// Descriptors or local ports ran out: accepting pauses.
    PauseAccepting(Pause),
    /// A warm connection has ended; `lasted_s` says after how long.
    WarmEnded { route: u16, lasted_s: u32 },
    /// The far end of a joint needs TLS with a backend.
    ConnectBackend(BackendRequest),
    /// The server ended a connection before its local client sent anything: the client gets
    /// another server.
    ReplaceServer { client: LocalClient, route: u16 },
}
