//! Checks within a route.

use crate::checks::common::{no_item_twice, protocols, versions};
use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::values::choices::{Balance, ClientAsk, ConnectTime, ProxyProtocol};
use crate::values::endpoints::Backend;
use crate::values::host_name::is_in_certificates;
use crate::values::network::Network;
use crate::values::source_address::SourceAddress;
use std::collections::BTreeSet;

/// Reports mistakes within a route.
pub(crate) fn check(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    identity(route, at, mistakes);
    lists(route, at, mistakes);
    empty_lists(route, at, mistakes);
    unreachable(route, at, mistakes);
    versions(at, route.min_version, route.max_version, mistakes);
    protocols(at, "alpn", &route.alpn, mistakes);
    proxy_protocol(route, at, mistakes);
    super::backends::check(route, at, mistakes);
    super::crypto::check(route, at, mistakes);
    super::resumption::clients(route, at, mistakes);
    super::sharing::rules(route, at, mistakes);
    sources(route, at, mistakes);
    first_data(route, at, mistakes);
    super::unused::of_route(route, at, mistakes);
}

/// Reports items that a list has twice. Lists of addresses, backends, certificates and protocols have checks of
/// their own.
fn lists(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let item = |option: &'static str| move |n| at.location(option, Some(n));
    no_item_twice(item("server_names"), &route.server_names, mistakes);
    no_item_twice(item("acme"), &route.acme, mistakes);
    for (option, networks) in [
        ("accept_proxy_from", &route.accept_proxy_from),
        ("allow", &route.allow),
        ("deny", &route.deny),
    ] {
        no_item_twice(item(option), networks, mistakes);
    }
    no_item_twice(item("suites"), &route.suites, mistakes);
    no_item_twice(item("groups"), &route.groups, mistakes);
    for (option, files) in [
        ("client_crl", &route.client_crl),
        ("backend_crl", &route.backend_crl),
    ] {
        let files = files.iter().map(|path| path.display());
        no_item_twice(item(option), files, mistakes);
    }
    no_item_twice(item("client_allow"), &route.client_allow, mistakes);
}

/// Reports lists without an item where no list means no restriction: a program that fills in what is allowed, and finds
/// nothing, would open the route to all.
fn empty_lists(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let restrictions = [
        (
            "allow",
            route.allow.is_empty(),
            "clients from everywhere may connect",
        ),
        (
            "client_allow",
            route.client_allow.is_empty(),
            "every valid client certificate is accepted",
        ),
        (
            "client_crl",
            route.client_crl.is_empty(),
            "revoked client certificates are accepted",
        ),
        (
            "backend_crl",
            route.backend_crl.is_empty(),
            "revoked certificates of backends are accepted",
        ),
        (
            "server_names",
            route.server_names.is_empty(),
            "the route is for all names",
        ),
    ];
    for (option, is_empty, meaning) in restrictions {
        if is_empty && at.has(option) && at.sound(&[option]) {
            let problem = Problem::new(format!("`{option}` is an empty list"));
            mistakes.error(
                &at.location(option, None),
                problem
                    .label(format!("without this option, {meaning}"))
                    .help("remove the option if that is meant"),
            );
        }
    }
}

/// Reports networks and names that no client of this route can have.
fn unreachable(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if at.sound(&["allow", "deny"]) {
        for (n, allowed) in route.allow.iter().enumerate() {
            let denies =
                |deny: &&Network| deny.prefix <= allowed.prefix && deny.contains(allowed.address);
            if let Some(deny) = route.deny.iter().find(denies) {
                let problem = Problem::new(format!(
                    "`{allowed}` has no effect: no client from there can connect"
                ));
                mistakes.warning(
                    &at.location("allow", Some(n)),
                    problem
                        .label(format!("`deny` has {deny}"))
                        .help("remove one of the two"),
                );
            }
        }
    }
    if route.server_names.is_empty() || !at.sound(&["acme", "server_names"]) {
        return;
    }
    for (n, name) in route.acme.iter().enumerate() {
        if !route
            .server_names
            .iter()
            .any(|served| served.covers(name.as_str()) || name.covers(served.as_str()))
        {
            let problem = Problem::new(format!(
                "the certificate for `{name}` has no use: clients that ask for that name do not reach this route"
            ));
            mistakes.warning(
                &at.location("acme", Some(n)),
                problem.help("add the name to `server_names`, or remove it here"),
            );
        }
    }
}

/// Reports `backend_connect = "first-data"` where the client's address is not known any more by then.
fn first_data(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    affinity(route, at, mistakes);
    if route.backend_connect == ConnectTime::FirstData
        && route.balance == Balance::ClientHash
        && !route.accept_proxy_from.is_empty()
        && at.sound(&["balance", "accept_proxy_from"])
    {
        mistakes.error(
            &at.location("backend_connect", None),
            Problem::new(
                "the client's address in a PROXY protocol header is not kept until its first data, so `client-hash` can't use it",
            )
            .help("set backend_connect = \"at-once\", or another balance"),
        );
    }
}

/// Reports a `balance` whose key is not there when a backend is chosen.
fn affinity(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if !at.sound(&["balance", "backend_connect", "pass_through"]) || !at.has("balance") {
        return;
    }
    let is_later = route.backend_connect == ConnectTime::FirstData;
    let (what, help) = match route.balance {
        Balance::SniHash if is_later => (
            "the client's server name is not kept until its first data, so `sni-hash` can't use it",
            "set backend_connect = \"at-once\", or another balance",
        ),
        Balance::MqttClientId if route.pass_through => (
            "`mqtt-client-id` needs the client's first data, which is encrypted with `pass_through`",
            "set balance = \"sni-hash\" or \"client-hash\"",
        ),
        Balance::MqttClientId if !is_later => (
            "`mqtt-client-id` needs the client's first data before a backend is chosen",
            "add backend_connect = \"first-data\"",
        ),
        _ => return,
    };
    mistakes.error(&at.location("balance", None), Problem::new(what).help(help));
}

/// Reports a route without a certificate, or with both configured and self-signed ones.
fn identity(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let has_files = !route.certificates.is_empty();
    let whole = at.location("", None);
    if has_files && route.self_signed.is_some() {
        mistakes.error(
            &at.location("self_signed", None),
            Problem::new("a route has either `certificates` or `self_signed`, not both")
                .label("remove one of the two"),
        );
    } else if !has_files
        && route.self_signed.is_none()
        && route.acme.is_empty()
        && !route.pass_through
        && at.sound(&["certificates", "self_signed", "acme", "pass_through"])
    {
        let help = match whole {
            Location::File(_) => {
                "add certificates = [{ cert = \"site.pem\", key = \"site.key\" }], or acme = [\"site.example\"] for an automatic one, or self_signed = \"localhost\" for a test"
            }
            _ => "add --cert FILE --key FILE, or --self-signed NAME for a test",
        };
        // One of --cert and --key without the other has been reported already.
        if matches!(whole, Location::File(_)) || !at.has("certificates") {
            mistakes.error(
                &whole,
                Problem::new("this route has no certificate").help(help),
            );
        }
    }
    let mut seen = BTreeSet::new();
    for (n, pair) in route.certificates.iter().enumerate() {
        if !seen.insert((&pair.cert, &pair.key)) {
            mistakes.error(
                &at.location("certificates", Some(n)),
                Problem::new("this certificate is listed twice").label("remove one of the two"),
            );
        }
    }
    if let Some(name) = route
        .self_signed
        .as_ref()
        .filter(|name| !is_in_certificates(name))
    {
        mistakes.error(
            &at.location("self_signed", None),
            Problem::new(format!("`{name}` is neither a host name nor an IP address")).help(
                "write the name that clients connect to, without a port, such as \"localhost\"",
            ),
        );
    }
}

fn proxy_protocol(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let sends = route.proxy_protocol != ProxyProtocol::Off;
    if sends && route.is_echo() && at.sound(&["to"]) {
        mistakes.error(
            &at.location("proxy_protocol", None),
            Problem::new("there is no backend here to send a PROXY protocol header to")
                .label("`to` is `echo:`")
                .help("remove proxy_protocol"),
        );
    }
    if route.proxy_protocol == ProxyProtocol::V2Certificate
        && (route.client_certificates == ClientAsk::None || route.pass_through)
    {
        mistakes.warning(
            &at.location("proxy_protocol", None),
            Problem::new("client certificates are not requested here, so there is none to pass on")
                .help("set proxy_protocol = \"v2\", or client_certificates = \"optional\""),
        );
    }
    for (n, network) in route.accept_proxy_from.iter().enumerate() {
        if network.prefix == 0 {
            mistakes.warning(
                &at.location("accept_proxy_from", Some(n)),
                Problem::new("any client can now claim any address in a PROXY protocol header")
                    .label("this network contains every address")
                    .help("list only the addresses of your proxies"),
            );
        }
    }
}

/// Reports source addresses that are listed twice or can't reach a backend.
fn sources(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if !at.sound(&["source_addresses", "to"]) {
        return;
    }
    let mut seen = BTreeSet::new();
    for (n, source) in route.source_addresses.iter().enumerate() {
        let SourceAddress::Address(ip) = source else {
            if route.source_addresses.len() > 1 {
                mistakes.error(
                    &at.location("source_addresses", Some(n)),
                    Problem::new("\"auto\" cannot be combined with addresses")
                        .label("remove it, or the addresses"),
                );
            }
            continue;
        };
        let mut faults = route.to.iter().filter_map(|to| match &to.backend {
            Backend::Tcp { addresses, .. } => addresses
                .first()
                .filter(|address| address.is_ipv4() != ip.is_ipv4())
                .map(|address| format!("{ip} cannot reach {address}: one is IPv4, the other IPv6")),
            Backend::Unix(_) | Backend::Echo => Some(
                "this backend is not reached by IP, so no source address can be used".to_owned(),
            ),
        });
        let twice = || (!seen.insert(ip)).then(|| format!("{ip} is listed twice"));
        let fault = faults.next().or_else(twice);
        if let Some(fault) = fault {
            let location = at.location("source_addresses", Some(n));
            mistakes.error(&location, Problem::new(fault).label("remove this address"));
        }
    }
}
