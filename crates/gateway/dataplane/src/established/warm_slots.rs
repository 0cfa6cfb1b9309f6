//! Warm connections by their slots: given to local clients, or discarded.

use crate::established::Connections;
use crate::established::logged;
use crate::established::step::Event;
use crate::io::{Io, peer_address};
use crate::outcome::LocalClient;
use crate::settings::Settings;
use crate::token::Id;
use crate::workspace::Workspace;
use dormouse_handover::slot::Phase;

impl Connections {
    /// Whether the connection is still there, and no local client has it.
    pub(crate) fn is_warm(&self, index: u32, generation: u32) -> bool {
        let slot = self.slots.get(index);
        slot.is_some_and(|slot| slot.phase() == Phase::Warm && slot.generation == generation)
    }

    /// Gives a warm connection to a local client. Returns `false` if the connection has ended.
    pub(crate) fn give_warm<I: Io>(
        &mut self,
        (index, generation): Id,
        client: LocalClient,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) -> bool {
        if !self.is_warm(index, generation) || !self.verify(index, work) {
            return false;
        }
        self.slots.header().mark_busy(index);
        let mut step = self.run(index, Event::Probe, settings, work);
        let is_usable = !step.is_over && self.is_warm(index, generation);
        if is_usable {
            let address = peer_address(&work.io, client.fd);
            work.connection_log.attach(index, address, work.now_ms);
            if let Some(slot) = self.slots.get(index) {
                logged::write_begin(index, slot, work);
            }
            step = self.run(index, Event::Attach(client), settings, work);
        }
        self.finish(index, step, settings, work);
        is_usable
    }

    /// Closes those of these connections that are still warm.
    pub(crate) fn discard_warm<I: Io>(
        &mut self,
        warm: &[Id],
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        for &(index, generation) in warm {
            if self.is_warm(index, generation) {
                self.step(index, Event::Discard, settings, work);
            }
        }
    }
}
