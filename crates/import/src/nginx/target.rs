//! Where connections go: `proxy_pass`, upstreams, and maps of names to either.

use super::context::Context;
use super::syntax::Directive;
use crate::advice::{
    BACKEND_VERSIONS, BACKENDS_ARE_VERIFIED, KEYS_ARE_PLAIN, NAMES_BY_EXPRESSION,
    NGINX_SEES_NO_TLS, ONE_LABEL, REVOKED_SERVERS, nginx_stays,
};
use crate::draft::Draft;
use crate::error::Position;
use crate::section::Section;
use crate::toml::{Backend, Certificate, backends, certificates, quoted_list};
use crate::value::time;

/// The target of clients that ask for one of these names or offer one of these protocols; without
/// names and protocols, of all other clients.
pub(super) struct TargetCase {
    pub(super) names: Vec<String>,
    pub(super) protocols: Vec<String>,
    /// What follows `proxy_pass`. Empty: nginx itself.
    pub(super) target: String,
    pub(super) position: Position,
}

impl TargetCase {
    fn whole(target: &str, position: &Position) -> TargetCase {
        TargetCase {
            names: Vec::new(),
            protocols: Vec::new(),
            target: target.to_owned(),
            position: position.clone(),
        }
    }
}

/// Returns the targets of a server.
pub(super) fn cases(
    context: &Context<'_>,
    server: &Directive,
    section: &mut Section,
) -> Vec<TargetCase> {
    if context.is_http {
        let pass = only_forwards(context, server);
        return vec![
            pass.map_or(TargetCase::whole("", &server.position), |pass| {
                TargetCase::whole(pass.word(1), &pass.position)
            }),
        ];
    }
    let Some(pass) = server.find("proxy_pass") else {
        return vec![TargetCase::whole("", &server.position)];
    };
    let Some(variable) = pass.word(1).strip_prefix('$') else {
        return vec![TargetCase::whole(pass.word(1), &pass.position)];
    };
    let is_it = |map: &&Directive| map.word(2).strip_prefix('$') == Some(variable);
    match context.block.all("map").find(is_it) {
        Some(map) => of_map(map, section),
        None => {
            section.add_to_do(
                &pass.position,
                "this target is computed for each connection: add backends to `to`",
            );
            Vec::from([TargetCase::whole("$", &pass.position)])
        }
    }
}

/// Converts a map from the client's server name or protocols.
fn of_map(map: &Directive, section: &mut Section) -> Vec<TargetCase> {
    let by_name = matches!(map.word(1), "$ssl_preread_server_name" | "$ssl_server_name");
    let by_protocol = matches!(
        map.word(1),
        "$ssl_preread_alpn_protocols" | "$ssl_alpn_protocol"
    );
    if !by_name && !by_protocol {
        section.add_to_do(
            &map.position,
            "routes are chosen only by server name and protocol: add backends to `to`",
        );
        return Vec::from([TargetCase::whole("$", &map.position)]);
    }
    let has_wildcards = map.block.iter().any(|line| line.name() == "hostnames");
    let mut cases: Vec<TargetCase> = Vec::new();
    for line in &map.block {
        let (pattern, target) = (line.name().trim_start_matches('\\'), line.word(1));
        if matches!(pattern, "hostnames" | "volatile") && target.is_empty() {
            continue;
        }
        let (mut names, mut protocols) = (Vec::new(), Vec::new());
        match pattern {
            "default" => {}
            "" => {
                let why = "clients without a server name or protocol go where all others go";
                section.leave_out(&line.position, "\"\"", why);
            }
            _ if by_name && !has_wildcards && pattern.starts_with(['*', '.']) => {
                let why = "without `hostnames`, this is no wildcard, so it matches no client";
                section.leave_out(&line.position, pattern, why);
            }
            _ if by_name => names = name(pattern, &line.position, section),
            _ => protocols = protocol(pattern, &line.position, section),
        }
        if pattern != "default" && names.is_empty() && protocols.is_empty() {
            continue;
        }
        let is_same = |case: &&mut TargetCase| {
            case.target == target
                && case.names.is_empty() == names.is_empty()
                && case.protocols.is_empty() == protocols.is_empty()
        };
        match cases.iter_mut().find(is_same) {
            Some(case) => {
                case.names.extend(names);
                case.protocols.extend(protocols);
            }
            None => cases.push(TargetCase {
                names,
                protocols,
                target: target.to_owned(),
                position: line.position.clone(),
            }),
        }
    }
    cases
}

/// Converts a server name: `.example.com` is two.
pub(super) fn name(text: &str, position: &Position, section: &mut Section) -> Vec<String> {
    match text {
        "" | "_" | "\"\"" => Vec::new(),
        _ if is_expression(text) => {
            section.add_to_do(position, &format!("{text}: {NAMES_BY_EXPRESSION}"));
            Vec::new()
        }
        _ => match text.strip_prefix('.') {
            Some(name) => {
                section.leave_out(position, text, ONE_LABEL);
                vec![name.to_owned(), format!("*.{name}")]
            }
            None => {
                if text.starts_with("*.") {
                    section.leave_out(position, text, ONE_LABEL);
                }
                vec![text.to_owned()]
            }
        },
    }
}

/// Returns whether the text stands for names that nginx matches and Dormouse cannot.
pub(super) fn is_expression(text: &str) -> bool {
    text.starts_with('~') || text.ends_with(".*") || text.contains('$')
}

/// Converts `h2`, `h2,http/1.1` or `~\bh2\b`.
fn protocol(text: &str, position: &Position, section: &mut Section) -> Vec<String> {
    let plain = text.trim_start_matches('~').replace("\\b", "");
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"/.-_".contains(&b))
    };
    let names: Vec<String> = plain.split(',').map(str::to_owned).collect();
    if names.iter().all(|name| is_name(name)) {
        return names;
    }
    section.leave_out(position, text, "protocols must be listed in `alpn`");
    Vec::new()
}

/// Returns the `proxy_pass` of an `http` server that only forwards requests. If it does anything
/// else, nginx has to stay.
pub(super) fn only_forwards<'a>(
    context: &Context<'a>,
    server: &'a Directive,
) -> Option<&'a Directive> {
    const OF_SERVER: [&str; 9] = [
        "listen",
        "server_name",
        "location",
        "access_log",
        "error_log",
        "http2",
        "keepalive_timeout",
        "client_max_body_size",
        "server_tokens",
    ];
    const OF_LOCATION: [&str; 8] = [
        "proxy_pass",
        "proxy_http_version",
        "proxy_read_timeout",
        "proxy_send_timeout",
        "proxy_connect_timeout",
        "proxy_buffering",
        "proxy_request_buffering",
        "client_max_body_size",
    ];
    let of_server = |one: &Directive| {
        let name = one.name();
        let is_for_tls = name.starts_with("ssl")
            || name.starts_with("proxy_ssl")
            || matches!(name, "allow" | "deny" | "limit_conn" | "set_real_ip_from");
        OF_SERVER.contains(&name) || is_for_tls
    };
    let of_location = |one: &Directive| match one.name() {
        "proxy_set_header" => matches!(
            one.word(1).to_ascii_lowercase().as_str(),
            "host" | "connection" | "upgrade"
        ),
        // Others change the responses.
        "proxy_redirect" => matches!(one.word(1), "default" | "off"),
        name => OF_LOCATION.contains(&name) || name.starts_with("proxy_ssl"),
    };
    let mut locations = server.all("location");
    let location = locations.next().filter(|one| one.word(1) == "/")?;
    let pass = location.find("proxy_pass")?;
    let (_, rest) = pass.word(1).split_once("://")?;
    let has_path = match rest.strip_prefix("unix:") {
        Some(path) => path.contains(':'),
        None => rest.contains('/'),
    };
    let simple = locations.next().is_none()
        && !has_path
        && !rest.contains('$')
        && server.block.iter().all(of_server)
        && location.block.iter().all(of_location)
        && !does_more(context.block);
    simple.then_some(pass)
}

/// Sets `to`, and TLS to the backends.
pub(super) fn set(
    context: &Context<'_>,
    server: &Directive,
    target: &str,
    position: &Position,
    section: &mut Section,
    draft: &mut Draft,
) {
    if target.is_empty() {
        if context.is_http {
            stays_behind(context, server, section, draft);
        } else {
            section.add_to_do(position, "this server has no backends: add them to `to`");
        }
        return;
    }
    if target.starts_with('$') {
        return;
    }
    let (scheme, target) = target.split_once("://").unwrap_or(("", target));
    let has_tls = match context.is_http {
        true => scheme.eq_ignore_ascii_case("https"),
        false => context.is_on(server, "proxy_ssl"),
    };
    let port = match (context.is_http, has_tls) {
        (true, true) => "443",
        (true, false) => "80",
        (false, _) => "",
    };
    let is_it = |upstream: &&Directive| upstream.word(1) == target;
    match context.block.all("upstream").find(is_it) {
        Some(upstream) => of_upstream(upstream, port, section),
        None => {
            let one = Backend {
                address: address(target, port),
                ..Backend::default()
            };
            section.set("to", backends(&[one]));
        }
    }
    if has_tls && !section.has("pass_through") {
        let location = server.all("location").next().unwrap_or(server);
        tls(context, server, location, target, position, section);
    }
    if !context.is_http && context.is_on(server, "proxy_protocol") {
        section.set_text("proxy_protocol", "v1");
    }
}

/// nginx continues to process requests, as an unencrypted backend.
fn stays_behind(
    context: &Context<'_>,
    server: &Directive,
    section: &mut Section,
    draft: &mut Draft,
) {
    // A client chooses among the servers of one address by the Host header, so servers that verify
    // clients differently need different addresses.
    // The IPv4 and the IPv6 listener of one port count as one.
    let listen = section.value("listen").unwrap_or_default();
    let listen = listen.replace("0.0.0.0:", ":").replace("[::]:", ":");
    let mut part: Vec<String> = (listen.trim_matches(['[', ']']).split(", "))
        .map(str::to_owned)
        .collect();
    part.sort();
    part.dedup();
    let verification = (section.options.iter()).filter(|(name, _)| name.starts_with("client_"));
    part.extend(verification.map(|(name, value)| format!("{name} {value}")));
    let address = draft.address_behind(part.join(" "));
    section.set_text("to", &address);
    section.set_text("proxy_protocol", "v1");
    section.add_to_do(&server.position, &nginx_stays(&address));
    // A map or header of all servers uses them, too.
    let around = context.block.block.iter();
    let mut around = around.filter(|one| !matches!(one.name(), "server" | "log_format"));
    let of_all = || around.find_map(|one| of_tls(std::slice::from_ref(one)));
    if let Some(one) = of_tls(&server.block).or_else(of_all) {
        section.add_to_do(&one.position, NGINX_SEES_NO_TLS);
    }
}

/// Returns the first directive that uses a TLS variable.
fn of_tls(block: &[Directive]) -> Option<&Directive> {
    const KNOWN: [&str; 6] = [
        "$scheme", "${scheme", "$https", "${https", "$ssl_", "${ssl_",
    ];
    block.iter().find_map(|one| {
        let is_it = |word: &str| {
            let word = word.to_ascii_lowercase();
            KNOWN.iter().any(|name| word.contains(name))
        };
        if one.values().any(is_it) {
            return Some(one);
        }
        of_tls(&one.block)
    })
}

/// Returns whether nginx processes the requests of all servers: whether it has a directive that is not known to leave
/// them alone. A module's directive may protect the backends, so it must not get lost.
fn does_more(block: &Directive) -> bool {
    const LEAVE_ALONE: [&str; 37] = [
        "access_log",
        "allow",
        "client_body_buffer_size",
        "client_body_timeout",
        "client_header_buffer_size",
        "client_header_timeout",
        "client_max_body_size",
        "default_type",
        "deny",
        "error_log",
        "http2",
        "include",
        "keepalive_requests",
        "keepalive_timeout",
        "large_client_header_buffers",
        "limit_conn_zone",
        "limit_req_zone",
        "log_format",
        "map",
        "proxy_buffer_size",
        "proxy_buffering",
        "proxy_buffers",
        "proxy_cache_path",
        "proxy_connect_timeout",
        "proxy_http_version",
        "proxy_read_timeout",
        "proxy_send_timeout",
        "resolver",
        "send_timeout",
        "sendfile",
        "server",
        "server_tokens",
        "set_real_ip_from",
        "tcp_nodelay",
        "tcp_nopush",
        "types",
        "upstream",
    ];
    let leaves_alone = |one: &Directive| {
        let name = one.name();
        let is_size = name.ends_with("_hash_max_size") || name.ends_with("_hash_bucket_size");
        let is_for_tls = name.starts_with("ssl_") || name.starts_with("proxy_ssl");
        LEAVE_ALONE.contains(&name) || is_size || is_for_tls || one.word(1) == "off"
    };
    !block.block.iter().all(leaves_alone)
}

fn of_upstream(upstream: &Directive, port: &str, section: &mut Section) {
    let mut all = Vec::new();
    for server in upstream.all("server") {
        let mut one = Backend {
            address: address(server.word(1), port),
            ..Backend::default()
        };
        let mut is_down = false;
        for word in server.values().skip(1) {
            match word.split_once('=').unwrap_or((word, "")) {
                ("weight", n) => one.weight = n.parse().ok(),
                ("max_conns", n) => one.max_connections = n.parse().ok().filter(|n| *n > 0),
                ("max_fails", "0") => section.leave_out(
                    &server.position,
                    word,
                    "a failed backend is always skipped for a while",
                ),
                ("max_fails", n) if n.parse::<u32>().is_ok() => section.set("backend_failures", n),
                ("fail_timeout", text) => section.time("backend_pause", time(text, 1000)),
                ("slow_start", text) => section.time("slow_start", time(text, 1000)),
                ("backup", _) => one.is_backup = true,
                ("down", _) => is_down = true,
                // Names are looked up repeatedly anyway.
                ("resolve", _) => {}
                _ => section.leave_out(
                    &server.position,
                    &server.shown(),
                    &format!("{word}: no equivalent"),
                ),
            }
        }
        if is_down {
            section.leave_out(&server.position, &server.shown(), "it is down");
        } else {
            all.push(one);
        }
    }
    if !all.is_empty() {
        section.set("to", backends(&all));
    }
    balance(upstream, section);
}

fn balance(upstream: &Directive, section: &mut Section) {
    for one in &upstream.block {
        let by_client = one.word(1).contains("remote_addr");
        match one.name() {
            "server" | "zone" | "keepalive" | "keepalive_timeout" | "keepalive_requests"
            | "resolver" => {}
            "least_conn" => section.set_text("balance", "least-connections"),
            "ip_hash" => section.set_text("balance", "client-hash"),
            "hash" if by_client => section.set_text("balance", "client-hash"),
            "least_time" | "random" => {
                section.set_text("balance", "least-connections");
                section.leave_out(
                    &one.position,
                    &one.shown(),
                    "the nearest equivalent is least-connections",
                );
            }
            _ => section.leave_out(&one.position, &one.shown(), "no equivalent"),
        }
    }
}

/// Sets TLS to the backends.
fn tls(
    context: &Context<'_>,
    server: &Directive,
    location: &Directive,
    target: &str,
    position: &Position,
    section: &mut Section,
) {
    let find = |name: &str| {
        location
            .find(name)
            .or_else(|| server.find(name))
            .or_else(|| context.block.find(name))
    };
    section.set("backend_tls", "true");
    match find("proxy_ssl_trusted_certificate") {
        Some(file) => section.set_text("backend_ca", &context.path(file.word(1))),
        None => section.add_to_do(position, BACKENDS_ARE_VERIFIED),
    }
    let is_group = context
        .block
        .all("upstream")
        .any(|upstream| upstream.word(1) == target);
    match find("proxy_ssl_name") {
        Some(name) if name.word(1).starts_with('$') => section.leave_out(
            &name.position,
            &name.shown(),
            "`backend_name` is one name for all backends; without it, each backend's own host is used",
        ),
        Some(name) => section.set_text("backend_name", name.word(1)),
        // nginx then asks for the name of the group.
        None if is_group && target.contains('.') => section.set_text("backend_name", target),
        None => {}
    }
    if let (Some(cert), Some(key)) = (
        find("proxy_ssl_certificate"),
        find("proxy_ssl_certificate_key"),
    ) {
        let one = Certificate {
            cert: context.path(cert.word(1)),
            key: Some(context.path(key.word(1))),
            ocsp: None,
        };
        section.set("backend_certificates", certificates(&[one]));
    }
    if let Some(alpn) = find("proxy_ssl_alpn") {
        section.set(
            "backend_alpn",
            quoted_list(&alpn.values().collect::<Vec<_>>()),
        );
    }
    let is_verified = find("proxy_ssl_verify").is_some_and(|one| one.is("on"));
    if let Some(one) = find("proxy_ssl_crl").filter(|_| is_verified) {
        let what = format!("{}: {REVOKED_SERVERS}", one.shown());
        section.add_to_do(&one.position, &what);
    }
    if let Some(one) = find("proxy_ssl_password_file") {
        section.add_to_do(&one.position, KEYS_ARE_PLAIN);
    }
    for name in [
        "proxy_ssl_protocols",
        "proxy_ssl_ciphers",
        "proxy_ssl_conf_command",
    ] {
        if let Some(one) = find(name) {
            section.leave_out(&one.position, &one.shown(), BACKEND_VERSIONS);
        }
    }
}

/// Converts `host`, `host:port`, `unix:/path` or `unix:/path:/uri`.
fn address(text: &str, port: &str) -> String {
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
