//! Other directives of a server: certificates, TLS, clients, networks, times; and those without an
//! equivalent.

use super::context::Context;
use super::syntax::Directive;
use crate::advice::{
    ACCEPTED_BEFORE, CLIENT_NETWORKS, CLIENTS_UNCHECKED, CONNECTIONS_OF_ALL_WORKERS, KEYS_ARE_PLAIN,
};
use crate::draft::Draft;
use crate::openssl::version;
use crate::section::Section;
use crate::toml::{Certificate, certificates, quoted_list};
use crate::value::{overlap, time};

/// Options of the program.
pub(super) fn of_program(whole: &Directive, draft: &mut Draft) {
    for one in &whole.block {
        let shown = one.shown();
        match one.name() {
            "worker_processes" if one.word(1) != "auto" => {
                draft.number("workers", one.word(1), &one.position, &shown);
            }
            "user" => {
                draft.set_text("user", one.word(1));
                if !one.word(2).is_empty() {
                    draft.set_text("group", one.word(2));
                }
            }
            "worker_rlimit_nofile" => {
                draft.leave_out(
                    &one.position,
                    &shown,
                    "set it where the program starts: LimitNOFILE= or ulimit -Hn",
                );
            }
            "worker_shutdown_timeout" => {
                if let Some(ms) = time(one.word(1), 1000) {
                    draft.longest("shutdown_grace", ms, &one.position, &shown);
                }
            }
            "events" => {
                if let Some(one) = one.find("worker_connections") {
                    draft.leave_out(&one.position, &one.shown(), CONNECTIONS_OF_ALL_WORKERS);
                }
            }
            // How nginx runs, which has no effect on a client.
            "daemon"
            | "http"
            | "include"
            | "load_module"
            | "lock_file"
            | "master_process"
            | "pcre_jit"
            | "pid"
            | "stream"
            | "thread_pool"
            | "timer_resolution"
            | "worker_cpu_affinity"
            | "worker_priority"
            | "worker_processes" => {}
            "error_log" => draft.leave_out(&one.position, &shown, ERROR_LOG),
            // Other modules have servers, too: `mail`, `rtmp`.
            _ if one.find("server").is_some() => {
                draft.add_to_do(&one.position, &format!("{shown}: {OTHER_SERVERS}"));
            }
            _ => draft.leave_out(&one.position, &shown, "no equivalent"),
        }
    }
}

const OTHER_SERVERS: &str = "only TLS of `stream` and `http` is converted: \
    keep nginx for these servers, or their addresses will not be served";
const ERROR_LOG: &str = "the log goes to standard error: `log_level`, `log_handshakes`";
const BYTES_PER_CLIENT: &str = "use `bytes_per_client`";

/// Leaves out directives around the servers of `stream`.
pub(super) fn of_context(context: &Context<'_>, draft: &mut Draft) {
    if context.is_http {
        return;
    }
    for one in &context.block.block {
        let why = match one.name() {
            "split_clients" | "geo" | "js_import" | "js_set" | "js_path" => {
                "Dormouse does not inspect the contents of connections"
            }
            "log_format" => "the fields of `connection_log` are always the same",
            "error_log" => ERROR_LOG,
            "limit_conn" => "use `connections_per_client`",
            "proxy_upload_rate" | "proxy_download_rate" => BYTES_PER_CLIENT,
            "js_access" => {
                let what = format!("{}: {CLIENT_NETWORKS}", one.shown());
                draft.add_to_do(&one.position, &what);
                continue;
            }
            name if is_known(name) || is_of_context(name) => continue,
            _ => "no equivalent",
        };
        draft.leave_out(&one.position, &one.shown(), why);
    }
}

/// Converts `access_log`: a line for each connection, or each request.
pub(super) fn log(context: &Context<'_>, server: &Directive, draft: &mut Draft) {
    for one in context.all(server, "access_log") {
        match one.word(1) {
            "off" => {}
            target if target.starts_with("syslog:") || target.contains('$') => {
                let why = "set `connection_log` to one file, or to syslog";
                draft.leave_out(&one.position, &one.shown(), why);
            }
            path => draft.connection_log(&context.path(path), &one.position, &one.shown()),
        }
    }
}

/// Converts the certificates of a server, or of the context around it, with their OCSP response.
pub(super) fn show(context: &Context<'_>, server: &Directive, section: &mut Section) {
    let certs = context.all(server, "ssl_certificate");
    let keys = context.all(server, "ssl_certificate_key");
    let ocsp = context
        .find(server, "ssl_stapling_file")
        .map(|one| context.path(one.word(1)));
    let mut all = Vec::new();
    for (n, cert) in certs.iter().enumerate() {
        if cert.word(1).contains('$') || cert.word(1).starts_with("data:") {
            section.add_to_do(
                &cert.position,
                "list files, or a directory of them, in `certificates`",
            );
            continue;
        }
        let cert_file = context.path(cert.word(1));
        let key = keys.get(n).map(|key| context.path(key.word(1)));
        all.push(Certificate {
            key: key.filter(|key| *key != cert_file),
            cert: cert_file,
            // The response is for one of the certificates; only the file could say which.
            ocsp: ocsp.clone().filter(|_| certs.len() == 1),
        });
    }
    if !all.is_empty() {
        section.set("certificates", certificates(&all));
    }
    if let Some(one) = context.find(server, "ssl_password_file") {
        section.add_to_do(&one.position, KEYS_ARE_PLAIN);
    }
}

/// Converts versions, suites, groups and sessions.
pub(super) fn crypto(
    context: &Context<'_>,
    server: &Directive,
    section: &mut Section,
    draft: &mut Draft,
) {
    let find = |name: &str| context.find(server, name);
    // Several lines add to each other.
    let protocols = context.all(server, "ssl_protocols");
    if let Some(one) = protocols.last() {
        let names = protocols.iter().flat_map(|one| one.values());
        section.versions(&one.position, &one.shown(), names);
    }
    let commands = context.all(server, "ssl_conf_command");
    let mut suites13 = None;
    for one in &commands {
        let version = version(one.word(2));
        match (one.word(1).to_ascii_lowercase().as_str(), version) {
            ("ciphersuites", _) => suites13 = Some(*one),
            ("minprotocol", Some(version)) => section.set_text("min_version", version),
            ("maxprotocol", Some(version)) => section.set_text("max_version", version),
            _ => section.leave_out(&one.position, &one.shown(), "no equivalent"),
        }
    }
    if let Some(one) = find("ssl_ciphers").or(suites13) {
        let tls12 = find("ssl_ciphers").map(|one| one.word(1));
        section.suites(
            &one.position,
            &one.shown(),
            tls12,
            suites13.map(|one| one.word(2)),
        );
    }
    if let Some(one) = find("ssl_ecdh_curve") {
        section.groups(&one.position, &one.shown(), one.word(1));
    }
    if let Some(one) = find("ssl_alpn") {
        section.set("alpn", quoted_list(&one.values().collect::<Vec<_>>()));
    }
    sessions(context, server, draft);
    for (name, why) in [
        (
            "ssl_dhparam",
            "finite-field Diffie-Hellman is not supported",
        ),
        ("ssl_early_data", "0-RTT data is never accepted"),
        ("ssl_verify_depth", "the depth of chains cannot be set"),
    ] {
        if let Some(one) = find(name).filter(|one| !one.is("off")) {
            section.leave_out(&one.position, &one.shown(), why);
        }
    }
}

fn sessions(context: &Context<'_>, server: &Directive, draft: &mut Draft) {
    let find = |name: &str| context.find(server, name);
    let size = find("ssl_session_cache").and_then(|one| {
        let shared = one.values().find(|word| word.starts_with("shared:"))?;
        shared
            .rsplit(':')
            .next()
            .map(|size| size.to_ascii_uppercase())
    });
    let no_tickets = find("ssl_session_tickets").is_some_and(|one| one.is("off"));
    match (no_tickets, size) {
        // Otherwise tickets hold the sessions, and clients without tickets have a cache anyway.
        (true, Some(size)) => draft.set_text("session_cache", &size),
        (true, None) => draft.set("tickets", "0"),
        (false, _) => {}
    }
    if let Some(ms) = find("ssl_session_timeout").and_then(|one| time(one.word(1), 1000)) {
        let lifetime = config_time(ms.clamp(60_000, 7 * 86_400_000));
        draft.set_text("ticket_lifetime", &lifetime);
        if ms > 12 * 3_600_000 {
            draft.set_text("ticket_rotation", &lifetime);
        }
    }
    let keys: Vec<String> = context
        .all(server, "ssl_session_ticket_key")
        .iter()
        .map(|one| format!("file:{}", context.path(one.word(1))))
        .collect();
    if !keys.is_empty() {
        draft.set("ticket_keys", quoted_list(&keys));
    }
}

fn config_time(ms: u64) -> String {
    dormouse_config::show_duration(std::time::Duration::from_millis(ms))
}

/// Converts the verification of client certificates.
pub(super) fn clients(context: &Context<'_>, server: &Directive, section: &mut Section) {
    let Some(verify) = context.find(server, "ssl_verify_client") else {
        return;
    };
    let how = match verify.word(1).to_ascii_lowercase().as_str() {
        "on" => "required",
        "optional" => "optional",
        "optional_no_ca" => {
            section.leave_out(
                &verify.position,
                &verify.shown(),
                "a client certificate that is sent must be valid here",
            );
            "optional"
        }
        _ => return,
    };
    let find = |name: &str| {
        context
            .find(server, name)
            .map(|one| context.path(one.word(1)))
    };
    let (ca, trusted) = (
        find("ssl_client_certificate"),
        find("ssl_trusted_certificate"),
    );
    let more = context.find(server, "ssl_trusted_certificate");
    if let Some(one) = more.filter(|_| ca.is_some() && ca != trusted) {
        let why = "clients of these authorities were accepted, too: `client_ca` is one file, so \
            append these certificates to it";
        section.leave_out(&one.position, &one.shown(), why);
    }
    let ca = ca.or(trusted);
    let ocsp = context.find(server, "ssl_ocsp");
    if let Some(one) = ocsp.filter(|one| !one.is("off")) {
        let what = format!("{}: {CLIENTS_UNCHECKED}", one.shown());
        section.add_to_do(&one.position, &what);
    }
    let crl: Vec<String> = find("ssl_crl").into_iter().collect();
    section.clients(how, ca.as_deref(), &crl);
}

/// Converts `allow` and `deny`. In nginx the first matching rule decides; in Dormouse `deny` takes
/// precedence.
pub(super) fn networks(context: &Context<'_>, server: &Directive, section: &mut Section) {
    let is_rule = |one: &&Directive| matches!(one.name(), "allow" | "deny");
    let mut rules: Vec<&Directive> = server.block.iter().filter(is_rule).collect();
    if rules.is_empty() {
        rules = context.block.block.iter().filter(is_rule).collect();
    }
    let (mut allow, mut deny, mut is_closed) = (Vec::new(), Vec::new(), false);
    for one in rules {
        match (one.name(), one.word(1)) {
            (_, "unix:") => {}
            // Rules after `all` have no effect.
            (name, "all") => {
                is_closed = name == "deny";
                if is_closed && allow.is_empty() {
                    deny.extend(["0.0.0.0/0", "::/0"]);
                }
                break;
            }
            ("allow", network) => allow.push(network),
            (_, network) => {
                if allow.iter().any(|allowed| overlap(allowed, network)) {
                    let what = format!("{}: {ACCEPTED_BEFORE}", one.shown());
                    section.add_to_do(&one.position, &what);
                }
                deny.push(network);
            }
        }
    }
    // Without `deny all`, networks that are not listed are allowed too.
    if is_closed && !allow.is_empty() {
        section.set("allow", quoted_list(&allow));
    }
    if !deny.is_empty() {
        section.set("deny", quoted_list(&deny));
    }
}

/// Sets times that apply to the whole program.
pub(super) fn times(context: &Context<'_>, server: &Directive, draft: &mut Draft) {
    for (name, option) in [
        ("proxy_connect_timeout", "backend_connect_timeout"),
        ("ssl_handshake_timeout", "handshake_timeout"),
        ("preread_timeout", "handshake_timeout"),
    ] {
        let Some(one) = context.find(server, name) else {
            continue;
        };
        match time(one.word(1), 1000) {
            Some(ms) => draft.longest(option, ms, &one.position, &one.shown()),
            None => draft.leave_out(&one.position, &one.shown(), NO_TIME),
        }
    }
    if !context.is_http {
        // nginx's default is ten minutes; Dormouse has no limit by default.
        match context.find(server, "proxy_timeout") {
            None => draft.longest("idle_timeout", 600_000, &server.position, ""),
            Some(one) => match time(one.word(1), 1000) {
                Some(ms) => draft.longest("idle_timeout", ms, &one.position, &one.shown()),
                None => draft.leave_out(&one.position, &one.shown(), NO_TIME),
            },
        }
    }
}

const NO_TIME: &str = "this is not a time";

/// Leaves out directives that have no equivalent, or belong elsewhere.
pub(super) fn left_out(
    context: &Context<'_>,
    server: &Directive,
    passes_through: bool,
    section: &mut Section,
    draft: &mut Draft,
) {
    for one in &server.block {
        let name = one.name();
        if name == "limit_conn" {
            limit(one, section, draft);
        } else if name == "proxy_bind"
            && one.word(1).parse::<std::net::IpAddr>().is_ok()
            && !one.has_word("transparent")
        {
            section.set_text("source_addresses", one.word(1));
        } else if name == "health_check" && !context.is_http {
            health_check(one, context.is_on(server, "proxy_ssl"), section);
        } else if name == "error_log" {
            section.leave_out(&one.position, &one.shown(), ERROR_LOG);
        } else if name == "js_access" {
            let what = format!("{}: {CLIENT_NETWORKS}", one.shown());
            section.add_to_do(&one.position, &what);
        } else if is_known(name) || (passes_through && name.starts_with("ssl_")) {
        } else if matches!(name, "proxy_upload_rate" | "proxy_download_rate") {
            section.leave_out(&one.position, &one.shown(), BYTES_PER_CLIENT);
        } else if context.is_http {
            section.leave_out(
                &one.position,
                &one.shown(),
                "stays with nginx, or with the backend",
            );
        } else {
            section.leave_out(&one.position, &one.shown(), "no equivalent");
        }
    }
}

/// Returns whether a directive outside of servers belongs to one that is converted, or to nginx's memory.
fn is_of_context(name: &str) -> bool {
    let parts = [
        "limit_conn_log_level",
        "limit_conn_zone",
        "map",
        "resolver",
        "resolver_timeout",
        "server",
        "upstream",
    ];
    parts.contains(&name) || name.ends_with("_hash_bucket_size") || name.ends_with("_hash_max_size")
}

/// Returns whether a directive is converted elsewhere, or has no effect in Dormouse.
fn is_known(name: &str) -> bool {
    const KNOWN: [&str; 35] = [
        "access_log",
        "http2",
        "location",
        "listen",
        "server_name",
        "ssl",
        "ssl_preread",
        "ssl_certificate",
        "ssl_certificate_key",
        "ssl_protocols",
        "ssl_ciphers",
        "ssl_ecdh_curve",
        "ssl_alpn",
        "ssl_client_certificate",
        "ssl_trusted_certificate",
        "ssl_verify_client",
        "ssl_crl",
        "ssl_stapling",
        "ssl_stapling_verify",
        "ssl_stapling_file",
        "ssl_session_cache",
        "ssl_session_timeout",
        "ssl_session_tickets",
        "ssl_session_ticket_key",
        "ssl_prefer_server_ciphers",
        "ssl_buffer_size",
        "ssl_handshake_timeout",
        "proxy_pass",
        "proxy_timeout",
        "proxy_connect_timeout",
        "proxy_protocol",
        "proxy_half_close",
        "set_real_ip_from",
        "preread_timeout",
        "preread_buffer_size",
    ];
    const REPORTED: [&str; 11] = [
        "allow",
        "deny",
        "ssl_conf_command",
        "ssl_dhparam",
        "ssl_early_data",
        "ssl_ocsp",
        "ssl_verify_depth",
        "ssl_password_file",
        "tcp_nodelay",
        "proxy_buffer_size",
        "proxy_socket_keepalive",
    ];
    KNOWN.contains(&name) || REPORTED.contains(&name) || name.starts_with("proxy_ssl")
}

/// Converts `proxy_half_close`. `on` is the default of Dormouse, and all that it can do with TLS to the backend.
pub(super) fn half_close(context: &Context<'_>, server: &Directive, section: &mut Section) {
    let is_off = context
        .find(server, "proxy_half_close")
        .is_some_and(|one| one.is("off"));
    if is_off && !context.is_on(server, "proxy_ssl") {
        section.set("half_close", "false");
    }
}

fn limit(one: &Directive, section: &mut Section, draft: &mut Draft) {
    match one.word(2).parse::<u64>() {
        Ok(n) => {
            let why = "converted, but it counts a client's connections to all routes together";
            section.leave_out(&one.position, &one.shown(), why);
            draft.largest("connections_per_client", n);
        }
        Err(_) => section.leave_out(&one.position, &one.shown(), "use `connections_per_client`"),
    }
}

/// Converts `health_check` of nginx Plus.
fn health_check(one: &Directive, has_tls: bool, section: &mut Section) {
    let value = |name: &str| {
        one.values()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    section.set_text("check", if has_tls { "tls" } else { "connect" });
    section.time(
        "check_every",
        value("interval").and_then(|text| time(text, 1000)),
    );
    for (name, option) in [("fails", "check_fall"), ("passes", "check_rise")] {
        if let Some(n) = value(name).and_then(|n| n.parse::<u32>().ok()) {
            section.set(option, n.to_string());
        }
    }
}
