//! Other directives of a server: certificates, TLS, clients, networks, times; those without an equivalent; and those
//! of the program.

use super::context::{Context, Server, from as origins_of};
use super::forward;
use super::syntax::{Directive, Whole};
use crate::advice::{
    CLIENT_NETWORKS, CLIENTS_UNCHECKED, COMMAND, CONNECTIONS_OF_ALL_WORKERS, OCSP, PASSPHRASES,
    TOKEN_KEY,
};
use crate::draft::Draft;
use crate::origin::Origins;
use crate::section::{Fate, Section};
use crate::toml::{Certificate, certificates, quoted_list};
use crate::value::time;

const OTHER_SERVERS: &str = "only TLS of `stream` and `http` is converted: \
    keep nginx for these servers, or their addresses will not be served";
const ERROR_LOG: &str = "the log goes to standard error: `log_level`, `log_handshakes`";
const BYTES_PER_CLIENT: &str = "use `bytes_per_client`";
const OWN: &str = "memory and sockets of nginx";
const PROCESS: &str = "how the process runs";
const DEFAULT: &str = "this is the default here, too";

/// Directives of the program without effect here, and why.
pub(super) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("daemon", PROCESS),
    ("env", PROCESS),
    ("load_module", PROCESS),
    ("lock_file", PROCESS),
    ("master_process", PROCESS),
    ("pcre_jit", PROCESS),
    ("pid", PROCESS),
    ("thread_pool", PROCESS),
    ("timer_resolution", PROCESS),
    ("worker_cpu_affinity", PROCESS),
    ("worker_priority", PROCESS),
    ("working_directory", PROCESS),
    ("worker_rlimit_core", PROCESS),
    ("debug_points", PROCESS),
    ("ssl_engine", PROCESS),
];

const EVENTS: [&str; 6] = [
    "accept_mutex",
    "accept_mutex_delay",
    "debug_connection",
    "multi_accept",
    "use",
    "worker_aio_requests",
];

/// Options of the program.
pub(super) fn of_program(whole: &Whole, draft: &mut Draft) {
    for one in &whole.block {
        let (from, program) = (one.origin, &mut draft.program);
        match one.name() {
            "http" | "stream" => {}
            "worker_processes" if one.word(1) == "auto" => program.without_effect(from, DEFAULT),
            "worker_processes" => program.number("workers", one.word(1), from),
            "user" => {
                program.set_text("user", one.word(1), from);
                if !one.word(2).is_empty() {
                    program.set_text("group", one.word(2), from);
                }
            }
            "worker_rlimit_nofile" => program.left_out(
                from,
                "set it where the program starts: LimitNOFILE= or ulimit -Hn",
            ),
            "worker_shutdown_timeout" => {
                draft.longest("shutdown_grace", time(one.word(1), 1000), from);
            }
            "events" => {
                for inner in &one.block {
                    match inner.name() {
                        "worker_connections" => {
                            program.left_out(inner.origin, CONNECTIONS_OF_ALL_WORKERS)
                        }
                        name if EVENTS.contains(&name) => {
                            program.without_effect(inner.origin, PROCESS);
                        }
                        _ => {}
                    }
                }
                if one.block.is_empty() {
                    program.without_effect(from, PROCESS);
                }
            }
            "error_log" => program.left_out(from, ERROR_LOG),
            _ if has_servers(one) => program.step(one.origins(), OTHER_SERVERS),
            name => {
                if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name) {
                    program.without_effect(from, *why);
                }
            }
        }
    }
}

/// Other modules have servers, too: `mail`, `rtmp`.
fn has_servers(one: &Directive) -> bool {
    !matches!(one.name(), "http" | "stream") && one.find("server").is_some()
}

/// Returns whether servers of other modules have TLS.
pub(super) fn has_other_tls(whole: &Whole) -> bool {
    let others = whole.block.iter().filter(|one| has_servers(one));
    let mut inner = others.flat_map(|one| &one.block);
    inner.any(|one| {
        let mut all = [one].into_iter().chain(&one.block);
        all.any(|one| one.has_word("ssl") || one.name().starts_with("ssl_"))
    })
}

/// Says what becomes of the directives around the servers.
pub(super) fn of_context(context: &Context<'_>, draft: &mut Draft) {
    if context.is_http {
        return forward::around(context, draft);
    }
    let claimed = draft.claimed();
    for one in context
        .block
        .block
        .iter()
        .filter(|one| one.name() != "server")
    {
        let from = one
            .inner_origins()
            .into_iter()
            .filter(|one| !claimed.contains(one));
        let from: Origins = from.collect();
        if from.is_empty() {
            continue;
        }
        let program = &mut draft.program;
        match one.name() {
            "js_access" => program.step(from, CLIENT_NETWORKS),
            "map" | "upstream" | "geo" | "split_clients" => {
                program.without_effect(from, "no converted server uses it");
            }
            "limit_conn_zone" => program.without_effect(from, "memory for `limit_conn`"),
            name => match fate_of(name) {
                Some((fate, why)) => program.say(fate, from, why),
                None if super::context::is_inherited(name) => {
                    program.without_effect(from, "each server has its own, or does not use it");
                }
                None => {}
            },
        }
    }
}

const CODE: &str = "this code saw, chose or changed what clients sent, and Dormouse runs none: find out whether it \
    refused any";

/// Returns what becomes of a directive of `stream` that no option takes.
pub(super) fn fate_of(name: &str) -> Option<(Fate, &'static str)> {
    Some(match name {
        "js_import"
        | "js_include"
        | "js_path"
        | "js_set"
        | "js_var"
        | "js_preload_object"
        | "js_shared_dict_zone" => (Fate::LeftOut, "Dormouse runs no code for a connection"),
        "js_preread" | "js_filter" | "js_periodic" => (Fate::ToDo, CODE),
        name if name.contains("_by_lua") => (Fate::ToDo, CODE),
        "log_format" => (
            Fate::WithoutEffect,
            "the fields of `connection_log` are always the same",
        ),
        "error_log" => (Fate::LeftOut, ERROR_LOG),
        "proxy_upload_rate" | "proxy_download_rate" => (Fate::LeftOut, BYTES_PER_CLIENT),
        "limit_conn_log_level" | "limit_conn_dry_run" => {
            (Fate::WithoutEffect, "it belongs to `limit_conn`")
        }
        "resolver" | "resolver_timeout" => (
            Fate::WithoutEffect,
            "names are looked up with the system's resolver",
        ),
        "tcp_nodelay"
        | "proxy_buffer_size"
        | "proxy_socket_keepalive"
        | "preread_buffer_size"
        | "proxy_next_upstream"
        | "proxy_next_upstream_tries"
        | "proxy_next_upstream_timeout"
        | "proxy_responses"
        | "proxy_requests"
        | "variables_hash_max_size" => (Fate::WithoutEffect, OWN),
        _ if name.ends_with("_hash_bucket_size") || name.ends_with("_hash_max_size") => {
            (Fate::WithoutEffect, OWN)
        }
        _ => return None,
    })
}

/// Converts `access_log`: a line for each connection, or each request.
pub(super) fn log(server: &Server<'_>, draft: &mut Draft) {
    for one in server.all("access_log") {
        match one.word(1) {
            "off" => draft.program.without_effect(one.origin, DEFAULT),
            target if target.starts_with("syslog:") || target.contains('$') => {
                let why = "set `connection_log` to one file, or to syslog";
                draft.program.left_out(one.origin, why);
            }
            path => draft.connection_log(&server.context.path(path), one.origin),
        }
    }
}

/// Converts the certificates of a server, or of the context around it, with their OCSP response.
pub(super) fn show(server: &Server<'_>, section: &mut Section) {
    let certs = server.all("ssl_certificate");
    let keys = server.all("ssl_certificate_key");
    let ocsp = server.find("ssl_stapling_file");
    // A key in a token, of the engine or of a provider.
    let token = |one: &Directive| -> Option<String> {
        let word = one.word(1);
        let uri = word
            .strip_prefix("engine:pkcs11:")
            .or_else(|| word.strip_prefix("store:"))?;
        uri.starts_with("pkcs11:").then(|| uri.to_owned())
    };
    let path = |one: &Directive| server.context.path(one.word(1));
    let is_of_token =
        |one: &Directive| one.word(1).starts_with("engine:") || one.word(1).starts_with("store:");
    let is_no_file =
        |one: &&Directive| one.word(1).contains('$') || one.word(1).starts_with("data:");
    let is_unknown = |one: &&Directive| is_of_token(one) && token(one).is_none();
    if keys.iter().any(is_unknown) || certs.iter().any(|one| is_of_token(one)) {
        let from: Origins = certs.iter().chain(&keys).map(|one| one.origin).collect();
        section.step(from, TOKEN_KEY);
    } else if certs.iter().chain(&keys).any(is_no_file) {
        let from: Origins = certs.iter().chain(&keys).map(|one| one.origin).collect();
        section.step(
            from,
            "list files, or a directory of them, in `certificates`",
        );
    } else if !certs.is_empty() {
        let of = |(n, cert): (usize, &&Directive)| {
            let cert = path(cert);
            Certificate {
                key: keys
                    .get(n)
                    .map(|one| token(one).unwrap_or_else(|| path(one)))
                    .filter(|key| *key != cert),
                cert,
                // The response is for one of the certificates; only the file could say which.
                ocsp: ocsp.map(path).filter(|_| certs.len() == 1),
            }
        };
        let all: Vec<Certificate> = certs.iter().enumerate().map(of).collect();
        let mut from: Origins = certs.iter().chain(&keys).map(|one| one.origin).collect();
        from.add(origins_of(ocsp.filter(|_| certs.len() == 1)));
        section.set("certificates", certificates(&all), from);
        let in_tokens: Origins = (keys.iter().filter(|one| is_of_token(one)))
            .map(|one| one.origin)
            .collect();
        if !in_tokens.is_empty() {
            section.step(in_tokens, TOKEN_LIBRARY);
        }
    } else if !keys.is_empty() {
        section.without_effect(origins_of(keys), "there is no `ssl_certificate`");
    }
    if let Some(one) = ocsp.filter(|_| certs.len() != 1) {
        section.left_out(
            one.origin,
            "set `ocsp` beside the certificate that the response is for",
        );
    }
    if let Some(one) = server.find("ssl_password_file") {
        section.step(one.origin, PASSPHRASES);
    }
}

/// Converts versions, suites, groups and sessions.
pub(super) fn crypto(server: &Server<'_>, section: &mut Section, draft: &mut Draft) {
    let find = |name: &str| server.find(name);
    // Several lines add to each other.
    let protocols = server.all("ssl_protocols");
    if !protocols.is_empty() {
        let names = protocols.iter().flat_map(|one| one.values());
        section.versions(names, origins_of(protocols.iter().copied()));
    }
    let mut tls12 = find("ssl_ciphers").map(|one| (one.word(1), Origins::from(one.origin)));
    let mut tls13 = None;
    for one in server.all("ssl_conf_command") {
        let (value, from) = (one.word(2), Origins::from(one.origin));
        match one.word(1).to_ascii_lowercase().as_str() {
            "ciphersuites" => tls13 = Some((value, from)),
            "cipherstring" => {
                let (_, before) = tls12.replace((value, from)).unwrap_or_default();
                section.replaced(before);
            }
            "curves" | "groups" => section.groups(value, from),
            "minprotocol" => section.version("min_version", value, from),
            "maxprotocol" => section.version("max_version", value, from),
            "options" | "signaturealgorithms" | "dhparameters" => {
                section.left_out(from, "no equivalent");
            }
            _ => section.step(from, COMMAND),
        }
    }
    section.suites(tls12, tls13);
    if let Some(one) = find("ssl_ecdh_curve") {
        section.groups(one.word(1), one.origin);
    }
    if let Some(one) = find("ssl_alpn") {
        let all: Vec<&str> = one.values().collect();
        section.set("alpn", quoted_list(&all), one.origin);
    }
    sessions(server, section, draft);
    without_option(server, section);
}

/// Says what becomes of settings of TLS that have no option.
fn without_option(server: &Server<'_>, section: &mut Section) {
    let find = |name: &str| server.find(name);
    for (name, why) in [
        (
            "ssl_dhparam",
            "finite-field Diffie-Hellman is not supported",
        ),
        ("ssl_early_data", "0-RTT data is never accepted"),
    ] {
        match find(name) {
            Some(one) if one.is("off") => section.without_effect(one.origin, DEFAULT),
            Some(one) => section.left_out(one.origin, why),
            None => {}
        }
    }
    for (name, why) in [
        ("ssl_stapling", OCSP),
        ("ssl_stapling_verify", OCSP),
        (
            "ssl_stapling_responder",
            "the responder that the certificate names is asked",
        ),
        (
            "ssl_prefer_server_ciphers",
            "the client chooses among the suites, which are all AEAD",
        ),
        ("ssl_buffer_size", "bytes are passed on as they come"),
        ("ssl_reject_handshake", DEFAULT),
        (
            "ssl_object_cache_inheritable",
            "memory and sockets of nginx",
        ),
    ] {
        if let Some(one) = find(name) {
            section.without_effect(one.origin, why);
        }
    }
    match find("ssl_verify_depth") {
        Some(one) if one.is("0") => section.step(one.origin, NO_INTERMEDIATES),
        Some(one) => section.left_out(one.origin, DEPTH),
        None => {}
    }
    if let Some(one) = find("ssl").filter(|one| !one.is("on")) {
        section.without_effect(one.origin, "`listen … ssl` has precedence");
    }
}

const DEPTH: &str = "the depth of chains cannot be set";
const NO_INTERMEDIATES: &str = "only the authority itself could sign clients' certificates; here \
    other authorities that it has signed may, too: use `client_allow` for the clients to accept";

fn sessions(server: &Server<'_>, section: &mut Section, draft: &mut Draft) {
    let (cache, tickets) = (
        server.find("ssl_session_cache"),
        server.find("ssl_session_tickets"),
    );
    let size = cache.and_then(|one| {
        let shared = one.values().find(|word| word.starts_with("shared:"))?;
        let size = shared.rsplit(':').next()?;
        Some(size.to_ascii_uppercase())
    });
    let no_tickets = tickets.is_some_and(|one| one.is("off"));
    let both = origins_of(cache.into_iter().chain(tickets));
    match (no_tickets, size) {
        // Otherwise tickets hold the sessions, and clients without tickets have a cache anyway.
        (true, Some(size)) => {
            section.has_no_tickets = true;
            draft
                .program
                .set_text("session_cache", &size, origins_of(cache));
            // It is the same with another size.
            draft.program.beside("session_cache", origins_of(tickets));
        }
        (true, None) => draft.no_tickets(section, both),
        (false, _) if !both.is_empty() => {
            section.without_effect(
                both,
                "tickets hold the sessions, and there is a small cache beside them",
            );
        }
        (false, _) => {}
    }
    if let Some(one) = server.find("ssl_session_timeout") {
        let Some(ms) = time(one.word(1), 1000) else {
            return section.left_out(one.origin, "this is not a time");
        };
        let lifetime = config_time(ms.clamp(60_000, 7 * 86_400_000));
        draft
            .program
            .set_text("ticket_lifetime", &lifetime, one.origin);
        if ms > 12 * 3_600_000 {
            draft
                .program
                .set_text("ticket_rotation", &lifetime, one.origin);
        }
    }
    let keys = server.all("ssl_session_ticket_key");
    let files = keys
        .iter()
        .map(|one| format!("file:{}", server.context.path(one.word(1))));
    let files: Vec<String> = files.collect();
    if !files.is_empty() {
        draft
            .program
            .set("ticket_keys", quoted_list(&files), origins_of(keys));
    }
}

fn config_time(ms: u64) -> String {
    dormouse_config::show_duration(std::time::Duration::from_millis(ms))
}

/// Converts the verification of client certificates.
pub(super) fn clients(server: &Server<'_>, section: &mut Section) {
    let find = |name: &str| server.find(name);
    let (ca, trusted) = (
        find("ssl_client_certificate"),
        find("ssl_trusted_certificate"),
    );
    let (crl, ocsp) = (find("ssl_crl"), find("ssl_ocsp"));
    let of_ocsp = ["ssl_ocsp_cache", "ssl_ocsp_responder"]
        .into_iter()
        .filter_map(find);
    let verify = find("ssl_verify_client");
    let how = match verify
        .map(|one| one.word(1).to_ascii_lowercase())
        .as_deref()
    {
        Some(other) if !matches!(other, "on" | "off" | "optional" | "optional_no_ca") => {
            let why = "this is neither `on` nor `off` nor `optional`: set `client_certificates`";
            section.step(origins_of(verify), why);
            "required"
        }
        Some("on") => "required",
        Some("optional") => "optional",
        Some("optional_no_ca") => {
            let why = "a client certificate that is sent must be valid here";
            section.left_out(origins_of(verify), why);
            "optional"
        }
        _ => {
            // `ssl_trusted_certificate` is also for OCSP responses.
            let all = verify
                .into_iter()
                .chain(ca)
                .chain(trusted)
                .chain(crl)
                .chain(ocsp);
            let all = origins_of(all.chain(of_ocsp));
            if !all.is_empty() {
                section.without_effect(all, "no client certificate is requested");
            }
            return;
        }
    };
    section.set_text("client_certificates", how, origins_of(verify));
    let path = |one: &Directive| server.context.path(one.word(1));
    match (ca, trusted) {
        (Some(ca), trusted) => {
            section.set_text("client_ca", &path(ca), ca.origin);
            match trusted {
                Some(one) if path(one) == path(ca) => section.also("client_ca", one.origin),
                Some(one) => section.left_out(
                    one.origin,
                    "clients of these authorities were accepted, too: put both into one folder, and set `client_ca` to it",
                ),
                None => {}
            }
        }
        (None, Some(one)) => section.set_text("client_ca", &path(one), one.origin),
        (None, None) => {}
    }
    match ocsp {
        Some(one) if one.is("off") => section.without_effect(one.origin, DEFAULT),
        Some(one) => section.step(one.origin, CLIENTS_UNCHECKED),
        None => {}
    }
    let of_ocsp = origins_of(of_ocsp);
    if !of_ocsp.is_empty() {
        section.without_effect(of_ocsp, "it belongs to `ssl_ocsp`");
    }
    if let Some(one) = crl {
        section.set("client_crl", quoted_list(&[path(one)]), one.origin);
    }
}

/// Sets the times of a route, and those that apply to the whole program.
pub(super) fn times(server: &Server<'_>, section: &mut Section, draft: &mut Draft) {
    for (name, option) in [
        ("proxy_connect_timeout", "backend_connect_timeout"),
        ("ssl_handshake_timeout", "handshake_timeout"),
        ("preread_timeout", "handshake_timeout"),
    ] {
        let location = server.own.find("location").filter(|_| server.is_http());
        let found = location
            .and_then(|one| one.find(name))
            .or_else(|| server.find(name));
        if let Some(one) = found {
            let ms = time(one.word(1), 1000);
            match option {
                "handshake_timeout" => draft.longest(option, ms, one.origin),
                _ => section.longest(option, ms, one.origin),
            }
        }
    }
    if !server.is_http() {
        // nginx's default is ten minutes; Dormouse has no limit by default.
        match server.find("proxy_timeout") {
            None => section.longest("idle_timeout", Some(600_000), Origins::default()),
            Some(one) => section.longest("idle_timeout", time(one.word(1), 1000), one.origin),
        }
    }
}

/// Converts, or explains, the directives that no other function takes.
pub(super) fn rest(
    server: &Server<'_>,
    passes_through: bool,
    section: &mut Section,
    draft: &mut Draft,
) {
    let limits = server.all("limit_conn");
    for one in limits {
        limit(server, one, section, draft);
    }
    for one in &server.own.block {
        let (name, from) = (one.name(), one.origin);
        match name {
            "error_log" => section.left_out(from, ERROR_LOG),
            "js_access" => section.step(from, CLIENT_NETWORKS),
            "health_check" if !server.is_http() => {
                health_check(one, server.is_on("proxy_ssl"), section)
            }
            "ssl_preread" if !passes_through || !one.is("on") => {
                section.without_effect(from, "there is no map by the ClientHello here");
            }
            "return" if !server.is_http() => {
                section.step(from, "nginx answers by itself: let a backend do so")
            }
            _ if server.is_http() => {}
            _ => {
                if let Some((fate, why)) = fate_of(name) {
                    section.say(fate, from, why);
                }
            }
        }
    }
    if let Some(one) = server.find("proxy_bind").filter(|_| !server.is_http()) {
        match one.word(1).parse::<std::net::IpAddr>() {
            Ok(_) if !one.has_word("transparent") => {
                section.set_text("source_addresses", one.word(1), one.origin);
            }
            _ => section.left_out(
                one.origin,
                "`source_addresses` takes IP addresses; `proxy_protocol` sends those of clients",
            ),
        }
    }
    for name in ["proxy_upload_rate", "proxy_download_rate"] {
        if let Some(one) = server.find(name) {
            section.left_out(one.origin, BYTES_PER_CLIENT);
        }
    }
    if passes_through {
        let tls = server.own.block.iter().chain(&server.context.block.block);
        let tls = tls.filter(|one| one.name().starts_with("ssl_") && one.name() != "ssl_preread");
        let from = origins_of(tls);
        if !from.is_empty() {
            section.without_effect(from, "TLS passes through to the backend");
        }
        if let Some(one) = server.find("proxy_half_close") {
            section.without_effect(one.origin, "both directions pass through");
        }
    }
}

/// Converts `proxy_half_close`. `on` is the default of Dormouse, and all that it can do with TLS to the backend.
pub(super) fn half_close(server: &Server<'_>, section: &mut Section) {
    match server.find("proxy_half_close") {
        Some(one) if one.is("off") && !server.is_on("proxy_ssl") => {
            section.set("half_close", "false", one.origin);
        }
        Some(one) => section.without_effect(one.origin, DEFAULT),
        None => {}
    }
}

const TOKEN_LIBRARY: &str = "add ?module-path=/LIBRARY.so&pin-source=/FILE to the URI of the key: the library of the \
    token, and a file with the PIN that only its owner can read; and set `pkcs11_user`";

fn limit(server: &Server<'_>, one: &Directive, section: &mut Section, draft: &mut Draft) {
    let name = format!("zone={}", one.word(1));
    let is_its = |word: &str| word.split(':').next() == Some(&*name);
    let mut zones = server.context.block.all("limit_conn_zone");
    let zone = zones.find(|zone| zone.values().any(is_its));
    let key = zone.map(|zone| zone.word(1).replace(['{', '}'], ""));
    let is_key = |words: &[&str]| key.as_deref().is_some_and(|key| words.contains(&key));
    let by_client = key.is_none() || is_key(&["$binary_remote_addr", "$remote_addr"]);
    match one.word(2).parse::<u64>() {
        Ok(n) if is_key(&["$server_name", "$server_addr", "$server_port"]) => {
            let why = "converted, but each route has this limit for itself";
            section.left_out(one.origin, why);
            section.lowest("route_max_connections", &n.to_string(), one.origin);
        }
        _ if !by_client => section.step(one.origin, "this did not count the connections of each client: see `connections_per_client` and `max_connections`"),
        Ok(n) => {
            draft.largest("connections_per_client", n, one.origin);
        }
        Err(_) => section.step(one.origin, "set `connections_per_client`"),
    }
}

/// Converts `health_check` of nginx Plus.
fn health_check(one: &Directive, has_tls: bool, section: &mut Section) {
    section.set_text("check", if has_tls { "tls" } else { "connect" }, one.origin);
    for (n, word) in one.words.iter().enumerate().skip(1) {
        let from = one.part(n);
        match word.split_once('=').unwrap_or((word, "")) {
            ("interval", text) => section.time("check_every", time(text, 1000), from),
            ("fails", n) => section.number("check_fall", n, from),
            ("passes", n) => section.number("check_rise", n, from),
            _ => section.left_out(from, "checks only connect, or make a TLS handshake"),
        }
    }
}
