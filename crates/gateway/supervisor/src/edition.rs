//! The running configuration, with everything that was read for it.

use crate::material::{Certificates, Material};
use dormouse_config::{Backend, Config, Plan, Upstream};
use dormouse_reactor::process;
use std::net::SocketAddr;
use std::time::Duration;

/// A running configuration. A reload creates the next one, and so does each new certificate.
#[derive(Clone)]
pub(crate) struct Edition {
    /// 1 after the start.
    pub(crate) number: u64,
    pub(crate) loaded_ms: u64,
    pub(crate) config: Config,
    /// The sizes and limits that follow from the configuration on this machine.
    pub(crate) plan: Plan,
    pub(crate) material: Material,
    /// When a reload has last brought or lowered `idle_timeout` or `total_timeout`: workers spread the connections that
    /// were overdue then. 0: never.
    pub(crate) timeouts_since_ms: u64,
}

impl Edition {
    /// The edition `number`, loaded at `loaded_ms`.
    pub(crate) fn new(
        number: u64,
        loaded_ms: u64,
        config: Config,
        plan: Plan,
        material: Material,
    ) -> Edition {
        Edition {
            number,
            loaded_ms,
            config,
            plan,
            material,
            timeouts_since_ms: 0,
        }
    }

    /// The edition that follows this one, loaded now.
    pub(crate) fn followed_by(&self, config: Config, plan: Plan, material: Material) -> Edition {
        let now_ms = process::boottime_ms();
        let (former, next) = (&self.config.timeouts, &config.timeouts);
        let is_shorter = is_shorter(next.idle_timeout, former.idle_timeout)
            || is_shorter(next.total_timeout, former.total_timeout);
        Edition {
            timeouts_since_ms: match is_shorter {
                true => now_ms,
                false => self.timeouts_since_ms,
            },
            ..Edition::new(self.number + 1, now_ms, config, plan, material)
        }
    }

    /// Time for handshakes when workers become quiet.
    pub(crate) fn handshake_grace_ms(&self) -> u64 {
        self.config.timeouts.handshake_grace.as_millis() as u64
    }

    /// This configuration with other certificates.
    pub(crate) fn with_certificates(&self, certificates: Certificates) -> Material {
        Material {
            certificates,
            ..self.material.clone()
        }
    }

    /// The backends of all routes.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        upstreams(&self.config)
    }

    /// Replaces the addresses of backends with this name. Returns `true` if they have changed.
    pub(crate) fn set_addresses(&mut self, name: &str, addresses: &[SocketAddr]) -> bool {
        let routes = self.config.routes.iter_mut();
        let backends = routes
            .flat_map(|route| &mut route.to)
            .map(|to| &mut to.backend);
        let mut has_changed = false;
        for backend in backends.filter(|backend| backend.name() == Some(name)) {
            has_changed |= backend.set_addresses(addresses);
        }
        has_changed
    }
}

/// Whether a timeout is new, or shorter than before.
fn is_shorter(next: Option<Duration>, former: Option<Duration>) -> bool {
    next.is_some_and(|next| former.is_none_or(|former| next < former))
}

/// The backends of all routes of a configuration.
pub(crate) fn upstreams(config: &Config) -> impl Iterator<Item = &Upstream> {
    config.routes.iter().flat_map(|route| &route.to)
}

/// The addresses of a backend, as in the table of backends.
pub(crate) fn addresses(backend: &Backend) -> Vec<String> {
    match backend {
        Backend::Tcp { .. } => backend.addresses().map(|a| a.to_string()).collect(),
        Backend::Unix(_) => vec![backend.to_string()],
        Backend::Echo => Vec::new(),
    }
}
