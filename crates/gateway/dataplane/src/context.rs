//! The shared state that handshakes, outbound connections and the loop use besides their own fields.

use crate::established::Connections;
use crate::settings::Settings;
use crate::workspace::Workspace;

/// Settings, workspace, and the table of established connections.
pub(crate) struct WorkerContext<I> {
    pub(crate) settings: Settings,
    pub(crate) work: Workspace<I>,
    pub(crate) connections: Connections,
}
