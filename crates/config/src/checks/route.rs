//! What must fit together within a route.

use crate::checks::common::{alpn, versions};
use crate::input::location::Location;
use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::values::amounts::SourceAddress;
use crate::values::choices::{ClientAsk, ProxyProtocol};
use crate::values::endpoints::Backend;
use crate::values::host_name::is_host;
use std::collections::BTreeSet;

/// Reports what does not fit within it.
pub(crate) fn check(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    identity(route, at, mistakes);
    versions(at, route.min_version, route.max_version, mistakes);
    alpn(at, &route.alpn, mistakes);
    proxy_protocol(route, at, mistakes);
    super::backends::check(route, at, mistakes);
    super::crypto::check(route, at, mistakes);
    super::resumption::clients(route, at, mistakes);
    super::sharing::rules(route, at, mistakes);
    sources(route, at, mistakes);
}

/// A route shows either certificates or one made for it.
fn identity(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let names = ["certificates", "self_signed"];
    if !at.sound(&names) {
        return;
    }
    let whole = at.location("", None);
    if names.iter().all(|name| at.has(name)) {
        mistakes.error(
            &at.location("self_signed", None),
            Problem::new("a route shows either certificates or a self-signed one, not both")
                .label("remove one of the two"),
        );
    } else if route.certificates.is_empty()
        && route.self_signed.is_none()
        && route.acme.is_empty()
        && !route.pass_through
        && at.sound(&["acme"])
    {
        let help = match whole {
            Location::File(_) => {
                "add certificates = [{ cert = \"site.pem\", key = \"site.key\" }], or acme = [\"site.example\"] to have one made, or self_signed = \"localhost\" for trying out"
            }
            _ => "add --cert FILE --key FILE, or --self-signed NAME for trying out",
        };
        // With one of --cert and --key alone, that has been said already.
        if matches!(whole, Location::File(_)) || !at.has("certificates") {
            mistakes.error(
                &whole,
                Problem::new("this route has no certificate to show to clients").help(help),
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
    if let Some(name) = route.self_signed.as_ref().filter(|name| !is_host(name)) {
        mistakes.error(
            &at.location("self_signed", None),
            Problem::new(format!("`{name}` is neither a host name nor an IP address")).help(
                "write the name by which clients connect, such as \"localhost\" (without a port)",
            ),
        );
    }
}

fn proxy_protocol(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let sends = route.proxy_protocol != ProxyProtocol::Off;
    if sends && route.is_echo() && at.sound(&["to"]) {
        mistakes.error(
            &at.location("proxy_protocol", None),
            Problem::new("there is no backend here that could be told who the client is")
                .label("`to` is `echo:`")
                .help("leave proxy_protocol away"),
        );
    }
    if route.proxy_protocol == ProxyProtocol::V2Certificate
        && (route.client_certificates == ClientAsk::None || route.pass_through)
    {
        mistakes.warning(
            &at.location("proxy_protocol", None),
            Problem::new("clients are not asked for certificates here, so none can be passed on")
                .help("proxy_protocol = \"v2\", or client_certificates = \"optional\""),
        );
    }
    for (n, network) in route.accept_proxy_from.iter().enumerate() {
        if network.prefix == 0 {
            mistakes.warning(
                &at.location("accept_proxy_from", Some(n)),
                Problem::new("anybody may now say that they are anybody else")
                    .label("this is every address there is")
                    .help("name the addresses of your proxies only"),
            );
        }
    }
}

/// Source addresses are of the backend's family, and each is one more.
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
                    Problem::new("\"auto\" stands alone").label("remove it, or the addresses"),
                );
            }
            continue;
        };
        let mut faults = route.to.iter().filter_map(|to| match &to.backend {
            Backend::Tcp { address, .. } if address.is_ipv4() != ip.is_ipv4() => Some(format!(
                "{ip} can't reach {address}: one is IPv4, the other IPv6"
            )),
            Backend::Tcp { .. } => None,
            Backend::Unix(_) | Backend::Echo => {
                Some("this backend is not connected to by an IP address".to_owned())
            }
        });
        let twice = || (!seen.insert(ip)).then(|| format!("{ip} is listed twice"));
        let fault = faults.next().or_else(twice);
        if let Some(fault) = fault {
            let location = at.location("source_addresses", Some(n));
            mistakes.error(&location, Problem::new(fault).label("remove this address"));
        }
    }
}
