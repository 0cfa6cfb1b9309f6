//! Servers without TLS over TCP: those that only redirect clients to https, and all others, which are no
//! longer served when nginx stops.

use super::context::{Context, address, datagrams};
use super::syntax::Directive;
use crate::advice::{
    ACME_WAS_ANSWERED, NGINX_STAYS, REDIRECTS_BESIDE_OTHERS, REDIRECTS_ELSEWHERE,
    REDIRECTS_ON_SOCKET, REDIRECTS_OTHER_NAMES,
};
use crate::draft::{Draft, Redirect};

const LEFT_TO_NGINX: &str = "is left to nginx, which stays behind Dormouse";

/// A server that redirects clients.
struct Found<'a> {
    line: &'a Directive,
    redirect: Redirect,
}

/// Reads all servers of the context that have an address without TLS.
pub(super) fn read(context: &Context<'_>, draft: &mut Draft) {
    let nginx_stays = draft.has_step(NGINX_STAYS);
    report_datagrams(context, nginx_stays, draft);
    let plain: Vec<(&Directive, Vec<String>)> = (context.block.all("server"))
        .map(|server| (server, addresses(context, server)))
        .filter(|(_, addresses)| !addresses.is_empty())
        .collect();
    for (server, addresses) in &plain {
        if nginx_stays {
            let title = title(context, server, addresses);
            draft.leave_out(&server.position, &title, LEFT_TO_NGINX);
            continue;
        }
        let found = if context.is_http {
            redirect(server)
        } else {
            None
        };
        let (sockets, tcp): (Vec<String>, Vec<String>) =
            addresses.iter().cloned().partition(|one| is_socket(one));
        // Only one of nginx and Dormouse can have an address.
        let is_shared = plain.iter().any(|(other, theirs)| {
            let is_same = theirs.iter().any(|one| tcp.contains(one));
            is_same && redirect(other).is_none()
        });
        let (left, why) = match &found {
            Some(found) if !is_shared => {
                if !tcp.is_empty() {
                    let (position, shown) = (&found.line.position, found.line.shown());
                    draft.redirect(&tcp, &found.redirect, position, &shown);
                    remarks(server, found, draft);
                }
                (&sockets, REDIRECTS_ON_SOCKET)
            }
            Some(_) => (addresses, REDIRECTS_BESIDE_OTHERS),
            None if server.find("return").is_some() => (addresses, REDIRECTS_ELSEWHERE),
            None => (
                addresses,
                "does not use TLS: keep nginx for it, or this address will not be served",
            ),
        };
        if !left.is_empty() {
            let what = format!("{} {why}", title(context, server, left));
            draft.add_to_do(&server.position, &what);
        }
    }
}

/// Reports the addresses of UDP and QUIC.
fn report_datagrams(context: &Context<'_>, nginx_stays: bool, draft: &mut Draft) {
    for one in context
        .block
        .all("server")
        .flat_map(|one| one.all("listen"))
    {
        let Some(protocol) = datagrams(one) else {
            continue;
        };
        let shown = one.shown();
        match protocol {
            _ if nginx_stays => draft.leave_out(&one.position, &shown, LEFT_TO_NGINX),
            // Browsers then use TCP.
            "quic" => draft.leave_out(&one.position, &shown, "QUIC is not supported"),
            _ => {
                let what = format!(
                    "{shown}: UDP is not supported: keep nginx for it, or this address will not be served"
                );
                draft.add_to_do(&one.position, &what);
            }
        }
    }
}

/// Adds remarks about what else the server did.
fn remarks(server: &Directive, found: &Found<'_>, draft: &mut Draft) {
    if let Some(one) = server.all("location").find(|one| is_acme(one)) {
        draft.add_to_do(&one.position, ACME_WAS_ANSWERED);
    }
    if server.find("if").is_some() {
        draft.leave_out(
            &found.line.position,
            &found.line.shown(),
            REDIRECTS_OTHER_NAMES,
        );
    }
}

fn title(context: &Context<'_>, server: &Directive, addresses: &[String]) -> String {
    let names = server.find("server_name").map_or("", |one| one.word(1));
    let (kind, addresses) = (context.block.name(), addresses.join(", "));
    format!("{kind} server {names} on {addresses}").replace("  ", " ")
}

fn is_socket(address: &str) -> bool {
    address.starts_with("unix:")
}

/// Returns the addresses on which the server neither uses TLS nor reads the ClientHello.
fn addresses(context: &Context<'_>, server: &Directive) -> Vec<String> {
    if context.is_on(server, "ssl") || (!context.is_http && context.is_on(server, "ssl_preread")) {
        return Vec::new();
    }
    let is_plain = |one: &&Directive| !context.has_tls(one) && datagrams(one).is_none();
    let all = server.all("listen").filter(is_plain);
    let shown = |one: &Directive| address(one.word(1)).unwrap_or_else(|| one.word(1).to_owned());
    let mut addresses: Vec<String> = all.map(shown).collect();
    if context.is_http && server.find("listen").is_none() {
        addresses.push("0.0.0.0:80".to_owned());
    }
    addresses
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
