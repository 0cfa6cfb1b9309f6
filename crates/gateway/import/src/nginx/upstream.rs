//! `upstream NAME { server ADDRESS parameters…; … }`

use super::syntax::Directive;
use crate::origin::Origins;
use crate::section::Section;
use crate::toml::{Backend, backends};
use crate::value::time;

pub(super) fn convert(group: &Directive, port: &str, from: &Origins, section: &mut Section) {
    let mut all = Vec::new();
    let mut from = from.clone();
    section.targets.clear();
    section.owes.extend(group.origins());
    for server in group.all("server") {
        let mut one = Backend {
            address: address(server.word(1), port),
            ..Backend::default()
        };
        let mut of_server = Origins::from(server.origin);
        let mut is_down = false;
        for (word, origin) in server.parameters() {
            match word.split_once('=').unwrap_or((word, "")) {
                ("weight", n) => (one.weight = n.parse().ok(), of_server.add(origin)).1,
                ("max_conns", n) => {
                    one.max_connections = n.parse().ok().filter(|n| *n > 0);
                    of_server.add(origin);
                }
                ("max_fails", "0") => {
                    section.left_out(origin, "a failed backend is always skipped for a while");
                }
                ("max_fails", n) => section.number("backend_failures", n, origin),
                ("fail_timeout", text) => section.time("backend_pause", time(text, 1000), origin),
                ("slow_start", text) => section.time("slow_start", time(text, 1000), origin),
                ("backup", _) => (one.is_backup = true, of_server.add(origin)).1,
                ("down", _) => (is_down = true, of_server.add(origin)).1,
                ("resolve", _) => {
                    section.without_effect(origin, "names are looked up repeatedly anyway");
                }
                ("service" | "route" | "drain", _) => section.left_out(origin, "no equivalent"),
                _ => {}
            }
        }
        if is_down {
            section.left_out(of_server, "it is down, so it is not in `to`");
        } else {
            section.targets.push(server.word(1).to_owned());
            from.add(of_server);
            all.push(one);
        }
    }
    match all.is_empty() {
        false => section.set("to", backends(&all), from),
        true => section.step(from, "all its servers are down, so nginx served no client: add backends to `to`, or remove this route"),
    }
    balance(group, section);
}

fn balance(group: &Directive, section: &mut Section) {
    for one in &group.block {
        let (from, by_client) = (one.origin, one.word(1).contains("remote_addr"));
        match one.name() {
            "server" => {}
            "zone" | "resolver" | "resolver_timeout" => {
                section.without_effect(from, "memory and name lookups of nginx");
            }
            "keepalive" | "keepalive_timeout" | "keepalive_requests" | "keepalive_time" => {
                section.left_out(
                    from,
                    "each client has a connection of its own to the backend",
                );
            }
            "least_conn" => section.set_text("balance", "least-connections", from),
            "ip_hash" => section.set_text("balance", "client-hash", from),
            "hash" if by_client => section.set_text("balance", "client-hash", from),
            "least_time" | "random" => {
                section.set_text("balance", "least-connections", from);
                section.left_out(from, "the nearest equivalent is least-connections");
            }
            "hash" | "sticky" | "sticky_cookie_insert" | "ntlm" | "queue" | "state" => {
                section.left_out(from, "no equivalent: backends are used in turn, by weight");
            }
            _ => {}
        }
    }
}

/// Converts `host`, `host:port`, `unix:/path` or `unix:/path:/uri`.
pub(super) fn address(text: &str, port: &str) -> String {
    if let Some(path) = text.strip_prefix("unix:") {
        return format!("unix:{}", path.split(':').next().unwrap_or(path));
    }
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(':')
    });
    match has_port || port.is_empty() {
        true => text.to_owned(),
        false => format!("{text}:{port}"),
    }
}
