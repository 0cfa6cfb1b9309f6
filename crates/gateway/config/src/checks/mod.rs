//! Checks of options and routes that depend on each other.

mod acme;
mod backends;
mod common;
mod crypto;
pub(crate) mod listeners;
mod names;
mod originate;
mod program;
mod resumption;
mod route;
mod sharing;
mod spiffe;
mod starttls;
mod unused;

use crate::config::Config;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::section::Section;
use crate::values::endpoints::Backend;
use crate::values::upstream::UPSTREAMS_MAX;
use std::collections::BTreeSet;

/// Reports all mistakes that show only when options are compared.
pub(crate) fn check(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    for (index, route) in config.routes.iter().enumerate() {
        route::check(route, locations.section(Section::Route, index), mistakes);
    }
    for (index, originate) in config.originate.iter().enumerate() {
        let at = locations.section(Section::Originate, index);
        originate::check(originate, at, mistakes);
    }
    names::check(config, locations, mistakes);
    names::unresolved(config, locations, mistakes);
    backends_fit(config, mistakes);
    originate::files(config, locations, mistakes);
    sharing::check(config, locations, mistakes);
    starttls::check(config, locations, mistakes);
    listeners::no_overlap(config, locations, mistakes);
    listeners::loops(config, locations, mistakes);
    resumption::tickets(config, locations, mistakes);
    acme::check(config, locations, mistakes);
    spiffe::check(config, locations, mistakes);
    program::check(config, locations, mistakes);
}

/// Reports more backends than their table has room for. Routes to the same backend share its place.
fn backends_fit(config: &Config, mistakes: &mut MistakeCollector<'_>) {
    let all = config.routes.iter().flat_map(|route| &route.to);
    let servers = all.filter(|to| to.backend != Backend::Echo);
    // Each address of a name has a place of its own.
    let places = servers.flat_map(|to| match &to.backend {
        Backend::Tcp { .. } => to.backend.addresses().map(|at| at.to_string()).collect(),
        _ => vec![to.to_string()],
    });
    let different: BTreeSet<String> = places.collect();
    let count = different.len();
    if count > UPSTREAMS_MAX {
        let problem = Problem::new(format!(
            "there are {count} different backends, but at most {UPSTREAMS_MAX} are allowed"
        ));
        mistakes.error(&Location::Whole, problem);
    }
}
