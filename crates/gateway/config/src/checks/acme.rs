//! Checks of the options for automatic certificates.

use super::common::one_certificate;
use crate::config::Config;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::option::group::Group as _;
use crate::options::Acme;
use crate::values::choices::AcmeChallenge;

/// Reports mistakes among names, server and account.
pub(crate) fn check(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let first = config
        .routes
        .iter()
        .position(|route| !route.acme.is_empty());
    let Some(first) = first else {
        without_names(locations, mistakes);
        return;
    };
    let acme = &config.acme;
    if !acme.acme_terms_agreed && locations.sound(&["acme_terms_agreed"]) {
        let problem = Problem::new(
            "no certificate is requested before you accept the ACME server's terms of service",
        )
        .label(format!("from {}", acme.acme_server))
        .help("read the terms, then add acme_terms_agreed = true above the first [[route]]");
        mistakes.error(&locations.in_route(first, "acme", None), problem);
    }
    let second = || locations.item_of_option("acme_certificates", 1);
    one_certificate(second, &acme.acme_certificates, mistakes);
    server(config, locations, mistakes);
}

fn server(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let acme = &config.acme;
    let is_http = acme.acme_challenge == AcmeChallenge::Http01;
    if is_http && config.redirect.redirect.is_empty() && locations.sound(&["redirect"]) {
        let problem = Problem::new(
            "http-01 challenges are answered on the addresses in `redirect`, and there are none",
        )
        .help("add redirect = \":80\"");
        mistakes.error(&locations.option("acme_challenge"), problem);
    }
    let url = &acme.acme_server;
    if locations.sound(&["acme_server"]) && !is_url(url) {
        let problem = Problem::new(format!(
            "`{url}` is not the URL of an ACME server's directory"
        ))
        .help("write it like this: \"https://acme-v02.api.letsencrypt.org/directory\"");
        mistakes.error(&locations.option("acme_server"), problem);
    }
    let email = acme.acme_email.as_deref();
    if let Some(email) = email.filter(|email| !is_email(email)) {
        let problem = Problem::new(format!("`{email}` is not an e-mail address"))
            .help("write it like this: \"hostmaster@example.com\"");
        mistakes.error(&locations.option("acme_email"), problem);
    }
    let both = ["acme_eab_id", "acme_eab_key_file"];
    if locations.sound(&both) && acme.acme_eab_id.is_some() != acme.acme_eab_key_file.is_some() {
        let problem = Problem::new(
            "external account binding needs an id and a key, and one of them is missing",
        )
        .help("give both acme_eab_id and acme_eab_key_file, or neither");
        mistakes.error(&locations.first_of(&both), problem);
    }
}

/// Reports ACME options that have no effect, because no route has names in `acme`.
fn without_names(locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    for name in Acme::OPTIONS.iter().map(|spec| spec.name) {
        let location = locations.option(name);
        if location != Location::Whole {
            let problem = Problem::new(format!(
                "`{name}` has no effect: no route has names in `acme`"
            ));
            mistakes.warning(
                &location,
                problem.help("add acme = [\"site.example\"] to a [[route]]"),
            );
            return;
        }
    }
}

/// Whether this is an https URL with a host, of characters that a URL may have (RFC 3986 §2).
fn is_url(text: &str) -> bool {
    let is_of_url = |c: char| c.is_ascii_alphanumeric() || "-._~:/?[]@!$&'()*+,;=%".contains(c);
    let rest = text.strip_prefix("https://").unwrap_or_default();
    !rest.is_empty() && !rest.starts_with(['/', ':', '?']) && rest.chars().all(is_of_url)
}

fn is_email(text: &str) -> bool {
    let sound =
        |part: &str| !part.is_empty() && !part.contains([' ', '@', ',', ';', '<', '>', ':']);
    text.split_once('@')
        .is_some_and(|(user, host)| sound(user) && sound(host))
}
