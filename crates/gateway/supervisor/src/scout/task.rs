//! The task of the monitor's scout: the names that it looks up, and the backends that it checks.

use crate::configuration::edition::addresses;
use dormouse_config::milliseconds;
use dormouse_config::{self as config, Backend, Config, Probe, ProxyProtocol, SourceAddress};
use dormouse_dataplane::proxy_protocol;
use dormouse_handover::OriginPem;
use dormouse_helpers::scout::{Check, CheckTls, LookupSchedule, Task, TlsProfile};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The task for this configuration.
pub(super) fn task(config: &Config, backend_tls: &[Option<OriginPem>]) -> Task {
    let process = &config.process;
    let schedule = process.resolve_every.map(|every| LookupSchedule {
        every_ms: milliseconds(every),
        ttl_min_ms: milliseconds(process.resolve_ttl_min),
        ttl_max_ms: milliseconds(process.resolve_ttl_max.max(process.resolve_ttl_min)),
    });
    let names = config.watched_names();
    // A backend of several routes is checked by the settings of the first route with checks.
    let mut checks: BTreeMap<String, Check> = BTreeMap::new();
    let mut profiles: Vec<TlsProfile> = Vec::new();
    for (number, route) in config.routes.iter().enumerate() {
        if route.check == Probe::Off {
            continue;
        }
        let profile = profile(route, backend_tls.get(number).and_then(Option::as_ref));
        // Routes with equal settings share a profile, because the system's CAs are long.
        let known = |profile: &TlsProfile| profiles.iter().position(|one| one == profile);
        let number = profile
            .as_ref()
            .map(|new| known(new).unwrap_or(profiles.len()));
        if number == Some(profiles.len()) {
            profiles.extend(profile);
        }
        for upstream in &route.to {
            for address in addresses(&upstream.backend) {
                let check = check(route, number, &upstream.backend, &address);
                checks.entry(address).or_insert(check);
            }
        }
    }
    Task {
        names: match schedule {
            Some(_) => names.into_iter().map(str::to_owned).collect(),
            None => Vec::new(),
        },
        schedule,
        checks: checks.into_values().collect(),
        profiles,
    }
}

/// The TLS settings of a route's checks, if they speak TLS.
fn profile(route: &config::Route, pem: Option<&OriginPem>) -> Option<TlsProfile> {
    let asks_http = match route.check {
        Probe::Get(_) => true,
        Probe::Tls => false,
        Probe::Connect | Probe::Off => return None,
    };
    let pem = match pem {
        Some(pem) => pem.clone(),
        // The certificate is verified by clients, not by dormouse.
        None if route.pass_through => OriginPem::default(),
        None => return None,
    };
    // The check's request is HTTP/1.1, whatever the clients speak.
    let offered = &route.backend_alpn;
    let alpn = match asks_http && !offered.is_empty() {
        true => vec!["http/1.1".to_owned()],
        false => offered.clone(),
    };
    let ids = route.backend_ca.trust_domain();
    let ids = ids.map(|_| route.backend_ids.clone());
    Some(TlsProfile { pem, alpn, ids })
}

/// The server name of a check's handshake, the same as for clients' connections.
fn server_name(route: &config::Route, backend: &Backend) -> String {
    let exact = |name: &&config::ServerName| !name.as_str().starts_with("*.");
    let of_route = match route.pass_through {
        true => route
            .server_names
            .iter()
            .find(exact)
            .map(|name| name.as_str()),
        false => route.backend_name.as_deref(),
    };
    of_route
        .or(backend.host())
        .unwrap_or("localhost")
        .to_owned()
}

fn check(route: &config::Route, profile: Option<usize>, backend: &Backend, address: &str) -> Check {
    // Virtual hosts have no dot at their end, which only the resolver needs.
    let host = backend.authority();
    let host = host.as_deref().unwrap_or("localhost");
    let request = match &route.check {
        Probe::Get(path) => Some((
            format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: dormouse\r\n\
                 Connection: close\r\n\r\n"
            ),
            route.check_status,
        )),
        Probe::Connect | Probe::Tls | Probe::Off => None,
    };
    Check {
        backend: address.to_owned(),
        source: source(route, address),
        tls: profile.map(|profile| CheckTls {
            profile,
            server_name: server_name(route, backend),
        }),
        preface: match (request.is_some() || profile.is_some(), route.proxy_protocol) {
            (false, _) | (_, ProxyProtocol::Off) => Vec::new(),
            (true, ProxyProtocol::V1) => proxy_protocol::v1(None),
            (true, ProxyProtocol::V2 | ProxyProtocol::V2Certificate) => proxy_protocol::local(),
        },
        request,
        every_ms: milliseconds(route.check_every),
        timeout_ms: milliseconds(route.check_timeout),
        rise: route.check_rise,
        fall: route.check_fall,
    }
}

/// The local address of a check: the first of the route's, because a backend may accept connections from these only.
fn source(route: &config::Route, address: &str) -> Option<IpAddr> {
    let to: SocketAddr = address.parse().ok()?;
    let mut sources = route.source_addresses.iter();
    sources.find_map(|source| match source {
        SourceAddress::Address(ip) if ip.is_ipv4() == to.is_ipv4() => Some(*ip),
        SourceAddress::Address(_) | SourceAddress::Auto => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{Machine, Section};
    use std::io::Write as _;

    fn task_of(text: &str) -> Task {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        let resolve = |_: &str, port| Ok(vec![([10, 0, 0, 7], port).into()]);
        let loaded = config::load_with(
            Some(file.path()),
            Section::Route,
            &[],
            &Machine::read(),
            &resolve,
            &|_| Vec::new(),
        );
        let config = loaded.unwrap_or_else(|m| panic!("{m}")).config;
        let pem = |route: &config::Route| {
            route.backend_tls.then(|| OriginPem {
                roots: Some("roots".to_owned()),
                ..OriginPem::default()
            })
        };
        let pems: Vec<_> = config.routes.iter().map(pem).collect();
        task(&config, &pems)
    }

    /// A route with the options `more`.
    fn route(port: u16, more: &str) -> String {
        format!("[[route]]\nlisten = '127.0.0.1:{port}'\nself_signed = 'x'\n{more}\n")
    }

    fn of<'a>(task: &'a Task, backend: &str) -> &'a Check {
        let check = task.checks.iter().find(|check| check.backend == backend);
        check.unwrap_or_else(|| panic!("{backend} is not checked"))
    }

    #[test]
    fn a_check_names_the_host_without_its_final_dot() {
        for (to, host) in [
            (
                "app.ns.svc.cluster.local.:8080",
                "app.ns.svc.cluster.local:8080",
            ),
            ("app.example:8080", "app.example:8080"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            let task = task_of(&route(5001, &format!("to = '{to}'\ncheck = 'GET /a'")));
            let request = task.checks.first().and_then(|check| check.request.as_ref());
            let (request, _) = request.expect("a request");
            let expected = format!("GET /a HTTP/1.1\r\nHost: {host}\r\n");
            assert!(request.starts_with(&expected), "{request}");
        }
    }

    #[test]
    fn checks_use_tls_where_connections_do() {
        let tls = "backend_tls = true\nbackend_alpn = ['h2', 'http/1.1']";
        let text = [
            route(
                5001,
                &format!("to = 'app.example:1'\n{tls}\ncheck = 'GET /a'"),
            ),
            route(5002, &format!("to = '[::1]:2'\n{tls}\ncheck = 'GET /b'")),
            route(5003, &format!("to = '10.0.0.3:3'\n{tls}\ncheck = 'tls'")),
            route(
                5004,
                &format!("to = '10.0.0.4:4'\n{tls}\ncheck = 'connect'"),
            ),
            route(
                5005,
                "to = '10.0.0.5:5'\ncheck = 'GET /'\nproxy_protocol = 'v1'\n\
                 source_addresses = ['10.0.0.9', '10.0.0.8']",
            ),
            "[[route]]\nlisten = '127.0.0.1:5006'\npass_through = true\nto = '10.0.0.6:6'\n\
             server_names = ['*.a.example', 'b.example']\ncheck = 'tls'\nproxy_protocol = 'v2'\n"
                .to_owned(),
        ]
        .concat();
        let task = task_of(&text);
        assert_eq!(task.names, ["app.example:1"]);
        let speech = |backend: &str| {
            let tls = of(&task, backend).tls.as_ref()?;
            let speech = task.profiles.get(tls.profile)?;
            let roots = speech.pem.roots.as_deref();
            Some((tls.server_name.as_str(), speech.alpn.join(" "), roots))
        };
        let http = || "http/1.1".to_owned();
        let roots = Some("roots");
        assert_eq!(speech("10.0.0.7:1"), Some(("app.example", http(), roots)));
        assert_eq!(speech("[::1]:2"), Some(("::1", http(), roots)));
        assert_eq!(
            speech("10.0.0.3:3"),
            Some(("10.0.0.3", "h2 http/1.1".to_owned(), roots))
        );
        assert_eq!(speech("10.0.0.4:4"), None);
        assert_eq!(speech("10.0.0.5:5"), None);
        assert_eq!(
            speech("10.0.0.6:6"),
            Some(("b.example", String::new(), None))
        );
        assert_eq!(task.profiles.len(), 3, "the first two share a profile");
        // A backend that expects a PROXY header gets one before the first byte, and none with plain connects.
        assert!(of(&task, "10.0.0.4:4").preface.is_empty());
        assert_eq!(of(&task, "10.0.0.5:5").preface, proxy_protocol::v1(None));
        let nine = Some([10, 0, 0, 9].into());
        assert_eq!(of(&task, "10.0.0.5:5").source, nine, "as connections do");
        assert_eq!(of(&task, "10.0.0.4:4").source, None);
        assert_eq!(of(&task, "10.0.0.6:6").preface, proxy_protocol::local());
    }
}
