//! Checks of the options for automatic certificates.

use super::common::{keys_in_files, one_certificate};
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
    let item = |n| locations.item_of_option("acme_certificates", n);
    keys_in_files(item, &acme.acme_certificates, mistakes);
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
    dns(config, locations, mistakes);
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

/// Reports wildcards that can't be proved, and mistakes among the options of dns-01.
fn dns(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let acme = &config.acme;
    if !locations.sound(&["acme_challenge", "acme_dns_server", "acme_dns_hook"]) {
        return;
    }
    if acme.acme_challenge == AcmeChallenge::Dns01 {
        let ways = (acme.acme_dns_server.is_some(), acme.acme_dns_hook.is_some());
        if ways == (false, false) {
            let problem = Problem::new(
                "dns-01 needs a DNS server that accepts updates, or a program, and there is none",
            );
            mistakes.error(
                &locations.option("acme_challenge"),
                problem.help("add acme_dns_server = \"192.0.2.53\", or acme_dns_hook"),
            );
        } else if ways == (true, true) {
            let problem =
                Problem::new("the record is written to `acme_dns_server` or by this program");
            mistakes.error(
                &locations.option("acme_dns_hook"),
                problem.label("remove one of the two"),
            );
        }
        if acme
            .acme_dns_hook
            .as_ref()
            .is_some_and(|path| path.is_relative())
        {
            let problem = Problem::new("the path of this program is not absolute");
            mistakes.error(
                &locations.option("acme_dns_hook"),
                problem.help("write it like this: \"/usr/local/bin/acme-dns\""),
            );
        }
        let lonely = [
            ("acme_dns_key_file", "acme_dns_server", !ways.0),
            ("acme_dns_hook_user", "acme_dns_hook", !ways.1),
        ];
        for (name, other, is_lonely) in lonely {
            let location = locations.option(name);
            if is_lonely && location != Location::Whole {
                let problem = Problem::new(format!("`{name}` has no effect without `{other}`"));
                mistakes.warning(&location, problem.help("remove it"));
            }
        }
        return;
    }
    for name in [
        "acme_dns_server",
        "acme_dns_key_file",
        "acme_dns_hook",
        "acme_dns_hook_user",
        "acme_dns_wait",
    ] {
        let location = locations.option(name);
        if location != Location::Whole {
            let problem = Problem::new(format!("`{name}` has no effect without dns-01"));
            mistakes.warning(&location, problem.help("set acme_challenge = \"dns-01\""));
        }
    }
    for (index, route) in config.routes.iter().enumerate() {
        for (n, name) in route.acme.iter().enumerate() {
            if name.is_wildcard() {
                let problem = Problem::new(format!(
                    "`{name}` is a wildcard: {} proves single names only",
                    acme.acme_challenge
                ));
                mistakes.error(
                    &locations.in_route(index, "acme", Some(n)),
                    problem.help("list the names one by one, or set acme_challenge = \"dns-01\""),
                );
            }
        }
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
