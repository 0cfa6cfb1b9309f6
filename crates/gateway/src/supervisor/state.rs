//! What main knows, as it is told to control.

use super::Supervisor;
use crate::control::talk::{Bounds, Configuration, Keeper, Phase, State};
use dormouse_reactor::process;

impl Supervisor {
    /// What main knows. It differs from turn to turn only when something has happened.
    pub(super) fn state(&self) -> State {
        let plan = &self.plan;
        State {
            pid: process::pid().0,
            born_ms: self.born_ms,
            phase: self.phase(),
            keepers: self
                .pairs
                .iter()
                .map(|pair| Keeper {
                    pid: pair.pid.0,
                    born_ms: pair.born_ms,
                    ended: pair.ended.map(|ended| ended.to_string()),
                })
                .collect(),
            configuration: Configuration {
                file: self.source.file.clone(),
                edition: self.edition,
                loaded_ms: self.loaded_ms,
                last_reload: self.last_reload.clone(),
                waits_for_restart: self.waits_for_restart.clone(),
            },
            bounds: Bounds {
                connections: plan.connections_max.into(),
                handshakes: plan.handshakes_max.into(),
                pending_bytes: plan.pending_memory.0,
                handshake_bytes: self.config.limits.handshake_bytes_max.0,
            },
            drain: self.drain.clone(),
            backends: self.backends_to_show(),
        }
    }

    fn phase(&self) -> Phase {
        if self.stopping {
            Phase::Stopping
        } else if self.drain.is_some() {
            Phase::Draining
        } else if self.announced {
            Phase::Ready
        } else {
            Phase::Starting
        }
    }
}
