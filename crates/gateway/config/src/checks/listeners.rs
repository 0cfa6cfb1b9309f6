//! Checks of listeners: no address twice, no empty list, no backend that is a listener of this
//! program.

use crate::config::Config;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::option::option_type::ITEMS_MAX;
use crate::section::Section;
use crate::values::endpoints::{Listen, PlainListen};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A TCP address to listen on, and where it was written.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) location: Location,
    /// Whether this is the second of the two addresses of `:PORT`.
    second: bool,
    /// Index of its route; `None` for originations and redirects.
    route: Option<usize>,
}

/// Returns all listeners except those that could not be read.
pub(crate) fn all(config: &Config, locations: &Locations<'_>) -> Vec<Listener> {
    let mut found = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        if locations.sound_in_route(index, &["listen"]) {
            let location = |at| locations.in_route(index, "listen", Some(at));
            let listeners = listeners_at(route.listen.iter().map(Some), location);
            found.extend(listeners.into_iter().map(|listener| Listener {
                route: Some(index),
                ..listener
            }));
        }
    }
    for (index, originate) in config.originate.iter().enumerate() {
        if locations.sound_in(Section::Originate, index, &["listen"]) {
            let location =
                |at| locations.location_in(Section::Originate, index, "listen", Some(at));
            let listens = originate.listen.iter().map(PlainListen::tcp);
            found.extend(listeners_at(listens, location));
        }
    }
    if locations.sound(&["redirect"]) {
        let location = |at| locations.item_of_option("redirect", at);
        let listens = config.redirect.redirect.iter().map(Some);
        found.extend(listeners_at(listens, location));
    }
    found
}

/// Returns the listeners of a list; `None` in it stands for an item that is no TCP address.
fn listeners_at<'a>(
    listens: impl Iterator<Item = Option<&'a Listen>>,
    location: impl Fn(usize) -> Location,
) -> Vec<Listener> {
    let mut found = Vec::new();
    let (mut items, mut before) = (0, None);
    for listen in listens {
        let second = (before.zip(listen)).is_some_and(|(a, b)| is_pair(a, b));
        items += usize::from(!second);
        found.extend(listen.map(|listen| Listener {
            address: listen.address,
            location: location(items - 1),
            second,
            route: None,
        }));
        before = listen;
    }
    found
}

/// Reports empty lists, and addresses that equal another listener's or are part of it.
pub(crate) fn no_overlap(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    // Routes that share an address share its listener.
    let of_routes = config.routes.iter().flat_map(|route| &route.listen);
    let of_routes: HashSet<SocketAddr> = of_routes.map(|listen| listen.address).collect();
    let of_others: usize = config.originate.iter().map(|one| one.listen.len()).sum();
    let count = of_routes.len() + of_others + config.redirect.redirect.len();
    if count > ITEMS_MAX {
        let problem = Problem::new(format!(
            "there are {count} addresses to listen on, but at most {ITEMS_MAX} are allowed"
        ));
        return mistakes.error(&Location::Whole, problem);
    }
    let routes = config.routes.iter().map(|route| route.listen.is_empty());
    let others = config.originate.iter().map(|one| one.listen.is_empty());
    let routes = routes.enumerate().map(|at| (Section::Route, at));
    let others = others.enumerate().map(|at| (Section::Originate, at));
    for (section, (index, is_empty)) in routes.chain(others) {
        if is_empty && locations.sound_in(section, index, &["listen"]) {
            mistakes.error(
                &locations.location_in(section, index, "listen", None),
                Problem::new("this list is empty, so no client could connect")
                    .help("listen = \"127.0.0.1:8443\""),
            );
        }
    }
    // Listeners overlap only if they have the same port. Of routes that share an address, the first one is kept: there may
    // be thousands.
    let mut seen: HashMap<u16, Vec<Listener>> = HashMap::new();
    let mut of_route = HashSet::new();
    for listener in all(config, locations) {
        let seen = seen.entry(listener.address.port()).or_default();
        let is_repeated = !of_route.insert((listener.route, listener.address));
        // Routes may share an address; see `sharing`.
        let is_shared = |other: &Listener| {
            let routes = (other.route, listener.route);
            other.address == listener.address
                && matches!(routes, (Some(one), Some(two)) if one != two)
                && !is_repeated
        };
        let earlier = seen
            .iter()
            .find(|other| overlap(other.address, listener.address) && !is_shared(other));
        // `:PORT` stands for two addresses; one report is enough.
        if let Some(earlier) = earlier.filter(|_| !listener.second) {
            let line = mistakes.line_in_words(&earlier.location);
            let problem = overlap_problem(earlier.address, listener.address, &line);
            mistakes.error(&listener.location, problem);
        }
        let is_known = |other: &Listener| other.address == listener.address;
        if listener.route.is_none() || !seen.iter().any(is_known) {
            seen.push(listener);
        }
    }
    paths(config, locations, mistakes);
}

/// Reports unix sockets that are listed twice.
fn paths(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let mut seen = BTreeSet::new();
    for (index, originate) in config.originate.iter().enumerate() {
        for listen in &originate.listen {
            if let PlainListen::Unix(path) = listen
                && !seen.insert(path)
            {
                let problem = Problem::new(format!("two listeners have the address {listen}"));
                mistakes.error(
                    &locations.location_in(Section::Originate, index, "listen", None),
                    problem.help("give each a path of its own"),
                );
            }
        }
    }
}

fn overlap_problem(earlier: SocketAddr, address: SocketAddr, line: &str) -> Problem {
    let problem = if earlier == address {
        Problem::new(format!("two listeners have the address {address}"))
            .label(format!("it is listed already{line}"))
    } else {
        Problem::new(format!("{address} and {earlier} cannot both be listeners"))
            .label(format!("one includes the other{line}"))
    };
    problem.help("each address and port belongs to one route")
}

/// Returns the index of the written item that this address comes from: `:PORT` stands for two
/// addresses.
pub fn item_of(listen: &[Listen], at: usize) -> usize {
    let until = listen.get(..=at).unwrap_or(listen).windows(2);
    let pairs = until.filter(|two| matches!(two, [a, b] if is_pair(a, b)));
    at - pairs.count()
}

/// Returns whether these are the two addresses of `:PORT`.
fn is_pair(a: &Listen, b: &Listen) -> bool {
    let all = |listen: &Listen, ipv4: bool| {
        listen.address.ip().is_unspecified() && listen.address.is_ipv4() == ipv4
    };
    a.given == b.given && all(a, true) && all(b, false)
}

/// Returns whether two listeners would take connections from each other.
pub fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port()
        && a.is_ipv4() == b.is_ipv4()
        && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

/// Whether the metrics address shares clients with a listener. `[::]` includes IPv4 there.
pub fn metrics_overlap(metrics: SocketAddr, listener: SocketAddr) -> bool {
    let is_all = metrics.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    overlap(metrics, listener) || is_all && metrics.port() == listener.port()
}

/// Reports backends that are listeners of this program, and originations to themselves.
pub(crate) fn loops(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let listeners: BTreeSet<SocketAddr> = (config.routes.iter().enumerate())
        .filter(|(index, _)| locations.sound_in_route(*index, &["listen"]))
        .flat_map(|(_, route)| &route.listen)
        .map(|listen| listen.address)
        .collect();
    for (index, route) in config.routes.iter().enumerate() {
        if !locations.sound_in_route(index, &["to"]) {
            continue;
        }
        for (at, to) in route.to.iter().enumerate() {
            if let Some(problem) = loop_problem(to.backend.addresses(), &listeners, "backend") {
                mistakes.error(&locations.in_route(index, "to", Some(at)), problem);
            }
        }
    }
    for (index, originate) in config.originate.iter().enumerate() {
        if !locations.sound_in(Section::Originate, index, &["listen", "to"]) {
            continue;
        }
        let own = originate.listen.iter().filter_map(PlainListen::tcp);
        let own: BTreeSet<SocketAddr> = own.map(|listen| listen.address).collect();
        for (at, server) in originate.to.iter().enumerate() {
            let addresses = server.addresses.iter().copied();
            if let Some(problem) = loop_problem(addresses, &own, "server") {
                let location = locations.location_in(Section::Originate, index, "to", Some(at));
                mistakes.error(&location, problem);
            }
        }
    }
}

/// Returns a problem if one of the addresses to connect to is a listener's.
fn loop_problem(
    mut addresses: impl Iterator<Item = SocketAddr>,
    listeners: &BTreeSet<SocketAddr>,
    what: &str,
) -> Option<Problem> {
    addresses.find_map(|address| {
        let reaches = |listener: &&SocketAddr| {
            overlap(**listener, address)
                && (listener.ip() == address.ip() || address.ip().is_loopback())
        };
        let listener = listeners.iter().find(reaches)?;
        let problem = Problem::new(format!(
            "the {what} {address} is this program's own listener {listener}"
        ));
        let help = "write the address of the server behind it";
        Some(problem.label("connections would loop").help(help))
    })
}
