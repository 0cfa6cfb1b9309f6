//! Checks of `starttls` against other options of its route.

use crate::config::Config;
use crate::input::locations::{Locations, SectionRef};
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::section::Section;
use crate::values::choices::{AcmeChallenge, Starttls};

/// Reports options that STARTTLS cannot be combined with.
pub(crate) fn check(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let is_tls_alpn = config.acme.acme_challenge == AcmeChallenge::TlsAlpn01;
    for (index, route) in config.routes.iter().enumerate() {
        let at = locations.section(Section::Route, index);
        if route.starttls != Starttls::Off && at.sound(&["starttls"]) {
            with_others(route, at, mistakes);
            if is_tls_alpn && !route.acme.is_empty() && locations.sound(&["acme_challenge"]) {
                mistakes.error(
                    &at.location("acme", None),
                    Problem::new("the ACME server begins with TLS when it checks these names, and this route expects STARTTLS")
                        .help("set acme_challenge = \"http-01\", or list the names in a route without `starttls`"),
                );
            }
        }
    }
}

fn with_others(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let protocol = route.starttls;
    if route.pass_through {
        mistakes.error(
            &at.location("starttls", None),
            Problem::new("a route that answers STARTTLS cannot pass TLS through")
                .label("`pass_through` is true")
                .help("remove one of the two"),
        );
    }
    if route.backend_tls && protocol.has_greeting() {
        mistakes.error(
            &at.location("starttls", None),
            Problem::new(format!(
                "a backend that speaks {protocol} begins with a greeting, which `backend_tls` would give to the client"
            ))
            .label("`backend_tls` is true")
            .help("use a plain connection to the backend"),
        );
    }
}
