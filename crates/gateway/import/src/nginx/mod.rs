//! nginx.conf and what it includes.
//!
//! Servers of `stream` with `listen … ssl` become routes, and those that choose by the name in the
//! ClientHello (`ssl_preread`) become routes that pass TLS through; those that only connect with TLS
//! (`proxy_ssl`) become originations. Of `http` only the TLS is converted: if a server only forwards
//! everything, the route has the same backends; otherwise nginx stays as the backend, without TLS, to
//! process requests.

mod backend_tls;
mod context;
mod forward;
mod host_header;
mod listen;
mod networks;
mod options;
mod originate;
mod plain;
mod syntax;
mod target;
mod upstream;

use std::path::Path;

use crate::advice::{NAMES_BY_EXPRESSION, REFUSED_NAMES};
use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::origin::Origins;
use crate::section::{Fate, Kind, Section};
use crate::stages;
use crate::toml::quoted_list;
use context::{Context, Server, datagrams};
use syntax::{Directive, Whole};
use target::{Target, TargetCase};

pub(super) fn read(text: &str, position: &Position, file: &Path) -> Result<Draft, ImportError> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let mut draft = Draft::default();
    let whole = syntax::parse(text, position, &file, &mut draft.ledger)?;
    is_whole(&whole, position, &draft)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let blocks = whole.block.iter();
    let contexts: Vec<Context<'_>> = blocks
        .filter(|block| matches!(block.name(), "stream" | "http"))
        .map(|block| Context::new(block, folder))
        .collect();
    for context in &contexts {
        let before = draft.sections.len();
        for server in context.servers() {
            match draft.is_full() {
                false => read_server(&server, &mut draft),
                true => draft.too_many(server.own.origins()),
            }
        }
        if context.is_http {
            host_header::of_shared_backends(draft.sections.get_mut(before..).unwrap_or_default());
        }
    }
    if draft.is_empty() && !options::has_other_tls(&whole) {
        return Ok(draft);
    }
    for context in &contexts {
        plain::read(context, &mut draft);
    }
    for context in &contexts {
        options::of_context(context, &mut draft);
    }
    options::of_program(&whole, &mut draft);
    for (origin, fate, why) in whole.includes {
        draft.program.say(fate, origin, why);
    }
    stages::join(&mut draft);
    Ok(draft)
}

/// Refuses a part of a configuration, and what `nginx -T` prints: nginx reads neither, and `import` would leave out servers.
fn is_whole(whole: &Whole, position: &Position, draft: &Draft) -> Result<(), ImportError> {
    let of_http = |one: &&Directive| matches!(one.name(), "server" | "upstream" | "location");
    let Some(outside) = whole.block.iter().find(of_http) else {
        return Ok(());
    };
    let at = draft.ledger.position(outside.origin).unwrap_or(position);
    let what = format!("`{}` is outside of `http` and `stream`", outside.name());
    let help = "import the file that nginx itself reads, such as /etc/nginx/nginx.conf: its includes are followed, \
                and a file that it includes, or the output of `nginx -T`, is not enough";
    Err(ImportError::new(at, at.line, what, help))
}

/// Converts a server. It may become several routes: for the addresses where it is the default
/// server, for those where it is not, for those with a PROXY header, and for each backend that a name leads to.
fn read_server(server: &Server<'_>, draft: &mut Draft) {
    let is_preread = !server.is_http() && server.is_on("ssl_preread");
    let speaks_tls =
        |listen: &&Directive| !server.context.tls(listen).is_empty() || server.is_on("ssl");
    let (ours, plain): (Vec<&Directive>, Vec<&Directive>) = server
        .own
        .all("listen")
        .filter(|one| datagrams(one).is_none())
        .partition(speaks_tls);
    for (listens, passes_through) in [(ours, false), (plain, true)] {
        if passes_through && !is_preread {
            if originate::is_one(server) && !listens.is_empty() {
                originate::convert(server, &listens, draft);
            }
            continue;
        }
        // A route reads a PROXY header on all its addresses, or on none.
        let kind = |listen: &Directive| {
            let reads_header = !server.context.proxy_protocol(listen).is_empty();
            (server.is_default(listen), reads_header)
        };
        for of_kind in [(true, false), (true, true), (false, false), (false, true)] {
            let listens = listens.iter().copied();
            let listens: Vec<&Directive> = listens.filter(|one| kind(one) == of_kind).collect();
            if !listens.is_empty() {
                routes(server, &listens, of_kind.0, passes_through, draft);
            }
        }
    }
}

fn routes(
    server: &Server<'_>,
    listens: &[&Directive],
    is_default: bool,
    passes_through: bool,
    draft: &mut Draft,
) {
    if !passes_through && server.is_on("ssl_reject_handshake") {
        return refused(server, listens, is_default, draft);
    }
    let owes = server.owes(listens);
    let mut base = Section::new(Kind::Route, server.title(), server.own.origin, owes);
    listen::convert(server, listens, &mut base, draft);
    if !is_default && !names_of(server, &mut base) {
        let is_for_no_name = server.own.names().iter().any(|(name, _)| name.is_empty());
        let (fate, why) = match server.is_http() && is_for_no_name {
            true => (
                Fate::ToDo,
                "requests without a `Host` header reached this server: let the backends refuse them",
            ),
            false => (
                Fate::LeftOut,
                "no client reaches this server: another server has its address, and it has no name",
            ),
        };
        return draft.program.say(fate, server.owes(listens), why);
    }
    if is_default {
        of_default(server, &mut base);
    }
    if passes_through {
        base.set(
            "pass_through",
            "true",
            context::from(server.find("ssl_preread")),
        );
    } else {
        options::show(server, &mut base);
        options::crypto(server, &mut base, draft);
        options::clients(server, &mut base);
        options::half_close(server, &mut base);
        if server.is_http() {
            // nginx refuses clients that offer only others, as Dormouse does.
            base.set("alpn", quoted_list(&["http/1.1"]), Origins::default());
        }
    }
    networks::convert(server, &mut base);
    options::times(server, &mut base, draft);
    let cases = target::cases(server, listens, &mut base);
    let stays = server.is_http()
        && cases
            .iter()
            .all(|case| matches!(case.target, Target::Itself));
    match (stays, server.is_http()) {
        (true, _) => forward::stays(server, &mut base),
        (false, true) => {
            forward::beyond(server, &mut base);
            options::log(server, draft);
            host_header::of_server(server, listens, &mut base);
        }
        (false, false) => options::log(server, draft),
    }
    options::rest(server, passes_through, &mut base, draft);
    for (n, case) in cases.iter().enumerate() {
        let mut section = if n == 0 { base.clone() } else { base.twin() };
        case_of(server, case, &mut section, draft);
        if case.names.is_empty() && is_default {
            exact_names(server, listens, &section)
                .into_iter()
                .for_each(|one| draft.add(one));
        }
        draft.add(section);
    }
}

/// Makes a section of this server that of one of its targets.
fn case_of(server: &Server<'_>, case: &TargetCase, section: &mut Section, draft: &mut Draft) {
    if !case.names.is_empty() {
        section.set("server_names", quoted_list(&case.names), &case.from);
    }
    if !case.protocols.is_empty() {
        section.set("alpn", quoted_list(&case.protocols), &case.from);
    }
    target::set(server, case, section, draft);
}

/// A server that refuses the handshakes of clients that ask for its names.
fn refused(server: &Server<'_>, listens: &[&Directive], is_default: bool, draft: &mut Draft) {
    let all = server.owes(listens);
    if !is_default && server.serves_others(listens) {
        return draft
            .program
            .step(all, format!("{}: {REFUSED_NAMES}", server.title()));
    }
    // Others may have the address, too, so its words count.
    let mut address = Section::new(Kind::Route, "", Origins::default(), []);
    listen::convert(server, listens, &mut address, draft);
    let mut from: Origins = address.carried().collect();
    // No request gets this far.
    let is_known =
        |one: &&Directive| OF_REQUESTS.contains(&one.name()) || one.name().starts_with("ssl_");
    let own = server.own.block.iter().filter(is_known);
    from.add(own.flat_map(Directive::origins).collect::<Origins>());
    from.add(server.own.origin);
    let why = "clients that ask for an unknown name are refused anyway";
    draft.program.left_out(from, why);
}

/// Directives of a server that refuses all handshakes, which do nothing there.
const OF_REQUESTS: [&str; 9] = [
    "access_log",
    "add_header",
    "error_log",
    "http2",
    "index",
    "location",
    "return",
    "root",
    "server_name",
];

/// Returns a route for those names of a default server that another server's wildcard would take:
/// in nginx, an exact name takes precedence.
fn exact_names(server: &Server<'_>, listens: &[&Directive], section: &Section) -> Option<Section> {
    let names = server.under_wildcards(listens);
    let from: Origins = server
        .own
        .names()
        .into_iter()
        .map(|(_, from)| from)
        .collect();
    let mut route = section.twin();
    route.set("server_names", quoted_list(&names), from);
    (!names.is_empty()).then_some(route)
}

/// Says why the names of a default server need not be listed.
fn of_default(server: &Server<'_>, section: &mut Section) {
    for (name, from) in server.own.names() {
        if target::is_expression(name) {
            section.without_effect(
                from,
                "all names without a server of their own reach this one",
            );
            continue;
        }
        section.without_effect(
            from,
            "it is the default server, for all names without a server of their own",
        );
    }
}

/// Sets the server names. Returns `false` if there are none, so that no client would match.
fn names_of(server: &Server<'_>, section: &mut Section) -> bool {
    let (mut ours, mut from) = (Vec::new(), Origins::default());
    let mut patterns = (Vec::new(), Origins::default());
    for (name, origin) in server.own.names() {
        if target::is_expression(name) {
            patterns.0.push(name.to_owned());
            patterns.1.add(origin);
            continue;
        }
        let found = target::name(name, origin, section);
        match found.is_empty() {
            true => section.without_effect(origin, "it is the name of no client"),
            false => from.add(origin),
        }
        ours.extend(found);
    }
    if !patterns.0.is_empty() {
        section.step(&patterns.1, NAMES_BY_EXPRESSION);
    }
    // Without any other name, the expression shows where names have to be: it is no valid name, so the result does not
    // run before.
    let (names, from) = match ours.is_empty() {
        true => patterns,
        false => (ours, from),
    };
    section.set("server_names", quoted_list(&names), from);
    !names.is_empty()
}

/// Directives without effect, and why, for the guide.
#[cfg(test)]
pub(super) fn without_effect() -> Vec<(&'static str, &'static str)> {
    let beyond = forward::BEYOND.iter();
    let beyond = beyond.filter(|(_, fate, _)| *fate == crate::section::Fate::WithoutEffect);
    let beyond = beyond.map(|(name, _, why)| (*name, *why));
    options::WITHOUT_EFFECT
        .iter()
        .copied()
        .chain(beyond)
        .collect()
}
