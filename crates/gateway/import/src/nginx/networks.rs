//! `allow` and `deny`: the networks that may connect.

use super::context::{Server, from as origins_of};
use super::syntax::Directive;
use crate::advice::{ACCEPTED_BEFORE, CLIENT_NETWORKS, STAYS_WITH_NGINX};
use crate::networks::Networks;
use crate::origin::{Origin, Origins};
use crate::section::{Fate, Section};
use crate::toml::quoted_list;

/// Converts `allow` and `deny`. In nginx the first matching rule decides; in Dormouse `deny` takes
/// precedence.
pub(super) fn convert(server: &Server<'_>, section: &mut Section) {
    let is_rule = |one: &&Directive| matches!(one.name(), "allow" | "deny");
    let mut rules: Vec<&Directive> = server.own.block.iter().filter(is_rule).collect();
    if rules.is_empty() {
        rules = server.context.block.block.iter().filter(is_rule).collect();
    }
    // A password suffices, too. nginx stays, and continues to decide.
    if server.find("satisfy").is_some_and(|one| one.is("any")) {
        return section.say(Fate::Stays, origins_of(rules), STAYS_WITH_NGINX);
    }
    address_in_header(server, &rules, section);
    if rules.len() > RULES_MAX {
        return section.step(origins_of(rules), CLIENT_NETWORKS);
    }
    let (mut allow, mut deny) = (Rules::default(), Rules::default());
    let mut allowed = Networks::default();
    let mut end: Option<&Directive> = None;
    for one in rules {
        let from = one.origin;
        match (one.name(), one.word(1)) {
            _ if end.is_some() => {
                section.without_effect(from, "an earlier rule is for all clients")
            }
            (_, "unix:") => section.without_effect(from, "Dormouse listens on TCP addresses only"),
            (_, "all") => end = Some(one),
            ("allow", network) => {
                allowed.add(network);
                allow.add(network, from);
            }
            (_, network) => {
                if allowed.overlap(network) {
                    section.step(from, ACCEPTED_BEFORE);
                }
                deny.add(network, from);
            }
        }
    }
    let is_closed = end.is_some_and(|one| one.name() == "deny");
    // Without `deny all`, networks that are not listed are allowed too.
    match (is_closed, allow.networks.is_empty()) {
        (true, true) => deny.add_all(&["0.0.0.0/0", "::/0"], end),
        (true, false) => {
            allow.add_all(&[], end);
            section.set("allow", quoted_list(&allow.networks), allow.from);
        }
        (false, _) => {
            let mut from = allow.from;
            from.add(origins_of(end));
            if !from.is_empty() {
                section.without_effect(from, "clients of other networks are accepted, too");
            }
        }
    }
    if !deny.networks.is_empty() {
        section.set("deny", quoted_list(&deny.networks), deny.from);
    }
}

/// Rules about the address that a header of the request names, which Dormouse does not read.
fn address_in_header(server: &Server<'_>, rules: &[&Directive], section: &mut Section) {
    let header = server.find("real_ip_header");
    let proxies = server.all("set_real_ip_from");
    if !server.is_http() || proxies.is_empty() || header.is_some_and(|one| one.is("proxy_protocol"))
    {
        return;
    }
    if rules.iter().any(|one| one.word(1) != "all") {
        let all = rules.iter().copied().chain(header).chain(proxies);
        section.step(origins_of(all), format!("{IN_HEADER}: {CLIENT_NETWORKS}"));
    }
}

const IN_HEADER: &str = "nginx compared the address that a header of the request names \
    (`real_ip_header`) with these networks; here it is that of the connection";

/// Maximum number of rules: a list of the configuration holds 1000 networks.
const RULES_MAX: usize = 2000;

/// Networks of rules.
#[derive(Default)]
struct Rules<'a> {
    networks: Vec<&'a str>,
    from: Origins,
}

impl<'a> Rules<'a> {
    fn add(&mut self, network: &'a str, from: Origin) {
        self.networks.push(network);
        self.from.add(from);
    }

    fn add_all(&mut self, networks: &[&'a str], from: Option<&Directive>) {
        self.networks.extend(networks);
        self.from.add(origins_of(from));
    }
}
