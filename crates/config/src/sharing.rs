//! Several routes on one address: told apart by the name that a client asks for and by the
//! application protocols that it offers. Every client must find exactly one.

use super::endpoints::{Backend, Listen};
use super::listeners::item_of;
use super::mistake::Collector;
use super::options::Route;
use super::placed::Placed;
use super::raw::Wrong;
use super::{ClientAsk, Config};

pub(super) fn check(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    for (index, route) in config.routes.iter().enumerate() {
        names(route, index, placed, mistakes);
        pass_through(route, index, placed, mistakes);
    }
    let sound = |index: &usize| {
        let names = ["listen", "server_names", "alpn", "accept_proxy_from"];
        placed.sound_in_route(*index, &names)
    };
    let all: Vec<usize> = (0..config.routes.len()).filter(sound).collect();
    for (n, &later) in all.iter().enumerate() {
        for &earlier in all.iter().take(n) {
            pair(config, (earlier, later), placed, mistakes);
        }
    }
}

/// Two routes which may listen on the same address.
fn pair(
    config: &Config,
    (earlier, later): (usize, usize),
    placed: &Placed<'_>,
    mistakes: &mut Collector<'_>,
) {
    let (Some(first), Some(second)) = (config.routes.get(earlier), config.routes.get(later)) else {
        return;
    };
    let is_of_both = |listen: &&Listen| {
        let mut listens = first.listen.iter();
        listens.any(|other| other.address == listen.address)
    };
    let Some(listen) = second.listen.iter().find(is_of_both) else {
        return;
    };
    let address = listen.address;
    let line = mistakes.line_of(&placed.in_route(earlier, "listen", None));
    let line = line.map_or(String::new(), |line| format!(" (line {line})"));
    let names = in_common(&first.server_names, &second.server_names);
    let protocols = in_common(&first.alpn, &second.alpn);
    if let (Some(name), Some(protocol)) = (names, protocols) {
        let at = second.listen.iter().position(|l| l.address == address);
        let at = at.map(|at| item_of(&second.listen, at));
        let who = name.map_or("any name".to_owned(), ToString::to_string);
        let offer = protocol.map_or(String::new(), |one| format!(" and offer {one}"));
        mistakes.error(
            &placed.in_route(later, "listen", at),
            Wrong::new(format!(
                "{address} is listened on twice for clients which ask for {who}{offer}"
            ))
            .label(format!("it is listed already{line}"))
            .help("each address and port belongs to one route, or to several with different `server_names` or different `alpn`"),
        );
    }
    if first.accept_proxy_from != second.accept_proxy_from {
        mistakes.error(
            &placed.in_route(later, "accept_proxy_from", None),
            Wrong::new(format!(
                "routes on the same address ({address}) have different `accept_proxy_from`"
            ))
            .label(format!("it differs from that of the other route{line}"))
            .help(
                "a PROXY header comes before the name that tells routes apart: give both the same",
            ),
        );
    }
}

/// Something that both would take: a word of both lists; `Some(None)`: everything, since both lists
/// are empty.
fn in_common<'a, T: PartialEq>(first: &'a [T], second: &[T]) -> Option<Option<&'a T>> {
    if first.is_empty() && second.is_empty() {
        return Some(None);
    }
    first.iter().find(|one| second.contains(one)).map(Some)
}

/// Each name once.
fn names(route: &Route, index: usize, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    if !placed.sound_in_route(index, &["server_names"]) {
        return;
    }
    for (at, name) in route.server_names.iter().enumerate() {
        if route
            .server_names
            .iter()
            .take(at)
            .any(|other| other == name)
        {
            let wrong = Wrong::new(format!("`{name}` is listed twice"));
            mistakes.error(
                &placed.in_route(index, "server_names", Some(at)),
                wrong.label("remove one of the two"),
            );
        }
    }
}

/// What passes untouched is not ours to speak for.
fn pass_through(route: &Route, index: usize, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    if !route.pass_through || !placed.sound_in_route(index, &["pass_through"]) {
        return;
    }
    let without_effect = [
        "certificates",
        "self_signed",
        "acme",
        "unknown_name",
        "client_certificates",
        "client_ca",
        "client_crl",
        "client_allow",
        "min_version",
        "max_version",
        "profile",
        "suites",
        "groups",
        "truncation",
    ];
    for name in without_effect {
        if placed.written_in_route(index, name) {
            mistakes.error(
                &placed.in_route(index, name, None),
                Wrong::new(format!(
                    "`{name}` has no effect where TLS passes through untouched"
                ))
                .label("`pass_through` is true")
                .help("the backend speaks TLS with the client; remove one of the two"),
            );
        }
    }
    let echo = |upstream: &&super::Upstream| matches!(upstream.backend, Backend::Echo);
    if placed.sound_in_route(index, &["to"]) && route.to.iter().any(|to| echo(&to)) {
        mistakes.error(
            &placed.in_route(index, "to", None),
            Wrong::new("`echo:` speaks no TLS, so nothing can be passed through to it")
                .help("give the address of a TLS server"),
        );
    }
}

/// Rules are for clients which are asked.
pub(super) fn rules(
    route: &Route,
    index: usize,
    placed: &Placed<'_>,
    mistakes: &mut Collector<'_>,
) {
    let asks = route.client_certificates != ClientAsk::None;
    let sound = placed.sound_in_route(index, &["client_certificates", "client_allow"]);
    if sound && !asks && !route.client_allow.is_empty() && !route.pass_through {
        mistakes.error(
            &placed.in_route(index, "client_allow", None),
            Wrong::new("`client_allow` has no effect: clients are not asked for certificates")
                .help("add client_certificates = \"required\""),
        );
    } else if sound
        && route.client_certificates == ClientAsk::Optional
        && !route.client_allow.is_empty()
    {
        mistakes.warning(
            &placed.in_route(index, "client_allow", None),
            Wrong::new("who shows no certificate comes in whatever `client_allow` says")
                .label("client_certificates is \"optional\"")
                .help("client_certificates = \"required\" refuses them"),
        );
    }
}
