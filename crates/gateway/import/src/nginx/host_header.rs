//! The `Host` header: nginx chooses a server by it, and sets the one that the backend gets; Dormouse does neither.

use super::context::Server;
use super::forward::only_forwards;
use super::syntax::Directive;
use crate::advice::{HOST_HEADER, HOST_OF_CLIENT, HOST_OF_OTHERS};
use crate::section::Section;

/// Reports what a backend gets as `Host` header, if nginx sent another one, or chose this server by it.
pub(super) fn of_server(server: &Server<'_>, listens: &[&Directive], section: &mut Section) {
    let location = server.own.find("location");
    let Some((location, pass)) = location.and_then(|one| Some((one, one.find("proxy_pass")?)))
    else {
        return;
    };
    let others: Vec<Server<'_>> = server.others(listens).collect();
    let checks =
        |other: &Server<'_>| passes_to(&other.own.block, pass) && only_forwards(other).is_none();
    if others.iter().any(checks) {
        section.step(pass.origin, HOST_HEADER);
    }
    let levels = [location, server.own, server.context.block];
    let with_headers = levels
        .into_iter()
        .find(|one| one.find("proxy_set_header").is_some());
    let is_host = |one: &&Directive| one.word(1).eq_ignore_ascii_case("host");
    let given = with_headers.map(|one| one.all("proxy_set_header"));
    let given: Vec<&Directive> = given.into_iter().flatten().filter(is_host).collect();
    for one in &given {
        match is_of_client(one.word(2)) {
            false => section.step(one.origin, HOST_OF_CLIENT),
            true if others.is_empty() => {
                section.without_effect(one.origin, "the client's header is passed on unchanged");
            }
            true => section.left_out(one.origin, HOST_OF_OTHERS),
        }
    }
    if given.is_empty() {
        let why = format!("nginx sent its default `Host` header, $proxy_host: {HOST_OF_CLIENT}");
        section.step(pass.origin, why);
    }
}

/// Returns the scheme and the group or address of a `proxy_pass`, without the path.
fn target_of(pass: &Directive) -> Option<(&str, &str)> {
    let (scheme, rest) = pass.word(1).split_once("://")?;
    Some((scheme, rest.split('/').next()?))
}

/// Returns whether a directive in this block passes requests to the same group or address.
fn passes_to(block: &[Directive], pass: &Directive) -> bool {
    block.iter().any(|one| {
        let is_it = one.name() == "proxy_pass" && target_of(one) == target_of(pass);
        is_it || passes_to(&one.block, pass)
    })
}

/// Returns whether this is the `Host` header of the client, maybe with another port.
fn is_of_client(value: &str) -> bool {
    let value = value.to_ascii_lowercase().replace(['{', '}'], "");
    let port = value
        .strip_prefix("$host")
        .or(value.strip_prefix("$http_host"));
    port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
}

/// Names routes whose clients reach, with a `Host` header, what only certain clients of another route should.
pub(super) fn of_shared_backends(sections: &mut [Section]) {
    let rules = |one: &Section| {
        let is_required = one.value("client_certificates") == Some("\"required\"");
        let ca = is_required.then(|| one.value("client_ca").unwrap_or_default());
        let all = [ca, one.value("allow"), one.value("deny")];
        all.map(|rule| rule.map(str::to_owned))
    };
    // nginx itself, if it stays behind, applies them as before.
    let is_strict = |one: &&Section| {
        rules(one).iter().any(Option::is_some) && one.has("to") && !one.has("proxy_protocol")
    };
    let strict: Vec<Section> = sections.iter().filter(is_strict).cloned().collect();
    for section in sections {
        // nginx chooses by the header only among the servers of an address.
        let is_reached = |other: &Section| {
            let has_same = |name| section.value(name) == other.value(name);
            has_same("to") && rules(section) != rules(other) && share_address(section, other)
        };
        let from = section.option("to").map(|one| one.from.clone());
        if let Some(from) = from.filter(|_| strict.iter().any(is_reached)) {
            section.step(from, HOST_HEADER);
        }
    }
}

fn share_address(one: &Section, other: &Section) -> bool {
    let theirs: Vec<&str> = addresses(other).collect();
    addresses(one).any(|address| theirs.contains(&address))
}

/// Returns the addresses of `listen`: a text in quotes, or a list of such texts.
fn addresses(section: &Section) -> impl Iterator<Item = &str> {
    let listen = section.value("listen").unwrap_or_default();
    listen.split('"').skip(1).step_by(2)
}
