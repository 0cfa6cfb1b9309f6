//! The running configuration, with everything that was read for it.

use crate::material::{Certificates, Material};
use dormouse_config::{Backend, Config, Plan, Probe, Upstream};
use dormouse_handover::Pem;
use dormouse_handover::control::{self, BackendOfRoute};
use dormouse_reactor::process;
use dormouse_tables::backends::Backends;
use std::net::SocketAddr;

/// Maximum number of reported backends, which bounds the number of metrics.
const BACKENDS_MAX: usize = 200;
/// Maximum number of reported routes, for the same reason.
const ROUTES_MAX: usize = 200;
/// Maximum number of reported listeners per route.
const LISTENERS_MAX: usize = 8;

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
    /// The certificates as control reports them, parsed once.
    reported: Vec<control::Certificate>,
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
            reported: reported(&material.certificates),
            number,
            loaded_ms,
            config,
            plan,
            material,
        }
    }

    /// The edition that follows this one, loaded now.
    pub(crate) fn followed_by(&self, config: Config, plan: Plan, material: Material) -> Edition {
        let now_ms = process::boottime_ms();
        Edition::new(self.number + 1, now_ms, config, plan, material)
    }

    /// Time for handshakes when workers become quiet.
    pub(crate) fn handshake_grace_ms(&self) -> u64 {
        self.config.timeouts.handshake_grace.as_millis() as u64
    }

    /// The certificates that clients are shown, for control.
    pub(crate) fn reported_certificates(&self) -> Vec<control::Certificate> {
        self.reported.clone()
    }

    /// Routes and originations for `status` and metrics; `numbers` are the route numbers in slots.
    pub(crate) fn reported_routes(&self, numbers: &[u16]) -> Vec<control::Route> {
        let Config {
            routes, originate, ..
        } = &self.config;
        let of_routes = routes.iter().map(|route| shown(&route.listen));
        let of_others = originate.iter().map(|one| shown(&one.listen));
        let listeners = of_routes.chain(of_others);
        let all = self.config.route_names().into_iter().zip(numbers);
        let route = |((name, &number), listen)| control::Route {
            name,
            number,
            listen,
        };
        all.zip(listeners).map(route).take(ROUTES_MAX).collect()
    }

    /// Backends of all routes for `status` and metrics, up to the size of a message. Routes with the same
    /// address share one entry.
    pub(crate) fn reported_backends(&self, table: &Backends) -> Vec<control::Backend> {
        let mut reported: Vec<control::Backend> = Vec::new();
        'routes: for (route, route_name) in self.config.routes.iter().zip(self.config.route_names())
        {
            for upstream in &route.to {
                let of_route = BackendOfRoute {
                    route: route_name.clone(),
                    out: upstream.out,
                    weight: upstream.weight,
                };
                for address in addresses(&upstream.backend) {
                    let place = reported.iter().position(|one| one.address == address);
                    let place = place.unwrap_or(reported.len());
                    if place == BACKENDS_MAX {
                        break 'routes;
                    }
                    if place == reported.len() {
                        reported.push(control::Backend {
                            routes: Vec::new(),
                            place: table.place(&address),
                            address,
                            name: upstream.backend.name().map(str::to_owned),
                            checked: false,
                            weight: upstream.weight,
                            out: true,
                            differing: Vec::new(),
                        });
                    }
                    let Some(known) = reported.get_mut(place) else {
                        continue;
                    };
                    known.checked |= route.check != Probe::Off;
                    known.out &= upstream.out;
                    if !known.routes.contains(&route_name) {
                        known.routes.push(route_name.clone());
                        known.differing.push(of_route.clone());
                    }
                }
            }
        }
        for one in &mut reported {
            let (out, weight) = (one.out, one.weight);
            one.differing
                .retain(|of_route| (of_route.out, of_route.weight) != (out, weight));
        }
        reported
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

/// The backends of all routes of a configuration.
pub(crate) fn upstreams(config: &Config) -> impl Iterator<Item = &Upstream> {
    config.routes.iter().flat_map(|route| &route.to)
}

/// The addresses that a route listens on, as written in the configuration.
fn shown(listeners: &[impl ToString]) -> Vec<String> {
    let mut all: Vec<String> = listeners.iter().map(ToString::to_string).collect();
    all.dedup();
    all.truncate(LISTENERS_MAX);
    all
}

/// The addresses of a backend, as in the table of backends.
pub(crate) fn addresses(backend: &Backend) -> Vec<String> {
    match backend {
        Backend::Tcp { .. } => backend.addresses().map(|a| a.to_string()).collect(),
        Backend::Unix(_) => vec![backend.to_string()],
        Backend::Echo => Vec::new(),
    }
}

/// The certificates served to clients, ordered by expiry, up to the size of a message to control.
fn reported(certificates: &[Vec<Pem>]) -> Vec<control::Certificate> {
    let pems = certificates.iter().flatten();
    let reported = pems.filter_map(|pem| {
        let identity = pem.identity().ok()?;
        Some(control::Certificate {
            file: shortened(&pem.name),
            name: shortened(identity.names().first()?),
            expires_s: identity.expires_at_s(),
            is_pushed: pem.is_pushed,
        })
    });
    let mut reported: Vec<_> = reported.collect();
    reported.sort_by(|a, b| (a.expires_s, &a.file).cmp(&(b.expires_s, &b.file)));
    reported.dedup();
    reported.truncate(control::CERTIFICATES_MAX);
    reported
}

/// Cuts a text, so that a message has room for all paths and names.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    text.chars().take(CHARACTERS_MAX).collect()
}
