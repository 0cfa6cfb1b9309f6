//! Checks of route names: each identifies one route in metrics and logs.

use crate::config::Config;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::section::Section;
use std::collections::HashMap;

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
