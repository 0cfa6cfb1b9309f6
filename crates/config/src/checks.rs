//! What must fit together: options with each other, routes with each other.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use super::address::UNIX_PATH_MAX;
use super::admin::Admin;
use super::amounts::SourceAddress;
use super::choices::{ClientAsk, ProxyProtocol, TlsVersion};
use super::endpoints::Backend;
use super::mistake::Collector;
use super::options::Route;
use super::placed::{At, Placed};
use super::raw::{Place, Wrong};
use super::units::show_duration;
use super::{Config, Section, UPSTREAMS_MAX, listeners};

/// Reports all that does not fit.
pub(super) fn check(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    for (index, route) in config.routes.iter().enumerate() {
        identity(route, index, placed, mistakes);
        let at = At {
            section: Section::Route,
            index,
            placed,
        };
        versions(at, route.min_version, route.max_version, mistakes);
        alpn(at, &route.alpn, mistakes);
        proxy_protocol(route, index, placed, mistakes);
        super::upstream::check(route, index, placed, mistakes);
        super::crypto::check(route, index, placed, mistakes);
        super::resumption::clients(route, index, placed, mistakes);
        super::sharing::rules(route, index, placed, mistakes);
        sources(route, index, placed, mistakes);
    }
    for (index, originate) in config.originate.iter().enumerate() {
        super::originate::check(originate, index, placed, mistakes);
    }
    let backends: usize = config.routes.iter().map(|route| route.to.len()).sum();
    if backends > UPSTREAMS_MAX {
        let wrong = Wrong::new(format!(
            "there are {backends} backends, at most {UPSTREAMS_MAX} may be"
        ));
        mistakes.error(&Place::Whole, wrong);
    }
    super::originate::files(config, placed, mistakes);
    super::sharing::check(config, placed, mistakes);
    listeners::no_overlap(config, placed, mistakes);
    listeners::loops(config, placed, mistakes);
    admin(config, placed, mistakes);
    amounts(config, placed, mistakes);
    super::resumption::tickets(config, placed, mistakes);
    super::acme::check(config, placed, mistakes);
    whole_seconds(config, placed, mistakes);
    keepalive(config, placed, mistakes);
    super::bounds::check(config, placed, mistakes);
}

/// A route shows either certificates or one made for it.
fn identity(route: &Route, index: usize, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let names = ["certificates", "self_signed"];
    if !placed.sound_in_route(index, &names) {
        return;
    }
    let whole = placed.in_route(index, "", None);
    if names
        .iter()
        .all(|name| placed.written_in_route(index, name))
    {
        mistakes.error(
            &placed.in_route(index, "self_signed", None),
            Wrong::new("a route shows either certificates or a self-signed one, not both")
                .label("remove one of the two"),
        );
    } else if route.certificates.is_empty()
        && route.self_signed.is_none()
        && route.acme.is_empty()
        && !route.pass_through
        && placed.sound_in_route(index, &["acme"])
    {
        let help = match whole {
            Place::File(_) => {
                "add certificates = [{ cert = \"site.pem\", key = \"site.key\" }], or acme = [\"site.example\"] to have one made, or self_signed = \"localhost\" for trying out"
            }
            _ => "add --cert FILE --key FILE, or --self-signed NAME for trying out",
        };
        // With one of --cert and --key alone, that has been said already.
        if matches!(whole, Place::File(_)) || !placed.written_in_route(index, "certificates") {
            mistakes.error(
                &whole,
                Wrong::new("this route has no certificate to show to clients").help(help),
            );
        }
    }
    let mut seen = BTreeSet::new();
    for (at, pair) in route.certificates.iter().enumerate() {
        if !seen.insert((&pair.cert, &pair.key)) {
            mistakes.error(
                &placed.in_route(index, "certificates", Some(at)),
                Wrong::new("this certificate is listed twice").label("remove one of the two"),
            );
        }
    }
    if let Some(name) = route.self_signed.as_ref().filter(|name| !is_host(name)) {
        mistakes.error(
            &placed.in_route(index, "self_signed", None),
            Wrong::new(format!("`{name}` is neither a host name nor an IP address")).help(
                "write the name by which clients connect, such as \"localhost\" (without a port)",
            ),
        );
    }
}

/// A name for a certificate: an IP address or a host name, its first label maybe `*`.
pub(super) fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let labels = name.strip_prefix("*.").unwrap_or(name);
    name.parse::<IpAddr>().is_ok() || labels.split('.').all(is_label)
}

pub(super) fn versions(at: At<'_>, min: TlsVersion, max: TlsVersion, mistakes: &mut Collector<'_>) {
    if !at.sound(&["min_version", "max_version"]) {
        return;
    }
    if min > max {
        mistakes.error(
            &at.place("min_version", None),
            Wrong::new(format!(
                "min_version {min} is above max_version {max}, so no client could connect",
            ))
            .help("leave both away for TLS 1.2 and 1.3"),
        );
    } else if max == TlsVersion::Tls12 {
        mistakes.warning(
            &at.place("max_version", None),
            Wrong::new("TLS 1.3 is turned off")
                .help("it is faster and safer; clients that can't speak it use 1.2 by themselves"),
        );
    }
}

pub(super) fn alpn(at: At<'_>, protocols: &[String], mistakes: &mut Collector<'_>) {
    alpn_of(at, "alpn", protocols, mistakes);
}

/// As [`alpn`], for the option of this name.
pub(super) fn alpn_of(
    at: At<'_>,
    option: &str,
    protocols: &[String],
    mistakes: &mut Collector<'_>,
) {
    let mut seen = BTreeSet::new();
    for (item, protocol) in protocols.iter().enumerate() {
        if !seen.insert(protocol) {
            mistakes.error(
                &at.place(option, Some(item)),
                Wrong::new(format!("`{protocol}` is listed twice")).label("remove one of the two"),
            );
        }
    }
}

fn proxy_protocol(route: &Route, index: usize, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let sends = route.proxy_protocol != ProxyProtocol::Off;
    if sends && route.is_echo() && placed.sound_in_route(index, &["to"]) {
        mistakes.error(
            &placed.in_route(index, "proxy_protocol", None),
            Wrong::new("there is no backend here that could be told who the client is")
                .label("`to` is `echo:`")
                .help("leave proxy_protocol away"),
        );
    }
    if route.proxy_protocol == ProxyProtocol::V2Certificate
        && (route.client_certificates == ClientAsk::None || route.pass_through)
    {
        mistakes.warning(
            &placed.in_route(index, "proxy_protocol", None),
            Wrong::new("clients are not asked for certificates here, so none can be passed on")
                .help("proxy_protocol = \"v2\", or client_certificates = \"optional\""),
        );
    }
    for (at, network) in route.accept_proxy_from.iter().enumerate() {
        if network.prefix == 0 {
            mistakes.warning(
                &placed.in_route(index, "accept_proxy_from", Some(at)),
                Wrong::new("anybody may now say that they are anybody else")
                    .label("this is every address there is")
                    .help("name the addresses of your proxies only"),
            );
        }
    }
}

/// Source addresses are of the backend's family, and each is one more.
fn sources(route: &Route, index: usize, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    if !placed.sound_in_route(index, &["source_addresses", "to"]) {
        return;
    }
    let mut seen = BTreeSet::new();
    for (at, source) in route.source_addresses.iter().enumerate() {
        let SourceAddress::Address(ip) = source else {
            if route.source_addresses.len() > 1 {
                mistakes.error(
                    &placed.in_route(index, "source_addresses", Some(at)),
                    Wrong::new("\"auto\" stands alone").label("remove it, or the addresses"),
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
            let place = placed.in_route(index, "source_addresses", Some(at));
            mistakes.error(&place, Wrong::new(fault).label("remove this address"));
        }
    }
}

fn admin(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let place = placed.option("admin");
    match &config.process.admin {
        Admin::Auto | Admin::None => {}
        Admin::Loopback(address) => {
            let listens = |route: &Route| route.listen.iter().any(|l| l.address == *address);
            if config.routes.iter().any(listens) {
                mistakes.error(
                    &place,
                    Wrong::new("a route listens on this address")
                        .help("give each an address of its own"),
                );
            }
        }
        Admin::Unix(path) => {
            let length = path.as_os_str().as_bytes().len();
            if length > UNIX_PATH_MAX {
                mistakes.error(
                    &place,
                    Wrong::new(format!(
                        "the path of this unix socket is {length} bytes long"
                    ))
                    .label(format!("at most {UNIX_PATH_MAX} bytes"))
                    .help("the kernel takes no longer one"),
                );
            }
            let is_it = |backend: &Backend| matches!(backend, Backend::Unix(to) if to == path);
            let backend = |route: &Route| route.to.iter().any(|to| is_it(&to.backend));
            if config.routes.iter().any(backend) {
                mistakes.error(
                    &place,
                    Wrong::new("this is also the socket of a backend")
                        .help("give it a path of its own"),
                );
            }
        }
    }
}

fn amounts(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let limits = &config.limits;
    let comparable = placed.sound(&["pending_per_connection", "pending_memory"]);
    let pending = limits.pending_memory.given();
    if let Some(pending) = pending.filter(|all| comparable && limits.pending_per_connection > *all)
    {
        mistakes.error(
            &placed.first_of(&["pending_per_connection", "pending_memory"]),
            Wrong::new(format!(
                "pending_per_connection ({}) is more than pending_memory ({}), of which it is a part",
                limits.pending_per_connection, pending
            ))
            .help(format!("make pending_memory at least {}, or this less", limits.pending_per_connection)),
        );
    }
    let (lifetime, rotation) = (
        config.tickets.ticket_lifetime,
        config.tickets.ticket_rotation,
    );
    if placed.sound(&["ticket_lifetime", "ticket_rotation"]) && lifetime > rotation {
        mistakes.error(
            &placed.first_of(&["ticket_lifetime", "ticket_rotation"]),
            Wrong::new(format!(
                "tickets would live {} but their key changes every {}",
                show_duration(lifetime),
                show_duration(rotation)
            ))
            .help("a key opens tickets for one more rotation after it was replaced: make ticket_rotation at least ticket_lifetime"),
        );
    }
}

/// The kernel and the protocol count these in seconds.
fn whole_seconds(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let sockets = &config.sockets;
    let counted = [
        ("keepalive_idle", sockets.keepalive_idle),
        ("keepalive_interval", Some(sockets.keepalive_interval)),
        ("ticket_lifetime", Some(config.tickets.ticket_lifetime)),
    ];
    for (name, duration) in counted {
        if duration.is_some_and(|duration| duration.subsec_nanos() != 0) {
            mistakes.error(
                &placed.option(name),
                Wrong::new(format!("`{name}` is counted in whole seconds"))
                    .help("round it to the next second"),
            );
        }
    }
}

/// With TCP_USER_TIMEOUT the kernel takes a peer for gone at the first probe after
/// that time, however few probes were sent.
fn keepalive(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let sockets = &config.sockets;
    let (Some(idle), Some(user)) = (sockets.keepalive_idle, sockets.user_timeout) else {
        return;
    };
    if !placed.sound(&[
        "user_timeout",
        "keepalive_idle",
        "keepalive_interval",
        "keepalive_count",
    ]) {
        return;
    }
    let probes = sockets.keepalive_interval * sockets.keepalive_count;
    if user < idle + probes {
        let fitting = idle.checked_add(probes).unwrap_or(Duration::MAX);
        mistakes.warning(
            &placed.first_of(&["user_timeout", "keepalive_idle", "keepalive_interval", "keepalive_count"]),
            Wrong::new(format!(
                "user_timeout ({}) ends before the keepalive probes do ({})",
                show_duration(user),
                show_duration(fitting)
            ))
            .help("a resting connection could be lost with a single lost packet: raise user_timeout or lower keepalive_idle"),
        );
    }
}
