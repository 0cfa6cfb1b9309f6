//! What a source demands of clients and backends, and what a result does, each by a small reader of its own that shares
//! no code with the importers: the judge of whether a result is less strict than its source.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

mod haproxy;
mod hitch;
mod nginx;
mod stunnel;

/// Demands, each at a port. The port of a client's connection is the same before and after, unless the listener is not
/// one of TCP; then it is 0.
pub(super) type Demands = BTreeMap<u16, BTreeSet<&'static str>>;

/// Demands of one listener.
#[derive(Default)]
struct Demanded(BTreeSet<&'static str>);

impl Demanded {
    fn when(&mut self, is: bool, what: &'static str) {
        if is {
            self.0.insert(what);
        }
    }

    fn at(&self, address: &str, demands: &mut Demands) {
        for port in ports(address) {
            demands.entry(port).or_default().extend(&self.0);
        }
    }
}

/// Returns the ports of an address, which may be a list, a range or a name.
fn ports(address: &str) -> Vec<u16> {
    let mut all = Vec::new();
    for one in address.split(',') {
        if one.contains('/') || one.starts_with("abns@") || one.starts_with("quic") {
            all.push(0);
            continue;
        }
        let text = one.rsplit(':').next().unwrap_or(one);
        let named = match text {
            "pop3s" => "995",
            "imaps" => "993",
            "ssmtp" => "465",
            text => text,
        };
        match named.split_once('-') {
            Some((first, last)) => match (first.parse::<u16>(), last.parse::<u16>()) {
                (Ok(first), Ok(last)) => all.extend(first..=last),
                _ => all.push(0),
            },
            None => all.push(named.parse().unwrap_or(0)),
        }
    }
    all
}

/// Returns what a source demands.
pub(super) fn of_source(program: Program, text: &str) -> Demands {
    match program {
        Program::Nginx => nginx::demands(text),
        Program::Haproxy => haproxy::demands(text),
        Program::Stunnel => stunnel::demands(text),
        Program::Hitch => hitch::demands(text),
    }
}

/// Returns what a result does, of what a source may demand.
pub(super) fn of_result(page: &str) -> Demands {
    let mut demands = Demands::new();
    for section in page.split("\n[[").skip(1) {
        let is_route = section.starts_with("route]]");
        let value = |name: &str| {
            let start = format!("{name} = ");
            section
                .lines()
                .find_map(|line| line.strip_prefix(start.as_str()))
                .unwrap_or_default()
        };
        let mut these = Demanded::default();
        let mut with = |is: bool, what| these.when(is, what);
        with(
            value("client_certificates") == "\"required\"",
            "requires a certificate",
        );
        with(!value("client_crl").is_empty(), "checks revocation");
        with(
            !value("backend_crl").is_empty() || !value("crl").is_empty(),
            "checks revocation of servers",
        );
        with(!value("client_allow").is_empty(), "limits certificates");
        with(
            value("unknown_name").starts_with("\"refuse") || !value("server_names").is_empty(),
            "refuses unknown names",
        );
        with(!value("accept_proxy_from").is_empty(), "expects a header");
        with(!value("proxy_protocol").is_empty(), "sends a header");
        with(
            value("backend_tls") == "true" || !is_route,
            "uses TLS to a backend",
        );
        with(
            value("backend_tls") == "true" || (!is_route && value("insecure").is_empty()),
            "verifies the server",
        );
        let has_networks = !value("allow").is_empty() || !value("deny").is_empty();
        with(has_networks, "limits networks");
        with(has_networks, "refuses some clients");
        for address in value("listen").split('"').skip(1).step_by(2) {
            let address = if address.starts_with("unix:") {
                "/"
            } else {
                address
            };
            these.at(address, &mut demands);
        }
    }
    demands
}
