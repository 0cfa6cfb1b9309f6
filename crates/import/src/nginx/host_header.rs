//! The `Host` header: nginx chooses a server by it, and sets the one that the backend gets; Dormouse does neither.

use super::context::Context;
use super::syntax::Directive;
use super::target::only_forwards;
use crate::advice::{HOST_HEADER, HOST_OF_CLIENT, HOST_OF_OTHERS};
use crate::section::Section;

/// Reports what a backend gets as `Host` header, if nginx sent another one, or chose this server by it.
pub(super) fn of_server(
    context: &Context<'_>,
    server: &Directive,
    listens: &[&Directive],
    section: &mut Section,
) {
    let location = server.find("location").filter(|_| context.is_http);
    let Some((location, pass)) = location.and_then(|one| Some((one, one.find("proxy_pass")?)))
    else {
        return;
    };
    let mut others = context.others(server, listens).peekable();
    let has_others = others.peek().is_some();
    let checks = |other: &Directive| only_forwards(context, other).is_none();
    if others.any(|other| passes_to(&other.block, pass) && checks(other)) {
        section.remarks.add_to_do(HOST_HEADER.to_owned());
    }
    let is_host = |one: &&Directive| one.word(1).eq_ignore_ascii_case("host");
    let given: Vec<&Directive> = location.all("proxy_set_header").filter(is_host).collect();
    match given.iter().find(|one| !is_of_client(one.word(2))) {
        Some(one) => {
            section.add_to_do(&one.position, &format!("{}: {HOST_OF_CLIENT}", one.shown()));
        }
        None if given.is_empty() => {
            let what = format!("proxy_set_header Host $proxy_host (the default): {HOST_OF_CLIENT}");
            section.add_to_do(&location.position, &what);
        }
        None if has_others => {
            let one = given.first().copied().unwrap_or(location);
            section.leave_out(&one.position, &one.shown(), HOST_OF_OTHERS);
        }
        None => {}
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
        if strict.iter().any(is_reached) {
            section.remarks.add_to_do(HOST_HEADER.to_owned());
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
