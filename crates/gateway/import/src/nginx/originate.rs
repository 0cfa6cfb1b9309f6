//! Servers of `stream` that accept plain connections and carry them to a TLS server: `proxy_ssl on`.

use super::backend_tls::BackendTls;
use super::context::{Server, from as origins_of};
use super::syntax::Directive;
use super::{listen, options, target};
use crate::advice::{CLIENT_NETWORKS_OF_ORIGINATION, NOT_VERIFIED};
use crate::draft::Draft;
use crate::origin::Origins;
use crate::section::{Kind, Section};
use crate::toml::{list, quoted, quoted_list};

pub(super) fn is_one(server: &Server<'_>) -> bool {
    !server.is_http() && server.is_on("proxy_ssl") && server.find("proxy_pass").is_some()
}

pub(super) fn convert(server: &Server<'_>, listens: &[&Directive], draft: &mut Draft) {
    let owes = server.owes(listens);
    let mut section = Section::new(Kind::Originate, server.title(), server.own.origin, owes);
    listen::convert(server, listens, &mut section, draft);
    for (_, from) in server.own.names() {
        section.without_effect(from, "no name chooses among plain connections");
    }
    let header = section.remove("accept_proxy_from");
    if !header.is_empty() {
        section.step(
            header,
            "an [[originate]] reads no PROXY header: keep nginx for this server",
        );
    }
    let cases = target::cases(server, listens, &mut section);
    for case in &cases {
        target::set(server, case, &mut section, draft);
    }
    if cases.len() > 1 {
        section.step(
            server.own.origin,
            "plain connections have no name to choose a server by: make an [[originate]] for each",
        );
    }
    as_origination(server, &mut section);
    for name in ["allow", "deny"] {
        let rules = server.all(name);
        if !rules.is_empty() {
            section.step(origins_of(rules), CLIENT_NETWORKS_OF_ORIGINATION);
        }
    }
    options::times(server, &mut section, draft);
    options::log(server, draft);
    options::rest(server, false, &mut section, draft);
    for one in server.own.block.iter().chain(&server.context.block.block) {
        if one.name().starts_with("ssl_") {
            section.without_effect(one.origin, "clients of this server do not use TLS");
        }
    }
    draft.add(section);
}

/// Turns the options of a route into those of an origination.
fn as_origination(server: &Server<'_>, section: &mut Section) {
    let tls = BackendTls::of(server);
    if let Some(one) = section.option("to").cloned() {
        // Weights and backups: servers are tried in this order.
        let addresses: Vec<String> = (section.targets.iter()).map(|one| quoted(one)).collect();
        if one.value.contains('{') {
            section.left_out(&one.from, "servers are tried in the order of `to`");
        }
        section.set("to", list(&addresses), one.from);
    }
    let on = section.remove("backend_tls");
    section.also("listen", on);
    let ca = section.remove("backend_ca");
    let name = section.option("backend_name").map(|one| one.value.clone());
    let of_name = section.remove("backend_name");
    // Whether a certificate is verified is up to the client here, as in nginx.
    section
        .remarks
        .retain(|one| one.why != crate::advice::BACKENDS_ARE_VERIFIED);
    let verify = origins_of(tls.find("proxy_ssl_verify"));
    match (tls.is_verified(), tls.find("proxy_ssl_trusted_certificate")) {
        (true, Some(file)) => {
            let mut from = ca;
            from.add(verify);
            section.set_text("ca", &server.context.path(file.word(1)), from);
        }
        (true, None) => section.set_text("ca", "system", verify),
        (false, _) => {
            let mut from = verify;
            from.add(
                server
                    .find("proxy_ssl")
                    .map(|one| one.origin)
                    .into_iter()
                    .collect::<Origins>(),
            );
            section
                .remarks
                .retain(|one| !one.why.contains("always verified"));
            section.set("insecure", "true", &from);
            section.left_out(from, NOT_VERIFIED);
            section.without_effect(ca, "no certificate was verified");
        }
    }
    if let Some(name) = name {
        section.set("server_name", name, of_name);
    }
    let certificates = section.option("backend_certificates").cloned();
    if let Some(one) = certificates {
        section.remove("backend_certificates");
        section.set("certificates", one.value, one.from);
    }
    if let Some(alpn) = tls.find("proxy_ssl_alpn") {
        section.remove("backend_alpn");
        let all: Vec<&str> = alpn.values().collect();
        section.set("alpn", quoted_list(&all), alpn.origin);
    }
    let header = section.remove("proxy_protocol");
    if !header.is_empty() {
        section.step(
            header,
            "an [[originate]] sends no PROXY header: keep nginx for this server",
        );
    }
    for name in ["balance", "backend_failures", "backend_pause", "slow_start"] {
        let from = section.remove(name);
        if !from.is_empty() {
            section.left_out(from, "servers are tried in the order of `to`");
        }
    }
}
