//! nginx.conf and what it includes.
//!
//! Servers of `stream` with `listen … ssl` become routes, and those that choose by the name in the
//! ClientHello (`ssl_preread`) become routes that pass TLS through. Of `http` only the TLS is
//! converted: if a server only forwards everything, the route has the same backends; otherwise
//! nginx stays as the backend, without TLS, to process requests.

mod context;
mod host_header;
mod options;
mod plain;
mod syntax;
mod target;

use std::path::Path;

use crate::advice::{HTTP2, NAMES_BY_EXPRESSION, PROXY_NETWORKS, REFUSED_NAMES};
use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::section::Section;
use crate::toml::{list, quoted, quoted_list};
use crate::value::time;
use context::{Context, address, datagrams};
use syntax::Directive;
use target::TargetCase;

pub(super) fn read(text: &str, position: &Position, file: &Path) -> Result<Draft, ImportError> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let (whole, missing) = syntax::parse(text, position, &file)?;
    let mut draft = Draft::default();
    for (position, what) in &missing {
        draft.leave_out(position, what, "this file does not exist");
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    for block in &whole.block {
        if matches!(block.name(), "stream" | "http") {
            let context = Context::new(block, folder);
            let before = draft.sections.len();
            for (number, server) in block.all("server").enumerate() {
                read_server(&context, number, server, &mut draft);
            }
            if context.is_http {
                host_header::of_shared_backends(
                    draft.sections.get_mut(before..).unwrap_or_default(),
                );
            }
            if !draft.is_empty() {
                options::of_context(&context, &mut draft);
            }
        }
    }
    if !draft.is_empty() {
        for block in &whole.block {
            if matches!(block.name(), "stream" | "http") {
                plain::read(&Context::new(block, folder), &mut draft);
            }
        }
    }
    if !draft.is_empty() {
        options::of_program(&whole, &mut draft);
    }
    Ok(draft)
}

/// Converts a server. It may become several routes: for the addresses where it is the default
/// server, for those where it is not, and for each backend that a name leads to.
fn read_server(context: &Context<'_>, number: usize, server: &Directive, draft: &mut Draft) {
    let old_switch = context.is_on(server, "ssl");
    let is_preread = !context.is_http && context.is_on(server, "ssl_preread");
    let speaks_tls = |listen: &&Directive| context.has_tls(listen) || old_switch;
    let (ours, plain): (Vec<&Directive>, Vec<&Directive>) = server
        .all("listen")
        .filter(|one| datagrams(one).is_none())
        .partition(speaks_tls);
    for (listens, passes_through) in [(ours, false), (plain, true)] {
        if passes_through && !is_preread {
            continue;
        }
        let is_default = |listen: &&Directive| context.is_default(number, listen);
        let (default, others): (Vec<&Directive>, Vec<&Directive>) =
            listens.into_iter().partition(is_default);
        for (listens, is_default) in [(default, true), (others, false)] {
            if !listens.is_empty() {
                routes(context, server, &listens, is_default, passes_through, draft);
            }
        }
    }
}

fn routes(
    context: &Context<'_>,
    server: &Directive,
    listens: &[&Directive],
    is_default: bool,
    passes_through: bool,
    draft: &mut Draft,
) {
    let names = server.names();
    let title = format!("{} server {}", context.block.name(), names.join(" "));
    if context.is_on(server, "ssl_reject_handshake") {
        if !is_default && context.serves_others(listens) {
            let what = format!("{title}: {REFUSED_NAMES}");
            return draft.add_to_do(&server.position, &what);
        }
        let why = "clients that ask for an unknown name are refused anyway";
        draft.leave_out(&server.position, &title, why);
        return;
    }
    let mut base = Section::new(false, title.trim_end());
    listen(context, server, listens, &mut base, draft);
    if !is_default && !names_of(server, &names, &mut base) {
        if names.iter().any(|name| target::is_expression(name)) {
            let what = format!("{}: {NAMES_BY_EXPRESSION}", base.title);
            draft.add_to_do(&server.position, &what);
            return;
        }
        let why =
            "no client reaches this server: another server has its address, and it has no name";
        draft.leave_out(&server.position, &base.title, why);
        return;
    }
    if passes_through {
        base.set("pass_through", "true");
    } else {
        options::show(context, server, &mut base);
        options::crypto(context, server, &mut base, draft);
        options::clients(context, server, &mut base);
        options::half_close(context, server, &mut base);
    }
    options::networks(context, server, &mut base);
    options::times(context, server, draft);
    let cases = target::cases(context, server, &mut base);
    // What stays with nginx needs no remark.
    let stays = context.is_http && cases.iter().all(|case| case.target.is_empty());
    if !stays {
        options::left_out(context, server, passes_through, &mut base, draft);
        options::log(context, server, draft);
        host_header::of_server(context, server, listens, &mut base);
    }
    for (n, case) in cases.into_iter().enumerate() {
        let TargetCase {
            names,
            protocols,
            target,
            position,
        } = case;
        let mut section = if n == 0 {
            base.clone()
        } else {
            base.without_remarks()
        };
        if !names.is_empty() {
            section.set("server_names", quoted_list(&names));
        }
        if !protocols.is_empty() {
            section.set("alpn", quoted_list(&protocols));
        }
        target::set(context, server, &target, &position, &mut section, draft);
        if names.is_empty() && is_default {
            draft
                .sections
                .extend(exact_names(context, server, listens, &section));
        }
        draft.sections.push(section);
    }
}

/// Returns a route for those names of a default server that another server's wildcard would take:
/// in nginx, an exact name takes precedence.
fn exact_names(
    context: &Context<'_>,
    server: &Directive,
    listens: &[&Directive],
    section: &Section,
) -> Option<Section> {
    let names = context.under_wildcards(server, listens);
    let mut route = section.without_remarks();
    route.set("server_names", quoted_list(&names));
    (!names.is_empty()).then_some(route)
}

/// Sets the server names. Returns `false` if there are none, so that no client would match.
fn names_of(server: &Directive, names: &[&str], section: &mut Section) -> bool {
    let position = server
        .find("server_name")
        .map_or(&server.position, |one| &one.position);
    let mut ours = Vec::new();
    for name in names {
        ours.extend(target::name(name, position, section));
    }
    section.set("server_names", quoted_list(&ours));
    !ours.is_empty()
}

/// Converts addresses and their parameters.
fn listen(
    context: &Context<'_>,
    server: &Directive,
    listens: &[&Directive],
    section: &mut Section,
    draft: &mut Draft,
) {
    let mut addresses = Vec::new();
    for one in listens {
        match address(one.word(1)) {
            Some(address) if one.has_word("ipv6only=off") && address.starts_with("[::]:") => {
                addresses.push(quoted(&address.replace("[::]:", ":")));
            }
            Some(address) => addresses.push(quoted(&address)),
            None => section.add_to_do(
                &one.position,
                "Dormouse listens on TCP addresses only: set one in `listen`",
            ),
        }
        for word in one.values().skip(1) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "backlog" => draft.number("backlog", value, &one.position, &one.shown()),
                "so_keepalive" => keepalive(value, draft),
                "http2" => section.leave_out(&one.position, word, HTTP2),
                "fastopen" | "setfib" | "accept_filter" => {
                    section.leave_out(&one.position, word, "no equivalent")
                }
                "rcvbuf" | "sndbuf" => section.leave_out(
                    &one.position,
                    word,
                    "use `receive_buffer` and `socket_buffer`",
                ),
                _ => {}
            }
        }
    }
    section.set("listen", list(&addresses));
    // Since nginx 1.25.1, a directive of its own.
    if let Some(one) = context.find(server, "http2").filter(|one| one.is("on")) {
        section.leave_out(&one.position, &one.shown(), HTTP2);
    }
    if listens.iter().any(|one| context.has_proxy_protocol(one)) {
        let trusted: Vec<&str> = context
            .all(server, "set_real_ip_from")
            .iter()
            .map(|one| one.word(1))
            .filter(|network| *network != "unix:")
            .collect();
        if trusted.is_empty() {
            section.add_to_do(&listens[0].position, PROXY_NETWORKS);
        } else {
            section.set("accept_proxy_from", quoted_list(&trusted));
        }
    }
}

/// Converts `so_keepalive`: `on`, or `30m::10`.
fn keepalive(value: &str, draft: &mut Draft) {
    let mut parts = value.split(':');
    for name in ["keepalive_idle", "keepalive_interval"] {
        let seconds = parts
            .next()
            .and_then(|part| time(part, 1000))
            .map(|ms| ms / 1000);
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
            draft.set_text(name, &format!("{seconds}s"));
        }
    }
    if let Some(count) = parts.next().and_then(|part| part.parse::<u32>().ok()) {
        draft.set("keepalive_count", count.to_string());
    }
}
