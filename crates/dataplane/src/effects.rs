//! Requests of a step to other parts of the worker.
//!
//! A step sees its slot and the workspace, but neither the listeners nor other connections. What has
//! to happen there is an [`Effect`]; the loop applies it after the step, when the slot is no longer
//! marked busy.

use crate::door::pause::Pause;
use crate::outbound::request::{BackendRequest, LocalClient};

/// A request to another part of the worker.
pub(crate) enum Effect {
    /// Pauses accepting, because descriptors or local ports ran out.
    PauseAccepting(Pause),
    /// Reports the end of a warm connection that lasted `lasted_s` seconds.
    WarmEnded { route: u16, lasted_s: u32 },
    /// Opens a TLS connection to a backend for the far end of a joint.
    ConnectBackend(BackendRequest),
    /// Connects a local client to another server, because the first server ended the connection
    /// before the client sent anything.
    ReplaceServer { client: LocalClient, route: u16 },
}
