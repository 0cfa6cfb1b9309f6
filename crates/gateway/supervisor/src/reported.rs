//! The part of main's state for control that follows from an edition. It is built once, when control is first told of the
//! edition: main compares its state in every turn, and to build this for a thousand routes takes milliseconds.

use crate::configuration::edition::{Edition, addresses};
use crate::sockets::listening::Listening;
use dormouse_config::{Config, Probe};
use dormouse_handover::Pem;
use dormouse_handover::control::{self, BackendOfRoute};
use dormouse_tables::backends::Backends;
use std::collections::HashMap;

/// Maximum number of reported routes per backend. Thousands may share one.
const NAMED_MAX: usize = 64;
/// Maximum number of reported listeners per route.
const LISTENERS_MAX: usize = 8;

/// Lists of what an edition has.
pub(crate) struct Reported {
    /// The certificates that clients are shown, ordered by expiry.
    pub(crate) certificates: Vec<control::Certificate>,
    /// Routes and originations.
    pub(crate) routes: Vec<control::Route>,
    /// All addresses on which the program listens.
    pub(crate) listeners: Vec<String>,
    /// Backends of all routes. Routes with the same address share one entry.
    pub(crate) backends: Vec<control::Backend>,
}

impl Reported {
    pub(crate) fn of(edition: &Edition, listening: &Listening, table: &Backends) -> Reported {
        let config = &edition.config;
        let mut listeners = listening.addresses();
        listeners.extend(config.process.metrics.map(|address| address.to_string()));
        Reported {
            certificates: certificates(&edition.material.certificates),
            routes: routes(config, &listening.numbers().list()),
            listeners,
            backends: backends(config, table),
        }
    }
}

/// Of tens of thousands of certificates, only those that are reported get a copy of their names.
fn certificates(certificates: &[Vec<Pem>]) -> Vec<control::Certificate> {
    let pems = certificates.iter().flatten();
    let all = pems.filter_map(|pem| {
        let identity = pem.identity().ok()?;
        let name = identity.names().first()?;
        let expires_s = identity.chain_expires_at_s();
        Some((expires_s, pem.name.as_str(), name.as_str(), pem.is_pushed))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all.dedup();
    let first = all.into_iter().take(control::CERTIFICATES_MAX);
    let reported = first.map(|(expires_s, file, name, is_pushed)| control::Certificate {
        file: shortened(file),
        name: shortened(name),
        expires_s,
        is_pushed,
    });
    reported.collect()
}

/// Shortens a path or name, so that all of them fit into a message.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    text.chars().take(CHARACTERS_MAX).collect()
}

/// `numbers` are the route numbers in slots.
fn routes(config: &Config, numbers: &[u16]) -> Vec<control::Route> {
    let of_routes = config.routes.iter().map(|route| shown(&route.listen));
    let of_others = config.originate.iter().map(|one| shown(&one.listen));
    let listeners = of_routes.chain(of_others);
    let all = config.route_names().into_iter().zip(numbers);
    let of_routes = config.routes.iter().map(|route| route.route_memory_share);
    let of_others = config.originate.iter().map(|one| one.route_memory_share);
    let shares = of_routes.chain(of_others);
    let route = |(((name, &number), listen), memory_share)| control::Route {
        name,
        number,
        listen,
        memory_share,
    };
    all.zip(listeners).zip(shares).map(route).collect()
}

/// The addresses that a route listens on, as written in the configuration.
fn shown(listeners: &[impl ToString]) -> Vec<String> {
    let mut all: Vec<String> = listeners.iter().map(ToString::to_string).collect();
    all.dedup();
    all.truncate(LISTENERS_MAX);
    all
}

fn backends(config: &Config, table: &Backends) -> Vec<control::Backend> {
    let mut reported: Vec<control::Backend> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (route, route_name) in config.routes.iter().zip(config.route_names()) {
        for upstream in &route.to {
            let of_route = BackendOfRoute {
                route: route_name.clone(),
                out: upstream.out,
                weight: upstream.weight,
            };
            let is_unresolved = upstream.backend.is_unresolved();
            let unresolved = is_unresolved.then(|| upstream.to_string());
            for address in addresses(&upstream.backend).into_iter().chain(unresolved) {
                let place = places.get(&address).copied().unwrap_or(reported.len());
                if place == reported.len() {
                    places.insert(address.clone(), place);
                    reported.push(control::Backend {
                        routes: Vec::new(),
                        place: match is_unresolved {
                            true => 0,
                            false => table.place(&address),
                        },
                        is_unresolved,
                        address,
                        name: upstream.backend.name().map(str::to_owned),
                        checked: false,
                        weight: upstream.weight,
                        out: true,
                        differing: Vec::new(),
                    });
                }
                let known = reported
                    .get_mut(place)
                    .expect("a known place, or a new one");
                known.checked |= route.check != Probe::Off;
                known.out &= upstream.out;
                if known.routes.last() != Some(&route_name) && known.routes.len() < NAMED_MAX {
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
