//! The running configuration, with everything that was read for it.

use crate::material::{Certificates, Material};
use dormouse_config::{Backend, Config, Plan, Upstream};
use dormouse_reactor::process;
use std::collections::HashMap;
use std::net::SocketAddr;

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
    /// When a reload has last brought or lowered the `idle_timeout` or `total_timeout` of a route: workers spread the connections that
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
        Edition {
            timeouts_since_ms: match are_shorter(&config, &self.config) {
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
        self.config.upstreams()
    }

    /// Replaces the addresses of this name. Returns `true` if they have changed.
    pub(crate) fn set_addresses(&mut self, name: &str, addresses: &[SocketAddr]) -> bool {
        self.config.set_addresses(name, addresses)
    }
}

/// Whether a timeout is new, or shorter than before, for connections of one of the former routes.
fn are_shorter(next: &Config, former: &Config) -> bool {
    let of_next: HashMap<_, _> = next
        .route_names()
        .into_iter()
        .zip(next.lifetimes())
        .collect();
    let without_route = next.lifetime_without_route();
    let mut of_former = former.route_names().into_iter().zip(former.lifetimes());
    of_former.any(|(name, lifetime)| {
        let next = of_next.get(&name).unwrap_or(&without_route);
        next.is_shorter_than(lifetime)
    }) || without_route.is_shorter_than(former.lifetime_without_route())
}

/// The addresses of a backend, as in the table of backends.
pub(crate) fn addresses(backend: &Backend) -> Vec<String> {
    match backend {
        Backend::Tcp { .. } => backend.addresses().map(|a| a.to_string()).collect(),
        Backend::Unix(_) => vec![backend.to_string()],
        Backend::Echo => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{Flag, Machine, Section};

    fn config(timeouts: &str, route: &str) -> Config {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dormouse.toml");
        let text = format!(
            "{timeouts}\n[[route]]\nname = 'a'\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\n{route}\n"
        );
        std::fs::write(&path, text).expect("a file");
        let flags: [Flag; 0] = [];
        let loaded = dormouse_config::load(Some(&path), Section::Route, &flags, &Machine::read());
        loaded.expect("valid").config
    }

    #[test]
    fn a_shorter_timeout_of_any_route_is_noticed() {
        let usual = config("idle_timeout = '1h'", "");
        let own = |route| config("idle_timeout = '1h'", route);
        for (next, former, expected) in [
            (config("idle_timeout = '1h'", ""), &usual, false),
            (config("idle_timeout = '2h'", ""), &usual, false),
            (config("idle_timeout = '30m'", ""), &usual, true),
            (own("route_idle_timeout = '30m'"), &usual, true),
            (own("route_idle_timeout = 'off'"), &usual, false),
            (own("route_total_timeout = '1d'"), &usual, true),
            (own(""), &own("route_idle_timeout = 'off'"), true),
            // The route is removed: its connections have the timeouts of the program.
            (own(""), &renamed(own("route_idle_timeout = '2h'")), true),
        ] {
            assert_eq!(
                are_shorter(&next, former),
                expected,
                "{:?}",
                next.lifetimes()
            );
        }
    }

    fn renamed(mut config: Config) -> Config {
        for route in &mut config.routes {
            route.name = None;
        }
        config
    }
}
