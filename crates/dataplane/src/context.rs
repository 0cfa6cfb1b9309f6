//! The shared state that handshakes, outbound connections and the loop use besides their own fields.

use crate::established::step::Event;
use crate::established::{Connections, NewSocket};
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_handover::slot::Slot;

/// Settings, workspace, and the table of established connections.
pub(crate) struct WorkerContext<I> {
    pub(crate) settings: Settings,
    pub(crate) work: Workspace<I>,
    pub(crate) connections: Connections,
}

impl<I: Io> WorkerContext<I> {
    /// Gives a new connection its slot: see [`Connections::admit`].
    pub(crate) fn admit(
        &mut self,
        socket: &NewSocket,
        begin: impl FnOnce(&mut Slot, &Settings, &mut Workspace<I>) -> Option<Event>,
    ) -> Option<u32> {
        let (settings, work) = (&self.settings, &mut self.work);
        let begin = |slot: &mut Slot, work: &mut Workspace<I>| begin(slot, settings, work);
        self.connections.admit(socket, settings, work, begin)
    }
}
