//! Servers without TLS over TCP: those that only redirect clients to https, and all others, which are no
//! longer served when nginx stops.

use std::collections::HashSet;

use super::context::{Context, Server, addresses as of_listen, datagrams};
use super::originate;
use super::syntax::Directive;
use crate::advice::{
    ACME_WAS_ANSWERED, NGINX_STAYS, QUIC, REDIRECTS_BESIDE_OTHERS, REDIRECTS_ELSEWHERE,
    REDIRECTS_ON_SOCKET, REDIRECTS_OTHER_NAMES,
};
use crate::draft::{Draft, Redirect};
use crate::origin::Origin;
use crate::section::Fate;

const LEFT_TO_NGINX: &str = "is left to nginx, which stays behind Dormouse";
const PLAIN: &str = "it does not use TLS: keep nginx for it, or this address will not be served";
const UDP: &str = "UDP is not supported: keep nginx for it, or this address will not be served";

const NO_HEADER: &str =
    "addresses in `redirect` read no PROXY header: let the proxy send none there";
/// Parameters of a `listen` that are about its socket.
const OF_SOCKETS: [&str; 13] = [
    "accept_filter",
    "backlog",
    "bind",
    "default",
    "default_server",
    "deferred",
    "fastopen",
    "http2",
    "ipv6only",
    "rcvbuf",
    "reuseport",
    "sndbuf",
    "so_keepalive",
];

/// A server that redirects clients.
struct Found<'a> {
    line: &'a Directive,
    redirect: Redirect,
}

/// An address without TLS, with its `listen` line if there is one.
struct PlainAddress<'a> {
    text: String,
    listen: Option<&'a Directive>,
}

/// Reads all servers of the context that have an address without TLS.
pub(super) fn read(context: &Context<'_>, draft: &mut Draft) {
    let nginx_stays = draft.has_step(NGINX_STAYS);
    report_datagrams(context, nginx_stays, draft);
    let plain: Vec<(Server<'_>, Vec<PlainAddress<'_>>)> = (context.servers())
        .map(|server| {
            let addresses = addresses(&server);
            (server, addresses)
        })
        .filter(|(_, addresses)| !addresses.is_empty())
        .collect();
    // Only one of nginx and Dormouse can have an address.
    let of_others: HashSet<&str> = (plain.iter())
        .filter(|(server, _)| redirect(server.own).is_none())
        .flat_map(|(_, addresses)| addresses.iter().map(|one| &*one.text))
        .collect();
    // Those of a server that also has TLS have been converted.
    let carried = draft.carried();
    for (server, addresses) in &plain {
        let whole = server
            .own
            .origins()
            .into_iter()
            .filter(|one| !carried.contains(one));
        let whole: Vec<Origin> = whole.collect();
        let title = title(server, addresses);
        if nginx_stays {
            draft
                .program
                .say(Fate::Stays, whole, format!("{title} {LEFT_TO_NGINX}"));
            continue;
        }
        let found = if context.is_http {
            redirect(server.own)
        } else {
            None
        };
        let tcp: Vec<String> = addresses
            .iter()
            .filter(|one| !is_socket(one))
            .map(|one| one.text.clone())
            .collect();
        let is_shared = tcp.iter().any(|address| of_others.contains(&**address));
        match &found {
            Some(found) if !is_shared => {
                let sockets = addresses.iter().filter(|one| is_socket(one));
                let sockets: Vec<Origin> =
                    sockets.filter_map(|one| Some(one.listen?.origin)).collect();
                if tcp.is_empty() {
                    draft
                        .program
                        .step(whole, format!("{title}: {REDIRECTS_ON_SOCKET}"));
                } else if !sockets.is_empty() {
                    draft.program.step(sockets, REDIRECTS_ON_SOCKET);
                }
                if !tcp.is_empty() {
                    redirects(server, addresses, &tcp, found, &carried, draft);
                }
            }
            Some(_) => draft
                .program
                .step(whole, format!("{title}: {REDIRECTS_BESIDE_OTHERS}")),
            None if server.own.find("return").is_some() => {
                draft
                    .program
                    .step(whole, format!("{title}: {REDIRECTS_ELSEWHERE}"));
            }
            None => draft.program.step(whole, format!("{title}: {PLAIN}")),
        }
    }
}

/// Converts a server that redirects, and says what else it did.
fn redirects(
    server: &Server<'_>,
    addresses: &[PlainAddress<'_>],
    tcp: &[String],
    found: &Found<'_>,
    carried: &HashSet<Origin>,
    draft: &mut Draft,
) {
    let listens = addresses.iter().filter_map(|one| one.listen);
    let mut from: Vec<Origin> = Vec::new();
    for listen in listens {
        from.push(listen.origin);
        for (word, origin) in listen.parameters() {
            let name = word.split('=').next().unwrap_or(word);
            match name {
                "proxy_protocol" => draft.program.step(origin, NO_HEADER),
                _ if OF_SOCKETS.contains(&name) => from.push(origin),
                _ => {}
            }
        }
    }
    from.push(found.line.origin);
    let mut taken: HashSet<Origin> = from.iter().copied().collect();
    draft.redirect(tcp, &found.redirect, from);
    if let Some(one) = server.own.all("location").find(|one| is_acme(one)) {
        taken.extend(one.origins());
        draft.program.step(one.origins(), ACME_WAS_ANSWERED);
    }
    if server.own.find("if").is_some() {
        draft
            .program
            .left_out(found.line.origin, REDIRECTS_OTHER_NAMES);
    }
    for one in server
        .own
        .block
        .iter()
        .flat_map(|one| [one].into_iter().chain(&one.block))
    {
        let is_left = |one: &Origin| !carried.contains(one) && !taken.contains(one);
        let rest = one.origins().into_iter().filter(is_left);
        let rest: Vec<Origin> = rest.collect();
        match one.name() {
            _ if rest.is_empty() => {}
            "server_name" => draft
                .program
                .without_effect(rest, "clients are redirected whatever name they ask for"),
            // After a `return` for all requests, nothing else is reached.
            "return" | "root" | "access_log" | "error_log" | "server_tokens" | "index"
            | "log_not_found" => {
                draft
                    .program
                    .without_effect(rest, "every request is redirected");
            }
            _ => {}
        }
    }
}

/// Reports the addresses of UDP and QUIC.
fn report_datagrams(context: &Context<'_>, nginx_stays: bool, draft: &mut Draft) {
    for server in context.servers() {
        let speaks_tls =
            |one: &&Directive| datagrams(one).is_none() && !context.tls(one).is_empty();
        let only_datagrams = server.own.all("listen").all(|one| datagrams(one).is_some());
        for one in server.own.all("listen") {
            let Some(protocol) = datagrams(one) else {
                continue;
            };
            let from = match only_datagrams && !server.own.all("listen").any(|one| speaks_tls(&one))
            {
                true => server.own.origins(),
                false => one.origins(),
            };
            match protocol {
                // Its certificates leave nginx, too.
                "quic" => draft.program.step(from, QUIC),
                _ if nginx_stays => draft.program.say(Fate::Stays, from, LEFT_TO_NGINX),
                _ => draft.program.step(from, UDP),
            }
        }
        for name in [
            "http3",
            "quic_retry",
            "quic_gso",
            "quic_host_key",
            "http3_hq",
            "quic_active_connection_id_limit",
        ] {
            if let Some(one) = server.own.find(name) {
                draft
                    .program
                    .without_effect(one.origin, "there is no QUIC here");
            }
        }
    }
}

fn title(server: &Server<'_>, addresses: &[PlainAddress<'_>]) -> String {
    let names = server.own.names();
    let name = names.first().map_or("", |(name, _)| name);
    let addresses: Vec<&str> = addresses.iter().map(|one| &*one.text).collect();
    let kind = server.context.block.name();
    format!("{kind} server {name} on {}", addresses.join(", ")).replace("  ", " ")
}

fn is_socket(address: &PlainAddress<'_>) -> bool {
    address.text.starts_with("unix:")
}

/// Returns the addresses on which the server neither uses TLS nor reads the ClientHello nor connects with TLS.
fn addresses<'a>(server: &Server<'a>) -> Vec<PlainAddress<'a>> {
    let is_preread = !server.is_http() && server.is_on("ssl_preread");
    if server.is_on("ssl") || is_preread || originate::is_one(server) {
        return Vec::new();
    }
    let is_plain =
        |one: &&Directive| server.context.tls(one).is_empty() && datagrams(one).is_none();
    let mut all = Vec::new();
    for listen in server.own.all("listen").filter(is_plain) {
        let texts = of_listen(listen.word(1)).unwrap_or_else(|| vec![listen.word(1).to_owned()]);
        all.extend(texts.into_iter().map(|text| PlainAddress {
            text,
            listen: Some(listen),
        }));
    }
    if server.is_http() && server.own.find("listen").is_none() {
        all.push(PlainAddress {
            text: "0.0.0.0:80".to_owned(),
            listen: None,
        });
    }
    all
}

/// `return 301 https://$host$request_uri`, in a server, its `location /`, or an `if`; or a `rewrite`
/// that does the same.
fn redirect(server: &Directive) -> Option<Found<'_>> {
    let locations: Vec<&Directive> = server.all("location").filter(|one| !is_acme(one)).collect();
    let inner = match locations.as_slice() {
        [] => None,
        [one] if one.word(1) == "/" => Some(*one),
        _ => return in_block(server, server),
    };
    in_block(server, server)
        .or_else(|| server.all("if").find_map(|one| in_block(one, server)))
        .or_else(|| in_block(inner?, server))
}

fn in_block<'a>(block: &'a Directive, server: &Directive) -> Option<Found<'a>> {
    let found = |line: &'a Directive, status: &str, url: &str| {
        let port = port_of(url, server)?;
        let status = status.to_owned();
        let redirect = Redirect { status, port };
        Some(Found { line, redirect })
    };
    let of_return = block.find("return").and_then(|line| match line.word(2) {
        "" => found(line, "302", line.word(1)),
        url => found(line, line.word(1), url),
    });
    of_return.or_else(|| {
        let line = block.find("rewrite")?;
        let is_whole = ["^", "^(.*)", "^(.*)$", "^/(.*)", "^/(.*)$"].contains(&line.word(1));
        let status = match line.word(3) {
            "permanent" => "301",
            _ => "302",
        };
        found(line, status, line.word(2)).filter(|_| is_whole)
    })
}

/// Returns the port of an https URL for the same host and path. `None`: the URL is another one.
fn port_of(url: &str, server: &Directive) -> Option<u16> {
    let rest = url.strip_prefix("https://")?;
    let own = server
        .find("server_name")
        .filter(|one| one.word(2).is_empty());
    let own = own.map_or("", |one| one.word(1));
    let hosts = ["$host", "$http_host", "$server_name", own].into_iter();
    let behind = hosts.filter(|host| !host.is_empty()).find_map(|host| {
        // With several names, `$server_name` is the first of them, whatever the client asked for.
        (host != "$server_name" || !own.is_empty()).then(|| rest.strip_prefix(host))?
    })?;
    let at = behind.find(['/', '$']).unwrap_or(behind.len());
    let (port, path) = behind.split_at(at);
    let paths = [
        "$request_uri",
        "$request_uri?",
        "$uri",
        "$uri$is_args$args",
        "$1",
        "/$1",
    ];
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok()?,
        None if port.is_empty() => 443,
        None => return None,
    };
    paths.contains(&path).then_some(port)
}

fn is_acme(location: &Directive) -> bool {
    let is_it = |word: &str| word.contains(".well-known/acme-challenge");
    location.values().any(is_it)
}
