//! What main knows, as it is told to control.

use super::Supervisor;
use dormouse_handover::Pem;
use dormouse_handover::talk::{self, Bounds, Configuration, Keeper, Phase, State};
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
                kernel_bytes: plan.kernel_memory.0,
            },
            certificates: self.certificates_told.clone(),
            acme: self.errands.names.told(),
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

/// What control is told of the certificates that clients are shown.
pub(super) fn certificates_told(certificates: &[Vec<Pem>]) -> Vec<talk::Certificate> {
    let pems = certificates.iter().flatten();
    let told = pems.filter_map(|pem| {
        let identity = pem.identity().ok()?;
        Some(talk::Certificate {
            file: shortened(&pem.name),
            name: shortened(identity.names().first()?),
            expires_s: identity.expires_at_s(),
        })
    });
    let mut told: Vec<_> = told.collect();
    told.sort_by(|a, b| (a.expires_s, &a.file).cmp(&(b.expires_s, &b.file)));
    told.dedup();
    told.truncate(talk::TOLD_MAX);
    told
}

/// So much of a path or a name that a message has room for all of them.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    text.chars().take(CHARACTERS_MAX).collect()
}
