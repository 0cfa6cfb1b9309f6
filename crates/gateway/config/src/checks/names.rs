//! Checks of names: those of routes, each of which identifies one route in metrics and logs, and those of hosts.

use crate::config::Config;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::section::Section;
use crate::values::endpoints::Backend;
use std::collections::HashMap;

/// Warns of names in `to` that have not resolved, which is possible with `resolve = "lazy"`.
pub(crate) fn unresolved(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let routes = config.routes.iter().enumerate().flat_map(|(index, route)| {
        let names = route.to.iter().map(|to| match &to.backend {
            Backend::Tcp { given, addresses } if addresses.is_empty() => Some(given),
            _ => None,
        });
        names
            .enumerate()
            .map(move |(n, name)| (Section::Route, index, n, name))
    });
    let others = config
        .originate
        .iter()
        .enumerate()
        .flat_map(|(index, one)| {
            let names = one
                .to
                .iter()
                .map(|to| to.addresses.is_empty().then_some(&to.given));
            names
                .enumerate()
                .map(move |(n, name)| (Section::Originate, index, n, name))
        });
    for (section, index, n, name) in routes.chain(others) {
        let at = locations.section(section, index);
        if let Some(name) = name.filter(|_| at.sound(&["to"])) {
            let what =
                format!("`{name}` cannot be looked up now; it is down until its name resolves");
            let help = "check the spelling; `resolve = \"required\"` refuses such a configuration";
            mistakes.warning(&at.location("to", Some(n)), Problem::new(what).help(help));
        }
    }
}

/// Reports names that two routes or originations share.
pub(crate) fn check(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let routes = (0..config.routes.len()).map(|index| (Section::Route, index));
    let others = (0..config.originate.len()).map(|index| (Section::Originate, index));
    let places = routes.chain(others);
    let places = places.map(|(section, index)| locations.section(section, index));
    let mut seen = HashMap::new();
    for (name, place) in config.route_names().into_iter().zip(places) {
        let location = place.location("name", None);
        let Some(earlier) = seen.insert(name.clone(), location.clone()) else {
            continue;
        };
        let line = mistakes.line_in_words(&earlier);
        mistakes.error(
            &location,
            Problem::new(format!("another route is named `{name}`{line}"))
                .help("metrics and logs identify routes by their names: give each route its own"),
        );
    }
}
