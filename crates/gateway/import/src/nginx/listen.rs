//! `listen ADDRESS parameters…`

use super::context::{Server, addresses};
use super::syntax::Directive;
use crate::advice::{HTTP2, NO_DOOR, PROXY_NETWORKS};
use crate::draft::Draft;
use crate::origin::{Origin, Origins};
use crate::section::Section;
use crate::toml::{list, quoted, quoted_list};
use crate::value::time;

/// Converts addresses and their parameters.
pub(super) fn convert(
    server: &Server<'_>,
    listens: &[&Directive],
    section: &mut Section,
    draft: &mut Draft,
) {
    let (mut all, mut from) = (Vec::new(), Origins::default());
    for one in listens {
        section.doors.push(one.word(1).to_owned());
        match addresses(one.word(1)) {
            Some(addresses) => {
                from.add(one.origin);
                let both = one.part_of("ipv6only=off");
                from.add(both.into_iter().collect::<Origins>());
                for address in addresses {
                    section.doors.push(address.clone());
                    all.push(quoted(&match both {
                        Some(_) => address.replace("[::]:", ":"),
                        None => address,
                    }));
                }
            }
            None => section.step(one.origin, NO_DOOR),
        }
        from.add(server.context.tls(one).to_vec());
        for (word, origin) in one.parameters() {
            parameter(server, one, word, origin, &mut from, section, draft);
        }
    }
    if let Some(one) = server.find("ssl").filter(|one| one.is("on")) {
        from.add(one.origin);
    }
    match all.is_empty() {
        false => section.set("listen", list(&all), from),
        true if from.is_empty() => {}
        true => section.without_effect(from, "it belongs to that address"),
    }
    // Since nginx 1.25.1, a directive of its own.
    if let Some(one) = server.find("http2").filter(|_| server.is_http()) {
        match one.is("on") {
            true => section.left_out(one.origin, HTTP2),
            false => section.without_effect(one.origin, "HTTP/2 is not offered here either"),
        }
    }
    proxy_header(server, listens, section);
}

fn parameter(
    server: &Server<'_>,
    listen: &Directive,
    word: &str,
    from: Origin,
    of_listen: &mut Origins,
    section: &mut Section,
    draft: &mut Draft,
) {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let why = match name {
        "backlog" => return draft.program.number("backlog", value, from),
        "so_keepalive" => return keepalive(value, from, draft),
        "ssl" => return of_listen.add(from),
        "default_server" | "default" if server.is_first(listen) => {
            let why = "the first server of an address is its default in any case";
            return section.without_effect(from, why);
        }
        "default_server" | "default" => return of_listen.add(from),
        // Converted below, and above.
        "proxy_protocol" => return,
        "ipv6only" if word == "ipv6only=off" => return,
        "ipv6only" => {
            return section.without_effect(from, "[::] takes IPv6 only here, too");
        }
        "http2" => HTTP2,
        "fastopen" | "setfib" | "accept_filter" => "no equivalent",
        "rcvbuf" | "sndbuf" => "use `receive_buffer` and `socket_buffer`",
        "reuseport" | "deferred" | "bind" => {
            return section.without_effect(from, "all workers share one listening socket");
        }
        "spdy" => "SPDY is no longer in use",
        _ => return,
    };
    section.left_out(from, why);
}

/// Converts `so_keepalive`: `on`, or `30m::10`.
fn keepalive(value: &str, from: Origin, draft: &mut Draft) {
    let program = &mut draft.program;
    match value {
        "on" => {
            return program
                .without_effect(from, "probes of idle connections are on (`keepalive_idle`)");
        }
        "off" => {
            return program.left_out(
                from,
                "probes of idle connections are on: see `keepalive_idle`",
            );
        }
        _ => {}
    }
    let mut parts = value.split(':');
    for name in ["keepalive_idle", "keepalive_interval"] {
        let seconds = parts
            .next()
            .and_then(|part| time(part, 1000))
            .map(|ms| ms / 1000);
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
            program.set_text(name, &format!("{seconds}s"), from);
        }
    }
    match parts.next().unwrap_or_default() {
        "" => {}
        count => program.number("keepalive_count", count, from),
    }
}

/// Sets the networks whose PROXY header is trusted.
fn proxy_header(server: &Server<'_>, listens: &[&Directive], section: &mut Section) {
    let words = listens
        .iter()
        .flat_map(|one| server.context.proxy_protocol(one));
    let mut from: Origins = words.copied().collect();
    let networks = server.all("set_real_ip_from");
    if from.is_empty() {
        for one in networks {
            if !server.is_http() {
                section.without_effect(one.origin, "no client sends the PROXY protocol here");
            }
        }
        return;
    }
    let (sockets, networks): (Vec<&Directive>, Vec<&Directive>) =
        networks.into_iter().partition(|one| one.word(1) == "unix:");
    for one in sockets {
        section.without_effect(one.origin, "Dormouse listens on TCP addresses only");
    }
    if networks.is_empty() {
        return section.step(from, PROXY_NETWORKS);
    }
    let trusted: Vec<&str> = networks.iter().map(|one| one.word(1)).collect();
    from.add(networks.iter().map(|one| one.origin).collect::<Origins>());
    section.set("accept_proxy_from", quoted_list(&trusted), from);
}
