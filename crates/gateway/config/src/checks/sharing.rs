//! Checks of routes that share an address. The client's server name and application protocols
//! choose among them, and every client must match exactly one.

use crate::checks::listeners::item_of;
use crate::config::Config;
use crate::input::locations::{Locations, SectionRef};
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::section::Section;
use crate::values::choices::ClientAsk;
use crate::values::endpoints::{Backend, Listen};
use crate::values::server_name::ServerName;
use crate::values::upstream::Upstream;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

pub(crate) fn check(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    for (index, route) in config.routes.iter().enumerate() {
        let at = locations.section(Section::Route, index);
        pass_through(route, at, mistakes);
    }
    let sound = |index: &usize| {
        let names = [
            "listen",
            "server_names",
            "alpn",
            "accept_proxy_from",
            "starttls",
        ];
        locations.sound_in_route(*index, &names)
    };
    // Thousands of routes may share an address. Each is compared with the first one there, and with those that have a
    // name and a protocol of its own.
    let mut first_at: HashMap<SocketAddr, usize> = HashMap::new();
    let mut matched: HashMap<(SocketAddr, Option<&ServerName>, Option<&str>), usize> =
        HashMap::new();
    for (later, route) in config.routes.iter().enumerate().filter(|(n, _)| sound(n)) {
        let mut earlier = BTreeSet::new();
        for listen in &route.listen {
            let at = listen.address;
            let first = *first_at.entry(at).or_insert(later);
            earlier.extend((first != later).then_some(first));
            for name in or_any(route.server_names.iter()) {
                for protocol in or_any(route.alpn.iter().map(String::as_str)) {
                    let known = *matched.entry((at, name, protocol)).or_insert(later);
                    earlier.extend((known != later).then_some(known));
                }
            }
        }
        for earlier in earlier {
            pair(config, (earlier, later), locations, mistakes);
        }
    }
}

/// The items of a list; `None` in place of an empty one, which matches everything.
fn or_any<T>(items: impl ExactSizeIterator<Item = T>) -> impl Iterator<Item = Option<T>> {
    let any = (items.len() == 0).then_some(None);
    items.map(Some).chain(any)
}

/// Reports clients that would match both of two routes on the same address.
fn pair(
    config: &Config,
    (earlier, later): (usize, usize),
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
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
    // Counting lines takes time that is only spent on a mistake.
    let line = |mistakes: &MistakeCollector<'_>| {
        mistakes.line_in_words(&locations.in_route(earlier, "listen", None))
    };
    let names = in_common(&first.server_names, &second.server_names);
    let protocols = in_common(&first.alpn, &second.alpn);
    if let (Some(name), Some(protocol)) = (names, protocols) {
        let at = second.listen.iter().position(|l| l.address == address);
        let at = at.map(|at| item_of(&second.listen, at));
        let asked = name.map_or("any name".to_owned(), ToString::to_string);
        let offer = protocol.map_or(String::new(), |one| format!(" and offer {one}"));
        let line = line(mistakes);
        mistakes.error(
            &locations.in_route(later, "listen", at),
            Problem::new(format!(
                "two routes on {address} match clients that ask for {asked}{offer}"
            ))
            .label(format!("it is listed already{line}"))
            .help("each address and port belongs to one route, or to several with different `server_names` or different `alpn`"),
        );
    }
    if first.starttls != second.starttls {
        let line = line(mistakes);
        mistakes.error(
            &locations.in_route(later, "starttls", None),
            Problem::new(format!("routes on the same address ({address}) have different `starttls`"))
                .label(format!("it differs from that of the other route{line}"))
                .help("STARTTLS comes before the server name that chooses the route: give both routes the same `starttls`"),
        );
    }
    if !are_same(&first.accept_proxy_from, &second.accept_proxy_from) {
        let line = line(mistakes);
        mistakes.error(
            &locations.in_route(later, "accept_proxy_from", None),
            Problem::new(format!(
                "routes on the same address ({address}) have different `accept_proxy_from`"
            ))
            .label(format!("it differs from that of the other route{line}"))
            .help(
                "a PROXY header comes before the server name that chooses the route: give both routes the same networks",
            ),
        );
    }
}

/// Returns an item of both lists; `Some(None)` if both are empty, because an empty list matches
/// everything.
fn in_common<'a, T: PartialEq>(first: &'a [T], second: &[T]) -> Option<Option<&'a T>> {
    if first.is_empty() && second.is_empty() {
        return Some(None);
    }
    first.iter().find(|one| second.contains(one)).map(Some)
}

/// Returns whether two lists have the same items, in any order.
fn are_same<T: PartialEq>(first: &[T], second: &[T]) -> bool {
    let contains_all = |all: &[T], of: &[T]| of.iter().all(|item| all.contains(item));
    contains_all(first, second) && contains_all(second, first)
}

/// Reports options that have no effect with `pass_through`.
fn pass_through(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if !route.pass_through || !at.sound(&["pass_through"]) {
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
        "half_close",
        "backend_connect",
        "backend_down",
        "backend_ca",
        "backend_ids",
        "backend_crl",
        "backend_ocsp",
        "backend_name",
        "backend_certificates",
        "backend_alpn",
        "backend_truncation",
    ];
    for name in without_effect {
        if at.has(name) {
            mistakes.error(
                &at.location(name, None),
                Problem::new(format!(
                    "`{name}` has no effect on connections that are passed through"
                ))
                .label("`pass_through` is true")
                .help("TLS is between the client and the backend; remove one of the two"),
            );
        }
    }
    let echo = |upstream: &&Upstream| matches!(upstream.backend, Backend::Echo);
    if at.sound(&["to"]) && route.to.iter().any(|to| echo(&to)) {
        mistakes.error(
            &at.location("to", None),
            Problem::new("`echo:` has no TLS, so connections cannot be passed through to it")
                .help("give the address of a TLS server"),
        );
    }
}

/// Reports rules that can't refuse clients, because certificates are not requested or not required.
pub(crate) fn rules(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let asks = route.client_certificates != ClientAsk::None;
    let sound = at.sound(&["client_certificates", "client_allow"]);
    if sound && !asks && !route.client_allow.is_empty() && !route.pass_through {
        mistakes.error(
            &at.location("client_allow", None),
            Problem::new("`client_allow` has no effect: client certificates are not requested")
                .help("add client_certificates = \"required\""),
        );
    } else if sound
        && route.client_certificates == ClientAsk::Optional
        && !route.client_allow.is_empty()
    {
        mistakes.warning(
            &at.location("client_allow", None),
            Problem::new(
                "clients without a certificate are accepted, whatever `client_allow` says",
            )
            .label("client_certificates is \"optional\"")
            .help("set client_certificates = \"required\" to refuse them"),
        );
    }
}
