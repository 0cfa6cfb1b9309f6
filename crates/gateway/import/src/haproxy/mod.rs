//! haproxy.cfg.
//!
//! Each `bind … ssl` becomes a route, and one more for each backend that is chosen by server name
//! or protocol. So does a bind without `ssl` that chooses by the name in the ClientHello, as a
//! route that passes TLS through. In `mode tcp`, a bind without `ssl` whose servers have it becomes an
//! origination. In `mode http`, HAProxy stays as the backend, without TLS, unless it only forwards
//! everything.

mod address;
mod backends;
mod bind;
mod checks;
mod condition;
mod config;
mod global;
mod limits;
mod plain;
mod rules;
mod server;
mod server_line;
mod store;
mod syntax;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::advice::{
    HAPROXY_SEES_NO_TLS, ONE_LABEL, OTHER_PROTOCOLS, STAYS_WITH_HAPROXY, WITHOUT_ALPN,
    haproxy_stays,
};
use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::origin::{Origin, Origins};
use crate::section::{Fate, Kind, Section};
use crate::stages;
use crate::toml::{quoted, quoted_list};
use crate::value::time;
use address::{BindAddress, of_bind};
use backends::{BackendCase, BackendCases, cases};
use condition::Files;
use config::Config;
use store::Store;
use syntax::{HaproxySection, Line};

pub(super) fn read(text: &str, position: &Position, folder: &Path) -> Result<Draft, ImportError> {
    let mut draft = Draft::default();
    let parts = syntax::parse(text, position, &mut draft.ledger)?;
    let global = parts
        .iter()
        .filter(|part| part.kind == "global")
        .flat_map(|part| part.lines.clone());
    let is_backend = |part: &HaproxySection| matches!(part.kind.as_str(), "backend" | "listen");
    let (mut backends, mut of_same_name) = (HashMap::new(), Origins::default());
    for (at, part) in parts
        .iter()
        .enumerate()
        .filter(|(_, part)| is_backend(part))
    {
        if backends.insert(part.name.clone(), at).is_some() {
            of_same_name.add(part.origin);
        }
    }
    let config = Config {
        global: global.collect(),
        backends,
        files: Files::new(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())),
        store: Store::read(&parts),
        ipv4: address::of_all(&parts),
        parts,
    };
    let is_frontend = |part: &&HaproxySection| matches!(part.kind.as_str(), "frontend" | "listen");
    let frontends: Vec<&HaproxySection> = config.parts.iter().filter(is_frontend).collect();
    for part in &frontends {
        if part.is_disabled() {
            draft.program.left_out(part.origins(), "it is disabled");
        } else if draft.is_full() {
            draft.too_many(part.origins());
        } else {
            frontend(part, &config, &mut draft);
        }
    }
    if draft.is_empty() {
        return Ok(draft);
    }
    for part in frontends {
        let is_converted = || chooses_by_hello(part) || originates(part, &cases(part, &config));
        if !part.is_disabled() && (part.is_http() || !is_converted()) {
            plain::read(part, &config, &mut draft);
        }
    }
    if !of_same_name.is_empty() {
        draft.program.step(of_same_name, SAME_NAME);
    }
    global::read(&config, &mut draft);
    stages::join(&mut draft);
    Ok(draft)
}

const SAME_NAME: &str = "this name is taken, so HAProxy refuses this file: rename one of the backends, and import again";
const ONLY_QUIC: &str = "only QUIC listeners led here";

/// The address of a route, and the port of its clients' connections, if it is one.
struct Door {
    addresses: Vec<String>,
    port: Option<u16>,
}

/// Returns the addresses of a bind; one for each port, if a server needs to know it.
fn doors(line: &Line, by_port: bool, config: &Config) -> Vec<Door> {
    let tcp = of_bind(line, config).filter_map(|(_, address)| match address {
        BindAddress::Tcp(all) => Some(all),
        _ => None,
    });
    let addresses: Vec<String> = tcp.flatten().collect();
    let port = |address: &String| {
        address
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok())
    };
    let mut all: Vec<Door> = Vec::new();
    for address in &addresses {
        let port = port(address);
        match all.last_mut().filter(|last| last.port == port || !by_port) {
            Some(last) => last.addresses.push(address.clone()),
            None => all.push(Door {
                addresses: vec![address.clone()],
                port,
            }),
        }
    }
    match all.is_empty() {
        true => vec![Door {
            addresses,
            port: None,
        }],
        false => all,
    }
}

fn frontend(part: &HaproxySection, config: &Config, draft: &mut Draft) {
    let cases = cases(part, config);
    let passes_through = !part.is_http() && chooses_by_hello(part);
    let by_port = cases
        .all
        .iter()
        .filter_map(|case| case.target)
        .any(server::needs_port);
    let is_quic =
        |line: &Line| of_bind(line, config).all(|(_, one)| matches!(one, BindAddress::Quic));
    if part.all("bind").next().is_some() && part.all("bind").all(is_quic) {
        let others = part.lines.iter().filter(|line| line.word(0) != "bind");
        let from = others.flat_map(Line::origins).chain([part.origin]);
        draft
            .program
            .without_effect(from.collect::<Origins>(), ONLY_QUIC);
    }
    for line in part.all("bind") {
        if draft.is_full() {
            draft.too_many(line.origins().collect::<Origins>());
            continue;
        }
        let has_tls = line.has_word("ssl");
        if is_quic(line) {
            let from: Vec<Origin> = line.origins().collect();
            draft.program.step(from, crate::advice::QUIC);
        } else if has_tls || passes_through {
            for (n, door) in doors(line, by_port, config).iter().enumerate() {
                if draft.is_full() {
                    draft.too_many(line.origin);
                    break;
                }
                routes(part, line, door, n == 0, &cases, config, draft);
            }
        } else if !part.is_http() && originates(part, &cases) {
            for door in doors(line, by_port, config) {
                if draft.is_full() {
                    draft.too_many(line.origin);
                    break;
                }
                origination(part, line, &door, &cases, config, draft);
            }
        }
    }
}

/// Returns whether the backends of a frontend are connected to with TLS, and clients are not, in `mode tcp`.
fn originates(part: &HaproxySection, cases: &BackendCases<'_>) -> bool {
    let backends: Vec<&HaproxySection> = cases.all.iter().filter_map(|case| case.target).collect();
    !backends.is_empty()
        && backends.iter().all(|backend| server::has_tls(backend))
        && !chooses_by_hello(part)
        && !part.is_http()
}

/// Makes the routes of a bind.
fn routes(
    part: &HaproxySection,
    line: &Line,
    door: &Door,
    is_first: bool,
    cases: &BackendCases<'_>,
    config: &Config,
    draft: &mut Draft,
) {
    let has_tls = line.has_word("ssl");
    let title = format!("{} {}, bind {}", part.kind, part.name, line.word(1));
    // The line that leads to a backend belongs to its route.
    let of_cases: Origins = cases
        .all
        .iter()
        .flat_map(|case| case.from.iter().collect::<Vec<_>>())
        .collect();
    let owes = without_other_binds(part, line).filter(|one| !of_cases.has(*one));
    let owes: Vec<Origin> = if is_first { owes.collect() } else { Vec::new() };
    let mut base = Section::new(Kind::Route, title, [line.origin, part.origin], owes);
    bind::read(line, &door.addresses, part, config, &mut base, draft);
    if !has_tls {
        through(part, line, &mut base);
    }
    rules::networks(part, config, &mut base);
    times(part, &mut base, draft);
    // For a backend in `mode http`, HAProxy reads requests even if the frontend does not.
    let reads_requests = |part: &&HaproxySection| has_tls && part.is_http();
    let mut targets = cases.all.iter().filter_map(|case| case.target);
    if (part.is_http() || targets.any(|one| reads_requests(&one))) && does_more(part, cases) {
        return stays_behind(part, line, cases, base, draft);
    }
    let mut taken: Origins = part.all("tcp-request").map(|line| line.origin).collect();
    taken.add(of_cases);
    taken.add(base.carried().collect::<Origins>());
    for (why, from) in &cases.not_ours {
        base.step(from, *why);
        taken.add(from);
    }
    if !cases.by_protocol.is_empty() && !has_tls {
        base.left_out(&cases.by_protocol, WHOLE_LIST);
    }
    if !cases.unreached.is_empty() {
        base.without_effect(&cases.unreached, "an earlier rule is for all clients");
    }
    limits::limits(part, &mut base);
    taken.add(base.carried().collect::<Origins>());
    rules::rest(part, &taken, &mut base);
    if cases.all.is_empty() {
        base.step(part.origin, "it has no backends: add them to `to`");
        draft.add(base.clone());
    }
    let bind = Bind {
        part,
        line,
        config,
        port: door.port,
        by_protocol: cases.all.iter().any(|case| !case.protocols.is_empty()),
    };
    for (n, case) in cases.all.iter().enumerate() {
        let mut section = if n == 0 { base.clone() } else { base.twin() };
        route(&bind, case, &mut section, draft);
        draft.add(section);
    }
}

/// Returns everything that belongs to a section, except its other binds.
fn without_other_binds<'a>(
    part: &'a HaproxySection,
    bind: &'a Line,
) -> impl Iterator<Item = Origin> + 'a {
    let is_other = |line: &&Line| line.word(0) == "bind" && line.origin != bind.origin;
    let lines = part.lines.iter().filter(move |line| !is_other(line));
    [part.origin]
        .into_iter()
        .chain(lines.flat_map(Line::origins))
}

const WHOLE_LIST: &str =
    "converted, but HAProxy compared all protocols that the client offers, in their order";
const NOT_OFFERED: &str = "the bind does not offer all of these protocols (`alpn`), so HAProxy led no client with the \
    others here: remove them from `alpn`, or this route";
const NOT_TLS: &str =
    "connections that do not begin with TLS went to a backend, too: here they are closed";

/// Says what becomes of connections without TLS to a bind that passes TLS through.
fn through(part: &HaproxySection, line: &Line, section: &mut Section) {
    section.also(
        "listen",
        section
            .option("pass_through")
            .map(|one| one.from.clone())
            .unwrap_or_default(),
    );
    let has_tls = part.all("bind").any(|one| one.has_word("ssl"));
    match has_tls {
        // The same rules serve a bind with TLS, so this one may be for plain connections.
        true => section.step(line.origin, format!("{NOT_TLS}; if this bind is for such connections, keep HAProxy for it, and remove this route")),
        false => section.left_out(line.origin, NOT_TLS),
    }
}

/// A bind, and what the routes to all its backends have in common.
struct Bind<'a> {
    part: &'a HaproxySection,
    line: &'a Line,
    config: &'a Config,
    /// The port of clients' connections, if it is one.
    port: Option<u16>,
    /// Whether protocols choose among the backends.
    by_protocol: bool,
}

/// Makes a section the route to the backend of a case.
fn route(bind: &Bind<'_>, case: &BackendCase<'_>, section: &mut Section, draft: &mut Draft) {
    let Bind {
        part,
        line,
        config,
        port,
        by_protocol,
    } = *bind;
    section.owes.extend(case.from.iter());
    if !case.names.is_empty() {
        section.set("server_names", quoted_list(&case.names), &case.from);
        if case.names.iter().any(|name| name.starts_with("*.")) {
            section.left_out(&case.from, ONE_LABEL);
        }
    }
    if !case.protocols.is_empty() {
        let mut from = case.from.clone();
        let offered = section.value("alpn").unwrap_or_default();
        let is_offered = |one: &String| offered.contains(&quoted(one));
        if line.has_word("ssl") && !case.protocols.iter().all(is_offered) {
            section.step(&from, NOT_OFFERED);
        }
        from.add(section.remove("alpn"));
        section.set("alpn", quoted_list(&case.protocols), from);
    }
    match case.target {
        Some(backend) => {
            if backend.origin != part.origin {
                section.owes.extend(backend.origins());
                section.head.add(backend.origin);
            }
            server::read(backend, config, port, section);
            match section.has("to") {
                true => section.also("to", &case.from),
                false => section.head.add(&case.from),
            }
            if backend.origin != part.origin {
                rules::rest_of_backend(backend, config, section);
            }
            times(backend, section, draft);
        }
        None => section.step(
            &case.from,
            "this backend is not defined: add its servers to `to`",
        ),
    }
    if part.is_http() {
        without_http2(line, case.target, section);
    }
    if case.protocols.is_empty() && by_protocol && section.has("alpn") {
        let from = section.remove("alpn");
        section.left_out(from, WITHOUT_ALPN);
    }
    if case.protocols.is_empty() {
        other_protocols(section);
    }
}

/// Makes the origination of a bind.
fn origination(
    part: &HaproxySection,
    line: &Line,
    door: &Door,
    cases: &BackendCases<'_>,
    config: &Config,
    draft: &mut Draft,
) {
    let title = format!("{} {}, bind {}", part.kind, part.name, line.word(1));
    let owes = without_other_binds(part, line);
    let head = [line.origin, part.origin];
    let mut section = Section::new(Kind::Originate, title, head, owes.collect::<Vec<_>>());
    bind::read(line, &door.addresses, part, config, &mut section, draft);
    section.remove("pass_through");
    rules::networks(part, config, &mut section);
    for name in ["allow", "deny", "accept_proxy_from"] {
        let from = section.remove(name);
        if !from.is_empty() {
            section.step(from, crate::advice::CLIENT_NETWORKS_OF_ORIGINATION);
        }
    }
    times(part, &mut section, draft);
    limits::limits(part, &mut section);
    let mut taken: Origins = section.carried().collect();
    taken.add(
        cases
            .all
            .iter()
            .flat_map(|case| case.from.iter().collect::<Vec<_>>())
            .collect::<Origins>(),
    );
    for (why, from) in &cases.not_ours {
        section.step(from, *why);
        taken.add(from);
    }
    rules::rest(part, &taken, &mut section);
    let bind = Bind {
        part,
        line,
        config,
        port: door.port,
        by_protocol: false,
    };
    for case in cases.all.iter().take(1) {
        route(&bind, case, &mut section, draft);
    }
    let others = cases.all.iter().skip(1);
    let from: Origins = (others.filter_map(|case| case.target))
        .flat_map(HaproxySection::origins)
        .collect();
    if cases.all.len() > 1 {
        section.step(
            from,
            "plain connections have no name to choose a server by: make an [[originate]] for each",
        );
    }
    let header = section.remove("proxy_protocol");
    if !header.is_empty() {
        section.step(
            header,
            "an [[originate]] sends no PROXY header: keep HAProxy for this bind",
        );
    }
    for name in [
        "server_names",
        "slow_start",
        "backend_failures",
        "source_addresses",
        "route_handshakes_per_second",
    ] {
        let from = section.remove(name);
        if !from.is_empty() {
            section.left_out(from, "an [[originate]] does not have this");
        }
    }
    draft.add(section);
}

/// Returns whether TLS passes through: a line reads the ClientHello.
fn chooses_by_hello(part: &HaproxySection) -> bool {
    let looks = |word: &String| {
        ["req.ssl_", "req_ssl_"]
            .iter()
            .any(|start| word.starts_with(start) || word.contains(&format!("[{start}")))
    };
    let lines = part.lines.iter().filter(|line| {
        matches!(
            line.word(0),
            "acl" | "use_backend" | "tcp-request" | "use-server"
        )
    });
    lines.flat_map(|line| &line.words).any(looks)
}

/// Returns whether HAProxy processes requests.
fn does_more(part: &HaproxySection, cases: &BackendCases<'_>) -> bool {
    const DOES: [&str; 13] = [
        "http-request",
        "http-response",
        "http-after-response",
        "redirect",
        "compression",
        "cookie",
        "filter",
        "monitor-uri",
        "capture",
        "stats",
        "unique-id-header",
        "http-send-name-header",
        "use-fcgi-app",
    ];
    // A redirect does not affect clients with TLS.
    let has_plain = part.all("bind").any(|line| !line.has_word("ssl"));
    let is_more = |line: &Line| {
        let announces_quic = line
            .words
            .iter()
            .any(|word| word.eq_ignore_ascii_case("alt-svc"));
        if (has_plain && plain::is_redirect(line)) || announces_quic {
            return false;
        }
        match line.word(0) {
            "option" => matches!(line.word(1), "forwardfor" | "forwarded" | "originalto"),
            // `reqdeny`, `rspadd` and such, of HAProxy 1.
            word => DOES.contains(&word) || word.starts_with("req") || word.starts_with("rsp"),
        }
    };
    let parts = cases
        .all
        .iter()
        .filter_map(|case| case.target)
        .chain([part]);
    !cases.not_ours.is_empty() || parts.flat_map(|part| &part.lines).any(is_more)
}

/// HAProxy continues to process requests, as an unencrypted backend.
fn stays_behind(
    part: &HaproxySection,
    line: &Line,
    cases: &BackendCases<'_>,
    mut section: Section,
    draft: &mut Draft,
) {
    let address = draft.address_behind(format!("{} {}", part.kind, part.name));
    section.set_text("to", &address, line.origin);
    section.set_text("proxy_protocol", "v2", line.origin);
    section.step(line.origin, haproxy_stays(&address));
    other_protocols(&mut section);
    let behind: Vec<&HaproxySection> = cases.all.iter().filter_map(|case| case.target).collect();
    let mut lines = behind
        .iter()
        .copied()
        .chain([part])
        .flat_map(|part| &part.lines);
    let asks = |line: &&Line| {
        let words = line.words.iter().skip(1);
        ["ssl_fc", "ssl_c_", "ssl_f_"]
            .iter()
            .any(|name| words.clone().any(|word| word.contains(name)))
    };
    if let Some(line) = lines.find(asks) {
        section.step(line.origin, HAPROXY_SEES_NO_TLS);
    }
    let of_part = part
        .lines
        .iter()
        .filter(|line| !matches!(line.word(0), "bind" | "tcp-request" | "ssl-f-use"));
    let of_backends = behind
        .iter()
        .filter(|one| one.origin != part.origin)
        .flat_map(|one| one.origins());
    let from: Vec<Origin> = of_part.flat_map(Line::origins).chain(of_backends).collect();
    if !from.is_empty() {
        section.say(Fate::Stays, from, STAYS_WITH_HAPROXY);
    }
    draft.add(section);
}

/// Removes HTTP/2 from `alpn`: bytes are passed on unchanged, and HAProxy terminated HTTP/2.
fn without_http2(bind: &Line, backend: Option<&HaproxySection>, section: &mut Section) {
    let speaks_it = |line: &Line| line.words.windows(2).any(|pair| pair == ["proto", "h2"]);
    let knows = backend.is_some_and(|part| part.all("server").all(speaks_it));
    let offers = bind
        .words
        .iter()
        .any(|word| word.split(',').any(|name| name == "h2"));
    if bind.has_word("alpn") && !knows && offers {
        let from = section.remove("alpn");
        section.left_out(
            from,
            "bytes are passed on unchanged: offer h2 only if the backend supports unencrypted HTTP/2",
        );
    }
}

/// A client that has none of the protocols of `alpn` was served without one.
fn other_protocols(section: &mut Section) {
    if let Some(one) = section.option("alpn") {
        let from = one.from.clone();
        section.left_out(from, OTHER_PROTOCOLS);
    }
}

/// Sets the times of a route, and those that apply to the whole program.
fn times(part: &HaproxySection, section: &mut Section, draft: &mut Draft) {
    // Every connection of Dormouse is a tunnel, for which `tunnel` replaces the other two.
    let has_tunnel = part.find(&["timeout", "tunnel"]).is_some();
    let mut last: BTreeMap<&str, (&str, Origin)> = BTreeMap::new();
    for line in &part.lines {
        // The last three are of HAProxy 1.
        let (name, value) = match line.word(0) {
            "timeout" => (line.word(1), line.word(2)),
            "clitimeout" => ("client", line.word(1)),
            "srvtimeout" => ("server", line.word(1)),
            "contimeout" => ("connect", line.word(1)),
            _ => continue,
        };
        if let Some((_, former)) = last.insert(name, (value, line.origin)) {
            section.replaced(former);
        }
    }
    for (name, (value, from)) in last {
        let ms = time(value, 1);
        match name {
            "connect" | "server" if part.kind == "frontend" => {
                section.without_effect(from, "HAProxy has this time only for backends");
            }
            "connect" => section.longest("backend_connect_timeout", ms, from),
            "tunnel" => section.longest("idle_timeout", ms, from),
            "client" | "server" if !has_tunnel => section.longest("idle_timeout", ms, from),
            "client" | "server" => draft
                .program
                .without_effect(from, "`timeout tunnel` is for connections that carry bytes"),
            "client-hs" => draft.longest("handshake_timeout", ms, from),
            // The checks take it.
            "check" => {}
            "client-fin" | "server-fin" | "queue" | "http-request" | "http-keep-alive"
            | "tarpit" => {
                draft.program.left_out(
                    from,
                    "no equivalent: see `idle_timeout`, `total_timeout` and `handshake_timeout`",
                );
            }
            _ => {}
        }
    }
}

/// Lines of `global` and words of binds and servers without effect, and why, for the guide.
#[cfg(test)]
pub(super) fn without_effect() -> Vec<(&'static str, &'static str)> {
    let words = bind::WITHOUT_EFFECT
        .iter()
        .chain(server_line::WITHOUT_EFFECT);
    let words = words.map(|(name, _, why)| (*name, *why));
    global::WITHOUT_EFFECT
        .iter()
        .copied()
        .chain(words)
        .collect()
}
