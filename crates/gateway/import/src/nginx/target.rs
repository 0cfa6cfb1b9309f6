//! Where connections go: `proxy_pass`, with variables and maps of names or protocols to targets.

use super::context::{Server, addresses};
use super::syntax::Directive;
use super::{backend_tls, forward, upstream};
use crate::advice::{COMPUTED_TARGET, NAMES_BY_EXPRESSION, ONE_LABEL};
use crate::cases::{Case, NAMES_MAX, TOO_MANY_NAMES, complete};
use crate::draft::Draft;
use crate::origin::{Origin, Origins};
use crate::section::Section;

/// Maximum nesting of maps and variables.
const DEPTH_MAX: usize = 8;
/// Maximum number of cases of a server.
const CASES_MAX: usize = 900;

/// Where the connections of a case go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// nginx itself processes requests, or there is no target.
    Itself,
    /// What follows `proxy_pass`.
    To(String),
    /// It is computed for each connection.
    Computed,
}

pub(super) type TargetCase = Case<Target>;

/// Returns the targets of a server.
pub(super) fn cases(
    server: &Server<'_>,
    listens: &[&Directive],
    section: &mut Section,
) -> Vec<TargetCase> {
    let whole = |target, from: Origins| TargetCase {
        names: Vec::new(),
        protocols: Vec::new(),
        target,
        from,
    };
    if server.is_http() {
        return vec![match forward::only_forwards(server) {
            Some(pass) => whole(Target::To(pass.word(1).to_owned()), pass.origin.into()),
            None => whole(Target::Itself, Origins::default()),
        }];
    }
    let Some(pass) = server.find("proxy_pass") else {
        return vec![whole(Target::Itself, Origins::default())];
    };
    let mut resolver = Resolver {
        server,
        port: port_of(listens),
        cases: Vec::new(),
    };
    let start = whole(Target::To(pass.word(1).to_owned()), pass.origin.into());
    resolver.resolve(start, 0, section);
    let from: Origins = (resolver.cases.iter())
        .flat_map(|case| case.from.iter())
        .collect();
    let names: usize = (resolver.cases.iter())
        .map(|case| case.names.len() + 1)
        .sum();
    let all = (names <= NAMES_MAX).then(|| complete(grouped(resolver.cases)));
    all.flatten().unwrap_or_else(|| {
        section.step(&from, TOO_MANY_NAMES);
        vec![whole(Target::Computed, from)]
    })
}

/// Returns the port of the addresses, if it is only one.
fn port_of(listens: &[&Directive]) -> Option<String> {
    let all = listens.iter().filter_map(|one| addresses(one.word(1)));
    let mut ports = all.flatten().filter_map(|one| {
        let (_, port) = one.rsplit_once(':')?;
        Some(port.to_owned())
    });
    let first = ports.next()?;
    ports.all(|port| port == first).then_some(first)
}

/// Joins cases that lead to the same target.
fn grouped(cases: Vec<TargetCase>) -> Vec<TargetCase> {
    let mut all: Vec<TargetCase> = Vec::new();
    for case in cases {
        let is_same = |one: &&mut TargetCase| {
            one.target == case.target
                && one.names.is_empty() == case.names.is_empty()
                && (one.protocols == case.protocols
                    || one.names.is_empty()
                        && !one.protocols.is_empty()
                        && !case.protocols.is_empty())
        };
        match all.iter_mut().find(is_same) {
            Some(one) => {
                one.names.extend(case.names);
                let more = case.protocols.into_iter();
                let more: Vec<String> = more.filter(|it| !one.protocols.contains(it)).collect();
                one.protocols.extend(more);
                one.from.add(case.from);
            }
            None => all.push(case),
        }
    }
    all
}

/// Expands variables.
struct Resolver<'a> {
    server: &'a Server<'a>,
    port: Option<String>,
    cases: Vec<TargetCase>,
}

impl Resolver<'_> {
    fn resolve(&mut self, case: TargetCase, depth: usize, section: &mut Section) {
        let Target::To(text) = &case.target else {
            return self.cases.push(case);
        };
        let Some((before, variable, behind)) = variable(text) else {
            return self.cases.push(case);
        };
        let with = |value: &str| Target::To(format!("{before}{value}{behind}"));
        let block = self.server.context.block;
        let is_it = |map: &&Directive| map.word(2).trim_matches(['$', '{', '}']) == variable;
        let map = block.all("map").find(is_it);
        let set = self
            .server
            .own
            .all("set")
            .find(|one| one.word(1).trim_start_matches('$') == variable);
        let is_too_much = depth >= DEPTH_MAX || self.cases.len() >= CASES_MAX;
        match (&self.port, map, set) {
            _ if is_too_much => self.computed(case, section),
            (Some(port), ..) if variable == "server_port" => {
                let target = with(port);
                self.resolve(TargetCase { target, ..case }, depth + 1, section);
            }
            (_, _, Some(set)) => {
                let (target, mut from) = (with(set.word(2)), case.from.clone());
                from.add(set.origin);
                self.resolve(
                    TargetCase {
                        target,
                        from,
                        ..case
                    },
                    depth + 1,
                    section,
                );
            }
            (_, Some(map), _) => {
                for mut entry in of_map(map, &case, section) {
                    if let Target::To(value) = &entry.target {
                        entry.target = with(value);
                    }
                    self.resolve(entry, depth + 1, section);
                }
            }
            _ => self.computed(case, section),
        }
    }

    fn computed(&mut self, case: TargetCase, section: &mut Section) {
        section.step(&case.from, COMPUTED_TARGET);
        self.cases.push(TargetCase {
            target: Target::Computed,
            ..case
        });
    }
}

/// Returns the text before the first variable, its name, and the text behind it.
fn variable(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('$')?;
    if let Some(inner) = rest.strip_prefix('{') {
        let (name, behind) = inner.split_once('}')?;
        return Some((before, name, behind));
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
    Some((before, name, behind))
}

/// What a map chooses by.
enum MapSource {
    Name,
    Protocol,
    Version,
    Other,
}

/// Returns the entries of a map from the client's server name, protocols or version, as cases of `outer`.
fn of_map(map: &Directive, outer: &TargetCase, section: &mut Section) -> Vec<TargetCase> {
    let source = match map.word(1).trim_matches(['$', '{', '}']) {
        "ssl_preread_server_name" | "ssl_server_name" => MapSource::Name,
        "ssl_preread_alpn_protocols" | "ssl_alpn_protocol" => MapSource::Protocol,
        "ssl_preread_protocol" => MapSource::Version,
        _ => MapSource::Other,
    };
    if matches!(source, MapSource::Other) {
        let why = "routes are chosen only by server name and protocol: add backends to `to`";
        let mut from = outer.from.clone();
        from.add(map.origins());
        section.step(from, why);
        let target = Target::Computed;
        return vec![TargetCase {
            target,
            ..outer.clone()
        }];
    }
    let has_wildcards = map.block.iter().any(|line| line.name() == "hostnames");
    let default = map.find("default").map(|line| line.word(1));
    let mut cases: Vec<TargetCase> = Vec::new();
    for line in &map.block {
        if line.name().is_empty() && !matches!(source, MapSource::Version) {
            nameless(line, default, section);
            continue;
        }
        let Some((names, protocols)) = entry(line, &source, has_wildcards, section) else {
            continue;
        };
        let mut case = TargetCase {
            names,
            protocols,
            target: Target::To(line.word(1).to_owned()),
            from: outer.from.clone(),
        };
        case.from.add(line.origin);
        match (outer.names.is_empty(), case.names.is_empty()) {
            (true, _) => {}
            (false, true) => case.names.clone_from(&outer.names),
            (false, false) => section.step(
                &case.from,
                "two maps of names decide: only the inner one does here",
            ),
        }
        if case.protocols.is_empty() {
            case.protocols.clone_from(&outer.protocols);
        }
        cases.push(case);
    }
    cases
}

/// Says what becomes of clients that send no name, or offer no protocol. `default`: where all others go.
fn nameless(line: &Directive, default: Option<&str>, section: &mut Section) {
    match default == Some(line.word(1)) {
        true => section.without_effect(line.origin, "all others go there, too"),
        false => section.step(line.origin, NAMELESS),
    }
}

const NAMELESS: &str = "clients that send no server name, or offer no protocol, went there: here they go where all \
    others go, or are refused: see whether that is right, or keep nginx for them";

/// Returns the names and protocols of a line of a map; neither are all others. `None`: it leads nobody anywhere here,
/// which is said.
fn entry(
    line: &Directive,
    source: &MapSource,
    has_wildcards: bool,
    section: &mut Section,
) -> Option<(Vec<String>, Vec<String>)> {
    let (pattern, from) = (line.name().trim_start_matches('\\'), line.origin);
    let is_parameter = line.word(1).is_empty();
    match (pattern, source) {
        ("hostnames", _) if is_parameter => {
            section.without_effect(from, "wildcards are possible in any route");
        }
        ("volatile", _) if is_parameter => {
            section.without_effect(from, "routes are chosen for each connection");
        }
        ("default", _) => return Some((Vec::new(), Vec::new())),
        ("", MapSource::Version) => section.step(from, WITHOUT_TLS),
        (_, MapSource::Version) => section.step(
            from,
            "routes are chosen only by server name and protocol, not by version",
        ),
        (_, MapSource::Name) if !has_wildcards && pattern.starts_with(['*', '.']) => section
            .left_out(
                from,
                "without `hostnames`, this is no wildcard, so it matches no client",
            ),
        (_, MapSource::Name) if is_expression(pattern) => {
            section.step(from, NAMES_BY_EXPRESSION);
        }
        (_, MapSource::Name) => {
            let names = name(pattern, from, section);
            return (!names.is_empty()).then_some((names, Vec::new()));
        }
        _ => {
            let protocols = protocol(pattern, from, section);
            return (!protocols.is_empty()).then_some((Vec::new(), protocols));
        }
    }
    None
}

const WITHOUT_TLS: &str = "connections that do not begin with TLS went there: here they are \
    refused, so keep nginx for them, or give them an address of their own";

/// Converts a server name: `.example.com` is two.
pub(super) fn name(text: &str, from: Origin, section: &mut Section) -> Vec<String> {
    match text {
        "" | "_" | "\"\"" => Vec::new(),
        _ => match text.strip_prefix('.') {
            Some(name) => {
                section.left_out(from, ONE_LABEL);
                vec![name.to_owned(), format!("*.{name}")]
            }
            None => {
                if text.starts_with("*.") {
                    section.left_out(from, ONE_LABEL);
                }
                vec![text.to_owned()]
            }
        },
    }
}

/// Returns whether the text stands for names that nginx matches and Dormouse cannot.
pub(super) fn is_expression(text: &str) -> bool {
    text.starts_with('~') || text.ends_with(".*") || text.contains('$')
}

/// Converts `h2`, `h2,http/1.1` or `~\bh2\b`.
fn protocol(text: &str, from: Origin, section: &mut Section) -> Vec<String> {
    let plain = text.trim_start_matches('~').replace("\\b", "");
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"/.-_".contains(&b))
    };
    let names: Vec<String> = plain.split(',').map(str::to_owned).collect();
    if !names.iter().all(|name| is_name(name)) {
        section.step(from, "protocols must be listed in `alpn`; until then clients that offer them reach another route");
        return Vec::new();
    }
    if !text.starts_with('~') && text != "acme-tls/1" {
        section.left_out(
            from,
            "converted, but nginx compared all protocols that the client offers, in this order",
        );
    }
    names
}

/// Sets `to`, and TLS to the backends, and the PROXY header, whatever the target is.
pub(super) fn set(
    server: &Server<'_>,
    case: &TargetCase,
    section: &mut Section,
    draft: &mut Draft,
) {
    match &case.target {
        Target::Itself if server.is_http() => {
            return forward::behind(server, section, draft);
        }
        Target::Itself => {
            section.step(
                server.own.origin,
                "this server has no backends: add them to `to`",
            );
        }
        Target::To(text) => to(server, text, &case.from, section),
        Target::Computed => {}
    }
    let target = match &case.target {
        Target::To(text) => text.as_str(),
        _ => "",
    };
    let (scheme, target) = target.split_once("://").unwrap_or(("", target));
    let has_tls = match server.is_http() {
        true => scheme.eq_ignore_ascii_case("https"),
        false => server.is_on("proxy_ssl"),
    };
    backend_tls::convert(server, has_tls, target, section);
    if !server.is_http()
        && let Some(one) = server.find("proxy_protocol")
    {
        match one.is("on") {
            true => section.set_text("proxy_protocol", "v1", one.origin),
            false => section.without_effect(one.origin, "no header is sent by default"),
        }
    }
}

fn to(server: &Server<'_>, text: &str, from: &Origins, section: &mut Section) {
    let (scheme, target) = text.split_once("://").unwrap_or(("", text));
    let port = match (server.is_http(), scheme.eq_ignore_ascii_case("https")) {
        (true, true) => "443",
        (true, false) => "80",
        (false, _) => "",
    };
    section.targets = vec![target.to_owned()];
    match server.context.upstream(target) {
        Some(group) => upstream::convert(group, port, from, section),
        None => {
            let address = upstream::address(target, port);
            section.set_text("to", &address, from);
        }
    }
}
