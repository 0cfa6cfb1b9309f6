//! Checks of what comes from the SPIFFE agent.

use crate::config::Config;
use crate::input::locations::{Locations, SectionRef};
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::options::{Originate, Route};
use crate::section::Section;
use crate::values::choices::StapledOcsp;
use crate::values::client_match::ClientMatch;
use crate::values::pem_files::{Ca, CertificateFiles};
use crate::values::spiffe::{SpiffeRule, TrustDomain};

/// Reports an agent that is missing, or has no task.
pub(crate) fn check(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    for (index, route) in config.routes.iter().enumerate() {
        let at = locations.section(Section::Route, index);
        clients(route, at, mistakes);
        backends(route, at, mistakes);
    }
    for (index, originate) in config.originate.iter().enumerate() {
        servers(
            originate,
            locations.section(Section::Originate, index),
            mistakes,
        );
    }
    if !locations.sound(&["spiffe_agent"]) {
        return;
    }
    let process = &config.process;
    match (first_use(config, locations), &process.spiffe_agent) {
        (Some(location), None) => {
            let problem = Problem::new("this comes from a SPIFFE agent, and there is none").help(
                "add spiffe_agent = \"unix:/run/spire/sockets/agent.sock\" above the first section",
            );
            mistakes.error(&location, problem);
        }
        (None, Some(_)) => {
            let problem = Problem::new("`spiffe_agent` has no effect: nothing comes from it")
                .help("add certificates = [\"spiffe:\"] or client_ca = \"spiffe://example.org\" to a route, or remove it");
            mistakes.warning(&locations.option("spiffe_agent"), problem);
        }
        _ => {}
    }
    if process.spiffe_user.is_some() && process.spiffe_agent.is_none() {
        let problem = Problem::new("`spiffe_user` has no effect without `spiffe_agent`");
        mistakes.warning(&locations.option("spiffe_user"), problem.help("remove it"));
    }
}

/// The place of the first option that needs the agent.
fn first_use(config: &Config, locations: &Locations<'_>) -> Option<Location> {
    let place = |section, index, option| {
        let has = |files: &[CertificateFiles]| files.iter().any(|one| one.spiffe().is_some());
        move |files: Option<&[CertificateFiles]>, domain: Option<&TrustDomain>| {
            let is_used = files.is_some_and(has) || domain.is_some();
            is_used.then(|| locations.location_in(section, index, option, None))
        }
    };
    let routes = config.routes.iter().enumerate().find_map(|(n, route)| {
        let place = |option| place(Section::Route, n, option);
        let client_ca = route.client_ca.as_ref().and_then(|ca| ca.trust_domain());
        (place("certificates")(Some(&route.certificates), None))
            .or_else(|| place("client_ca")(None, client_ca))
            .or_else(|| place("backend_certificates")(Some(&route.backend_certificates), None))
            .or_else(|| place("backend_ca")(None, route.backend_ca.trust_domain()))
    });
    let originations = || {
        config.originate.iter().enumerate().find_map(|(n, one)| {
            let place = |option| place(Section::Originate, n, option);
            (place("certificates")(Some(&one.certificates), None))
                .or_else(|| place("ca")(None, one.ca.trust_domain()))
        })
    };
    routes.or_else(originations)
}

/// Reports rules for clients that are not about ids of the trust domain: its authorities may sign no others.
fn clients(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let domain = route.client_ca.as_ref().and_then(|ca| ca.trust_domain());
    let (Some(domain), true) = (domain, at.sound(&["client_allow"])) else {
        return;
    };
    for (n, rule) in route.client_allow.iter().enumerate() {
        let is_within = matches!(rule, ClientMatch::Uri(uri) if domain.has_all_of(uri));
        if !is_within {
            let problem = Problem::new(format!("`{rule}` is not a rule for ids of {domain}"))
                .label("`client_ca` is that trust domain")
                .help(format!("write it like this: \"uri={domain}/ns/web/*\""));
            mistakes.error(&at.location("client_allow", Some(n)), problem);
        }
    }
}

fn backends(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if !route.backend_tls && !at.has("backend_ids") {
        return;
    }
    let options = ["backend_ca", "backend_ids", "backend_ocsp"];
    let ids = &route.backend_ids;
    let of_server = (&route.backend_ca, &ids[..], route.backend_ocsp);
    verified(of_server, options, at, mistakes);
}

fn servers(originate: &Originate, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let ids = &originate.server_ids;
    let of_server = (&originate.ca, &ids[..], originate.ocsp);
    verified(of_server, ["ca", "server_ids", "ocsp"], at, mistakes);
}

/// Reports a trust domain whose every workload would be taken for the server, and ids that nobody verifies.
fn verified(
    (ca, ids, ocsp): (&Ca, &[SpiffeRule], StapledOcsp),
    [ca_option, ids_option, ocsp_option]: [&'static str; 3],
    at: SectionRef<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    if !at.sound(&[ca_option, ids_option, ocsp_option]) {
        return;
    }
    let Some(domain) = ca.trust_domain() else {
        if !ids.is_empty() || at.has(ids_option) {
            let problem = Problem::new(format!(
                "`{ids_option}` needs the authorities of a trust domain"
            ))
            .help(format!("add {ca_option} = \"spiffe://example.org\""));
            mistakes.error(&at.location(ids_option, None), problem);
        }
        return;
    };
    if ids.is_empty() {
        let problem = Problem::new(format!(
            "every workload of {domain} could take the server's place"
        ))
        .help(format!(
            "add {ids_option} = \"{domain}/db\", or \"{domain}/*\" if that is meant"
        ));
        mistakes.error(&at.location(ca_option, None), problem);
    }
    for (n, rule) in ids.iter().enumerate() {
        if !domain.has_all_of(rule.as_str()) {
            let problem = Problem::new(format!("`{rule}` is not an id of {domain}"))
                .label(format!("`{ca_option}` is that trust domain"));
            mistakes.error(&at.location(ids_option, Some(n)), problem);
        }
    }
    if ocsp == StapledOcsp::Required {
        let problem = Problem::new("authorities of a trust domain have no OCSP responders")
            .help(format!("remove {ocsp_option}"));
        mistakes.error(&at.location(ocsp_option, None), problem);
    }
}
