//! The configuration that runs, with everything that was read for it.

use crate::material::{Certificates, Material};
use dormouse_config::{Backend, Config, Plan, Probe, Route, Upstream};
use dormouse_handover::Pem;
use dormouse_handover::control;
use dormouse_reactor::process;
use dormouse_tables::backends::Backends;
use std::net::SocketAddr;

/// Backends that are reported: enough for people, and a bound for the number of metrics.
const BACKENDS_MAX: usize = 200;

/// A configuration that runs. A reload, and each new certificate, makes another one.
#[derive(Clone)]
pub(crate) struct Edition {
    /// 1 after the start.
    pub(crate) number: u64,
    pub(crate) loaded_ms: u64,
    pub(crate) config: Config,
    /// What the configuration comes to on this machine.
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

    /// The certificates that clients are shown, for control.
    pub(crate) fn reported_certificates(&self) -> Vec<control::Certificate> {
        self.reported.clone()
    }

    /// The backends of all routes, for people and for metrics; no more than a message has room for.
    pub(crate) fn reported_backends(&self, table: &Backends) -> Vec<control::Backend> {
        let of_route = |(number, route): (usize, &Route)| {
            let checked = route.check != Probe::Off;
            let all = route.to.iter().flat_map(move |upstream| {
                let each = move |address: String| control::Backend {
                    route: number + 1,
                    place: table.place(&address),
                    address,
                    name: upstream.backend.name().map(str::to_owned),
                    checked,
                    weight: upstream.weight,
                    out: upstream.out,
                };
                addresses(&upstream.backend).into_iter().map(each)
            });
            all.collect::<Vec<_>>()
        };
        let routes = self.config.routes.iter().enumerate();
        routes.flat_map(of_route).take(BACKENDS_MAX).collect()
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

    /// Gives the backends of this name other addresses. `true`: they had different ones.
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

    /// The last known addresses of a name.
    pub(crate) fn known_addresses(&self, name: &str) -> Option<Vec<SocketAddr>> {
        let is_it = |upstream: &&Upstream| upstream.backend.name() == Some(name);
        let known = self.upstreams().find(is_it)?;
        Some(known.backend.addresses().collect())
    }
}

/// The backends of all routes of a configuration.
pub(crate) fn upstreams(config: &Config) -> impl Iterator<Item = &Upstream> {
    config.routes.iter().flat_map(|route| &route.to)
}

/// The addresses of a backend, as the table of backends knows them.
pub(crate) fn addresses(backend: &Backend) -> Vec<String> {
    match backend {
        Backend::Tcp { .. } => backend.addresses().map(|a| a.to_string()).collect(),
        Backend::Unix(_) => vec![backend.to_string()],
        Backend::Echo => Vec::new(),
    }
}

/// The certificates that clients are shown, the first to expire first; no more than a message to
/// control has room for.
fn reported(certificates: &[Vec<Pem>]) -> Vec<control::Certificate> {
    let pems = certificates.iter().flatten();
    let reported = pems.filter_map(|pem| {
        let identity = pem.identity().ok()?;
        Some(control::Certificate {
            file: shortened(&pem.name),
            name: shortened(identity.names().first()?),
            expires_s: identity.expires_at_s(),
        })
    });
    let mut reported: Vec<_> = reported.collect();
    reported.sort_by(|a, b| (a.expires_s, &a.file).cmp(&(b.expires_s, &b.file)));
    reported.dedup();
    reported.truncate(control::CERTIFICATES_MAX);
    reported
}

/// Cut, so that a message has room for all paths and names.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    text.chars().take(CHARACTERS_MAX).collect()
}
