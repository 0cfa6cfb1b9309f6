//! Two stages of one program: the first passes TLS through to an address of the program itself, where the second
//! terminates it. Dormouse has no connections to itself, so both become one route.

use std::collections::{HashMap, HashSet};

use crate::advice::{CLIENT_NETWORKS, NO_DOOR, NO_TARGET, WITHOUT_ALPN};
use crate::cases::covers;
use crate::draft::Draft;
use crate::origin::Origins;
use crate::section::{Fate, Kind, Remark, Section};
use crate::toml::quoted_list;

const INNER_ADDRESS: &str = "the second stage now has the addresses of the first; nothing else may \
    have connected here: if something did, add the address to `listen`";
const INNER_SOCKET: &str = "the second stage now has the addresses of the first";
const ANSWERS_ALPN: &str = "protocols choose this route, which therefore answers them (ALPN); the \
    second stage did not";
const BETWEEN: &str = "it was about connections between the two stages";
/// What the first stage leaves to the joined route.
const TAKEN_OVER: [&str; 9] = [
    "listen",
    "to",
    "pass_through",
    "alpn",
    "server_names",
    "accept_proxy_from",
    "proxy_protocol",
    "allow",
    "deny",
];
const HEADER_BETWEEN: &str =
    "the first stage sent the second a PROXY header, which is not needed now";
const NO_HEADER: &str = "the second stage expected a PROXY header that the first did not send";
const RULES_OF_SECOND: &str = "these rules saw the first stage as the client";

/// Joins each first stage with the routes that it leads to.
pub(super) fn join(draft: &mut Draft) {
    let sections = draft.take_sections();
    let doors = Doors::of(&sections);
    // The second stages of each section that is a first one.
    let behind: Vec<Vec<usize>> = sections.iter().map(|one| doors.behind(one)).collect();
    let reached: HashSet<usize> = behind.iter().flatten().copied().collect();
    let chosen: HashSet<&str> = (sections.iter())
        .filter(|one| one.has("alpn") && one.has("pass_through"))
        .filter_map(|one| one.value("listen"))
        .collect();
    for (n, section) in sections.iter().enumerate() {
        match behind.get(n).map(Vec::as_slice) {
            Some([]) | None if reached.contains(&n) => {}
            Some([]) | None => draft.add(section.clone()),
            Some(inner) => {
                let inner = inner.iter().filter_map(|at| sections.get(*at));
                let by_protocol = section
                    .value("listen")
                    .is_some_and(|at| chosen.contains(at));
                for route in joined(section, inner, by_protocol) {
                    draft.add(route);
                }
            }
        }
    }
}

/// The sections that terminate TLS, by the addresses where they listen.
struct Doors<'a> {
    exact: HashMap<&'a str, Vec<usize>>,
    /// Those that listen on all addresses, by port.
    any: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Doors<'a> {
    fn of(sections: &'a [Section]) -> Doors<'a> {
        let mut exact: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut any: HashMap<&str, Vec<usize>> = HashMap::new();
        for (n, section) in sections.iter().enumerate() {
            if section.kind != Kind::Route || section.has("pass_through") {
                continue;
            }
            for door in section.doors.iter().map(|door| plain(door)) {
                exact.entry(door).or_default().push(n);
                if let Some(("0.0.0.0" | "[::]" | "" | "*", port)) = door.rsplit_once(':') {
                    any.entry(port).or_default().push(n);
                }
            }
        }
        Doors { exact, any }
    }

    /// Returns the sections to which a target leads: the more exact address gets the connection.
    fn at(&self, target: &str) -> &[usize] {
        let target = plain(target);
        let mut local = ["127.", "[::1]", "localhost"].iter();
        let is_local = local.any(|start| target.starts_with(start));
        let port = target.rsplit_once(':').filter(|_| is_local);
        let found = self.exact.get(target);
        let found = found.or_else(|| port.and_then(|(_, port)| self.any.get(port)));
        found.map_or(&[], Vec::as_slice)
    }

    /// Returns the sections to which all targets of a first stage lead.
    fn behind(&self, outer: &Section) -> Vec<usize> {
        let Some((first, others)) = outer.targets.split_first() else {
            return Vec::new();
        };
        if !outer.has("pass_through") {
            return Vec::new();
        }
        let is_common = |n: &&usize| others.iter().all(|target| self.at(target).contains(*n));
        let mut all: Vec<usize> = self.at(first).iter().filter(is_common).copied().collect();
        all.dedup();
        all
    }
}

/// Returns an address without the word for its family.
fn plain(text: &str) -> &str {
    text.trim_start_matches("unix@").trim_start_matches("unix:")
}

/// Returns the routes that take the place of the first stage. `by_protocol`: another of its routes is for clients with
/// certain protocols, and a route for all others has none.
fn joined<'a>(
    outer: &Section,
    inner: impl Iterator<Item = &'a Section>,
    by_protocol: bool,
) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    for one in inner {
        let Some(names) = names_of_both(outer, one) else {
            continue;
        };
        let mut route = one.clone();
        if all.is_empty() {
            route.remarks.extend(outer.remarks.iter().cloned());
            route.owes.extend(&outer.owes);
        }
        route.title = format!("{}, and {}", outer.title, one.title);
        route.head.add(&outer.head);
        let inner_listen = route.remove("listen");
        take_over(outer, "listen", &mut route);
        if by_protocol && !outer.has("alpn") && route.has("alpn") {
            let mut from = route.remove("alpn");
            from.add(&outer.head);
            route.left_out(from, WITHOUT_ALPN);
        }
        if let Some(option) = outer.option("alpn") {
            if one.value("alpn") != Some(&option.value) {
                route.left_out(&option.from, ANSWERS_ALPN);
            }
            take_over(outer, "alpn", &mut route);
        }
        let mut of_names = route.remove("server_names");
        if let Some(option) = outer.option("server_names") {
            of_names.add(&option.from);
        }
        if !names.is_empty() {
            route.set("server_names", quoted_list(&names), of_names);
        }
        for name in ["to", "pass_through"] {
            if let Some(option) = outer.option(name) {
                route.also("listen", &option.from);
            }
        }
        if !inner_listen.is_empty() {
            route.left_out(inner_listen, INNER_ADDRESS);
        }
        header(outer, one, &mut route);
        networks(outer, one, &mut route);
        for option in &outer.options {
            if !TAKEN_OVER.contains(&option.name) {
                route.without_effect(&option.from, BETWEEN);
            }
        }
        for (name, (ms, from)) in &outer.times {
            match *name {
                "idle_timeout" => route.longest(name, Some(*ms), from),
                _ => route.without_effect(from, BETWEEN),
            }
        }
        // Where the second stage listened no longer matters.
        let door = |one: &Remark| one.why.starts_with(NO_DOOR) || one.why == NO_TARGET;
        for remark in route.remarks.iter_mut().filter(|one| door(one)) {
            (remark.fate, remark.why) = (Fate::WithoutEffect, INNER_SOCKET.to_owned());
        }
        all.push(route);
    }
    all
}

/// Replaces an option by that of the first stage, if it has one.
fn take_over(outer: &Section, name: &'static str, route: &mut Section) {
    if let Some(option) = outer.option(name) {
        let mut from = route.remove(name);
        from.add(&option.from);
        route.set(name, option.value.clone(), from);
    }
}

/// Returns the names of clients that both stages serve; none are all. `None`: there is no such client.
fn names_of_both(outer: &Section, inner: &Section) -> Option<Vec<String>> {
    let names = |section: &Section| -> Vec<String> {
        let value = section.value("server_names").unwrap_or_default();
        value
            .split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let (first, second) = (names(outer), names(inner));
    if first.is_empty() || second.is_empty() {
        return Some([first, second].concat());
    }
    let mut both: Vec<String> = Vec::new();
    for (one, others) in [(&first, &second), (&second, &first)] {
        let is_served = |name: &&String| others.iter().any(|other| covers(other, name));
        for name in one.iter().filter(is_served) {
            if !both.contains(name) {
                both.push(name.clone());
            }
        }
    }
    (!both.is_empty()).then_some(both)
}

/// The PROXY header between the stages, and the one that clients send to the first.
fn header(outer: &Section, inner: &Section, route: &mut Section) {
    let between = route.remove("accept_proxy_from");
    let waits = |one: &Remark| one.why == crate::advice::PROXY_NETWORKS;
    let waiting: Origins = (inner.remarks.iter().filter(|one| waits(one)))
        .flat_map(|one| one.from.iter())
        .collect();
    route
        .remarks
        .retain(|one| !waits(one) || outer.remarks.contains(one));
    let mut expects = between;
    expects.add(waiting);
    take_over(outer, "accept_proxy_from", route);
    let sent = outer.option("proxy_protocol").map(|one| one.from.clone());
    match (sent, expects.is_empty()) {
        (Some(sent), is_unexpected) => {
            route.without_effect(sent, HEADER_BETWEEN);
            if !is_unexpected {
                route.without_effect(expects, HEADER_BETWEEN);
            }
        }
        (None, false) => route.step(expects, NO_HEADER),
        (None, true) => {}
    }
}

/// Rules about networks: those of the second stage saw the client only with a PROXY header.
fn networks(outer: &Section, inner: &Section, route: &mut Section) {
    let knows_client = outer.has("proxy_protocol");
    for name in ["allow", "deny"] {
        let (first, second) = (outer.option(name), inner.option(name));
        match (first, second) {
            (_, Some(second)) if !knows_client || first.is_some() => {
                route.step(
                    &second.from,
                    format!("{RULES_OF_SECOND}: {CLIENT_NETWORKS}"),
                );
            }
            _ => {}
        }
        if first.is_some() {
            take_over(outer, name, route);
        } else if !knows_client {
            route.remove(name);
        }
    }
}
