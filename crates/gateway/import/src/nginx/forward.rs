//! Servers of `http`: those that only forward requests, whose route goes straight to the backend, and those for which
//! nginx stays behind Dormouse.

use super::context::{Context, Server, is_inherited};
use super::syntax::Directive;
use crate::advice::{HEADER_OF_CLIENT, NGINX_SEES_NO_TLS, STAYS_WITH_NGINX, nginx_stays};
use crate::draft::Draft;
use crate::origin::{Origin, Origins};
use crate::section::{Fate, Section};

const BODIES: &str = "nginx refused larger bodies (413) and slow ones; here the backend has to";
const REQUESTS: &str = "limits of requests and their headers are the backend's now";
const BUFFERS: &str = "nginx buffered requests and answers; here bytes are passed on as they come";
const ANSWERS: &str = "nginx gave up on slow answers (504); here see `idle_timeout`";
const OWN: &str = "memory and sockets of nginx";
const TOKENS: &str = "headers of answers are those of the backend";
const KEEPALIVE: &str =
    "nginx closed idle connections of clients; here the backend does, or `idle_timeout`";

/// Directives of a server or location that only forwards, and what nginx did beyond that.
pub(super) const BEYOND: &[(&str, Fate, &str)] = &[
    ("client_max_body_size", Fate::LeftOut, BODIES),
    ("client_body_timeout", Fate::LeftOut, BODIES),
    ("client_body_buffer_size", Fate::WithoutEffect, OWN),
    ("client_header_timeout", Fate::LeftOut, REQUESTS),
    ("client_header_buffer_size", Fate::LeftOut, REQUESTS),
    ("large_client_header_buffers", Fate::LeftOut, REQUESTS),
    ("keepalive_timeout", Fate::LeftOut, KEEPALIVE),
    ("keepalive_requests", Fate::LeftOut, KEEPALIVE),
    ("send_timeout", Fate::LeftOut, ANSWERS),
    ("proxy_read_timeout", Fate::LeftOut, ANSWERS),
    ("proxy_send_timeout", Fate::LeftOut, ANSWERS),
    (
        "proxy_http_version",
        Fate::LeftOut,
        "requests reach the backend in the version in which the client sends them",
    ),
    (
        "proxy_redirect",
        Fate::LeftOut,
        "answers, with their Location header, are passed on unchanged",
    ),
    ("proxy_buffering", Fate::LeftOut, BUFFERS),
    ("proxy_request_buffering", Fate::LeftOut, BUFFERS),
    ("proxy_buffer_size", Fate::WithoutEffect, OWN),
    ("proxy_buffers", Fate::WithoutEffect, OWN),
    ("proxy_busy_buffers_size", Fate::WithoutEffect, OWN),
    ("proxy_max_temp_file_size", Fate::WithoutEffect, OWN),
    ("server_tokens", Fate::LeftOut, TOKENS),
    ("sendfile", Fate::WithoutEffect, OWN),
    ("tcp_nodelay", Fate::WithoutEffect, OWN),
    ("tcp_nopush", Fate::WithoutEffect, OWN),
    ("aio", Fate::WithoutEffect, OWN),
    ("open_file_cache", Fate::WithoutEffect, OWN),
    (
        "default_type",
        Fate::WithoutEffect,
        "types of files, and no file is served here",
    ),
    (
        "types",
        Fate::WithoutEffect,
        "types of files, and no file is served here",
    ),
    (
        "charset",
        Fate::WithoutEffect,
        "types of files, and no file is served here",
    ),
    ("index", Fate::WithoutEffect, "no file is served here"),
    (
        "resolver",
        Fate::WithoutEffect,
        "names are looked up with the system's resolver",
    ),
    (
        "resolver_timeout",
        Fate::WithoutEffect,
        "names are looked up with the system's resolver",
    ),
    (
        "log_format",
        Fate::WithoutEffect,
        "the fields of `connection_log` are always the same",
    ),
    (
        "limit_conn_zone",
        Fate::WithoutEffect,
        "memory for `limit_conn`",
    ),
    (
        "limit_req_zone",
        Fate::WithoutEffect,
        "memory for `limit_req`, which no server here uses",
    ),
    (
        "proxy_cache_path",
        Fate::WithoutEffect,
        "memory for `proxy_cache`, which no server here uses",
    ),
];

/// Finds what nginx did beyond forwarding.
pub(super) fn beyond_of(name: &str) -> Option<(Fate, &'static str)> {
    let found = BEYOND.iter().find(|(known, ..)| *known == name);
    let is_size = name.ends_with("_hash_max_size") || name.ends_with("_hash_bucket_size");
    found
        .map(|(_, fate, why)| (*fate, *why))
        .or(is_size.then_some((Fate::WithoutEffect, OWN)))
}

/// Returns whether a directive around the servers leaves their requests alone. A module's directive may protect the
/// backends, so it must not get lost.
fn leaves_alone(one: &Directive) -> bool {
    let name = one.name();
    beyond_of(name).is_some()
        || matches!(
            name,
            "server"
                | "upstream"
                | "map"
                | "include"
                | "error_log"
                | "real_ip_header"
                | "real_ip_recursive"
                | "proxy_set_header"
        )
        || (is_inherited(name) && name != "limit_conn")
        || one.word(1) == "off"
}

/// Headers that tell the backend about the client. Here the backend gets those that the client sends.
fn is_about_client(one: &Directive) -> bool {
    let name = one.word(1).to_ascii_lowercase();
    matches!(
        name.as_str(),
        "x-real-ip"
            | "x-forwarded-for"
            | "x-forwarded-proto"
            | "x-forwarded-host"
            | "x-forwarded-port"
            | "x-forwarded-server"
            | "x-forwarded-scheme"
            | "x-forwarded-ssl"
            | "x-scheme"
            | "x-client-ip"
            | "x-url-scheme"
            | "x-original-host"
            | "forwarded"
    )
}

fn is_of_connection(one: &Directive) -> bool {
    matches!(
        one.word(1).to_ascii_lowercase().as_str(),
        "host" | "connection" | "upgrade" | "accept-encoding"
    )
}

/// Returns the `proxy_set_header` lines that apply to a location: those of the innermost level that has any.
fn headers<'a>(server: &Server<'a>, location: &'a Directive) -> Vec<&'a Directive> {
    let levels = [location, server.own, server.context.block];
    let all = levels.map(|level| level.all("proxy_set_header").collect::<Vec<_>>());
    all.into_iter()
        .find(|level| !level.is_empty())
        .unwrap_or_default()
}

/// Returns the `proxy_pass` of an `http` server that only forwards requests. If it does anything
/// else, nginx has to stay.
pub(super) fn only_forwards<'a>(server: &Server<'a>) -> Option<&'a Directive> {
    let is_known =
        |one: &Directive| beyond_of(one.name()).is_some() || one.name().starts_with("proxy_ssl");
    let of_server = |one: &Directive| {
        let name = one.name();
        is_known(one)
            || is_inherited(name)
            || matches!(
                name,
                "listen" | "server_name" | "location" | "error_log" | "ssl" | "proxy_set_header"
            )
    };
    let of_location = |one: &Directive| match one.name() {
        "proxy_set_header" => true,
        // Others change the responses.
        "proxy_redirect" => matches!(one.word(1), "default" | "off"),
        "proxy_pass" | "proxy_connect_timeout" => true,
        _ => is_known(one),
    };
    let mut locations = server.own.all("location");
    let location = locations.next().filter(|one| one.word(1) == "/")?;
    let pass = location.find("proxy_pass")?;
    let (_, rest) = pass.word(1).split_once("://")?;
    let has_path = match rest.strip_prefix("unix:") {
        Some(path) => path.contains(':'),
        None => rest.contains('/'),
    };
    let simple = locations.next().is_none()
        && !has_path
        && !rest.contains('$')
        && server.own.block.iter().all(of_server)
        && location.block.iter().all(of_location)
        && headers(server, location)
            .iter()
            .all(|one| is_about_client(one) || is_of_connection(one))
        && *(server.context.leaves_alone)
            .get_or_init(|| server.context.block.block.iter().all(leaves_alone));
    simple.then_some(pass)
}

/// Says what nginx did beyond forwarding.
pub(super) fn beyond(server: &Server<'_>, section: &mut Section) {
    let Some(location) = server.own.find("location") else {
        return;
    };
    let used = headers(server, location);
    for one in &used {
        if is_about_client(one) {
            section.step(one.origin, HEADER_OF_CLIENT);
        } else if !one.word(1).eq_ignore_ascii_case("host") {
            section.left_out(one.origin, "headers are passed on unchanged");
        }
    }
    let of_server = server
        .own
        .block
        .iter()
        .filter(|one| one.name() != "location");
    for one in of_server.chain(&location.block) {
        if one.name() == "proxy_set_header" && !used.iter().any(|it| it.origin == one.origin) {
            section.without_effect(one.origin, "the location has its own headers");
        } else if let Some((fate, why)) = beyond_of(one.name()) {
            section.say(fate, one.origin, why);
        } else if one.name() == "set_real_ip_from" && !section.has("accept_proxy_from") {
            section.left_out(
                one.origin,
                "the client's address is that of the connection, whatever a header says",
            );
        }
    }
    let pass: Origins = location
        .find("proxy_pass")
        .map(|one| one.origin)
        .into_iter()
        .collect();
    section.left_out(pass, FORWARDS);
}

const FORWARDS: &str = "converted as a plain forward. Beyond that, nginx parsed each request: it \
    refused malformed ones (400) and bodies above `client_max_body_size` (1 MiB unless set), spoke \
    HTTP/1.0 or 1.1 to the backend, in connections that several clients shared, buffered, and \
    answered 502 or 504 itself. Here the backend gets what the client sends";

/// Says that nginx continues to process the requests of this server.
pub(super) fn stays(server: &Server<'_>, section: &mut Section) {
    let is_of_requests = |one: &&Directive| {
        let name = one.name();
        let of_connection = name.starts_with("ssl_")
            || (is_inherited(name)
                && !matches!(name, "proxy_pass" | "access_log" | "proxy_connect_timeout"))
            || matches!(name, "listen" | "server_name" | "ssl");
        !of_connection || name.starts_with("proxy_")
    };
    let all = server.own.block.iter().filter(is_of_requests);
    let from: Vec<Origin> = all.flat_map(Directive::origins).collect();
    if !from.is_empty() {
        section.say(Fate::Stays, from, STAYS_WITH_NGINX);
    }
}

/// Makes nginx the backend, without encryption, to continue to process requests.
pub(super) fn behind(server: &Server<'_>, section: &mut Section, draft: &mut Draft) {
    // A client chooses among the servers of one address by the Host header, so servers that verify
    // clients differently need different addresses.
    // The IPv4 and the IPv6 listener of one port count as one.
    let listen = section.value("listen").unwrap_or_default();
    let listen = listen.replace("0.0.0.0:", ":").replace("[::]:", ":");
    let mut part: Vec<String> = (listen.trim_matches(['[', ']']).split(", "))
        .map(str::to_owned)
        .collect();
    part.sort();
    part.dedup();
    let verification = (section.options.iter()).filter(|one| one.name.starts_with("client_"));
    part.extend(verification.map(|one| format!("{} {}", one.name, one.value)));
    let address = draft.address_behind(part.join(" "));
    let head = server.own.origin;
    section.set_text("to", &address, head);
    section.set_text("proxy_protocol", "v1", head);
    section.step(head, nginx_stays(&address));
    // A map or header of all servers uses them, too.
    let around = server.context.block.block.iter();
    let mut around = around.filter(|one| !matches!(one.name(), "server" | "log_format"));
    let of_all = || around.find_map(|one| of_tls(std::slice::from_ref(one)));
    if let Some(one) = of_tls(&server.own.block).or_else(of_all) {
        section.step(one.origin, NGINX_SEES_NO_TLS);
    }
}

/// Returns the first directive that uses a TLS variable.
fn of_tls(block: &[Directive]) -> Option<&Directive> {
    const KNOWN: [&str; 6] = [
        "$scheme", "${scheme", "$https", "${https", "$ssl_", "${ssl_",
    ];
    block.iter().find_map(|one| {
        let is_it = |word: &str| {
            let word = word.to_ascii_lowercase();
            KNOWN.iter().any(|name| word.contains(name))
        };
        if one.values().any(is_it) {
            return Some(one);
        }
        of_tls(&one.block)
    })
}

/// Says what becomes of the directives around the servers of `http`.
pub(super) fn around(context: &Context<'_>, draft: &mut Draft) {
    let nginx_stays = draft.has_step(crate::advice::NGINX_STAYS);
    let (carried, claimed) = (draft.carried(), draft.claimed());
    let around = context.block.block.iter();
    for one in around.filter(|one| one.name() != "server") {
        // What nginx continues to do, it does for all servers; its TLS is that of Dormouse now.
        let stays = nginx_stays && !one.name().starts_with("ssl_");
        let taken = if stays { &carried } else { &claimed };
        let is_left = |one: &Origin| !taken.contains(one);
        let from: Origins = one.inner_origins().into_iter().filter(is_left).collect();
        if from.is_empty() {
            continue;
        }
        let from = match stays {
            true => one.origins().into_iter().filter(is_left).collect(),
            false => from,
        };
        let (fate, why) = match one.name() {
            name if name.starts_with("ssl_") => (
                Fate::WithoutEffect,
                "each server has its own, or does not use TLS",
            ),
            _ if nginx_stays => (Fate::Stays, STAYS_WITH_NGINX),
            name if name.starts_with("proxy_ssl") => {
                (Fate::WithoutEffect, "there is no TLS to the backends")
            }
            "upstream" | "map" => (Fate::WithoutEffect, "no converted server uses it"),
            "proxy_set_header" => (Fate::WithoutEffect, "each location has its own headers"),
            "error_log" => (Fate::LeftOut, crate::advice::LOG),
            "access_log"
            | "allow"
            | "deny"
            | "limit_conn"
            | "set_real_ip_from"
            | "http2"
            | "proxy_connect_timeout" => (Fate::WithoutEffect, "each server has its own"),
            "real_ip_header" | "real_ip_recursive" => (
                Fate::WithoutEffect,
                "the PROXY header has the client's address",
            ),
            _ if one.word(1) == "off" => (Fate::WithoutEffect, "it was off"),
            name => match beyond_of(name) {
                Some(found) => found,
                None => continue,
            },
        };
        draft.program.say(fate, from, why);
    }
}
