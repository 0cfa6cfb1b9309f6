//! `server NAME ADDRESS …`, and the choice and the checks of servers.

use super::config::Config;
use super::syntax::{HaproxySection, Line};
use crate::advice::{BACKEND_VERSIONS, BACKENDS_ARE_VERIFIED, REVOKED_SERVERS};
use crate::error::Position;
use crate::section::Section;
use crate::toml::{Backend, Certificate, backends, certificates, quoted_list};
use crate::value::time;

/// Settings of one server that a route has once for all its backends.
#[derive(Default, PartialEq, Eq)]
struct ServerSettings {
    has_tls: bool,
    is_verified: bool,
    ca: Option<String>,
    name: Option<String>,
    certificate: Option<String>,
    protocols: Option<String>,
    proxy_protocol: Option<&'static str>,
    is_checked: bool,
    is_checked_by_tls: bool,
}

impl ServerSettings {
    /// Sets what a word without a value switches on or off. Returns `false` if it is another word.
    fn switch(&mut self, word: &str) -> bool {
        match word {
            "ssl" => self.has_tls = true,
            "no-ssl" => self.has_tls = false,
            "check" => self.is_checked = true,
            "no-check" => self.is_checked = false,
            "check-ssl" => self.is_checked_by_tls = true,
            "no-check-ssl" => self.is_checked_by_tls = false,
            "send-proxy" => self.proxy_protocol = Some("v1"),
            "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                self.proxy_protocol = Some("v2");
            }
            "no-send-proxy"
            | "no-send-proxy-v2"
            | "no-send-proxy-v2-ssl"
            | "no-send-proxy-v2-ssl-cn" => self.proxy_protocol = None,
            _ => return false,
        }
        true
    }

    /// Keywords whose settings differ. Checks are not among them: a check of one more server takes nothing away.
    fn differences(&self, other: &ServerSettings) -> Vec<&'static str> {
        let is_equal = [
            ("ssl", self.has_tls == other.has_tls),
            ("verify", self.is_verified == other.is_verified),
            ("ca-file", self.ca == other.ca),
            ("sni or verifyhost", self.name == other.name),
            ("crt", self.certificate == other.certificate),
            ("alpn", self.protocols == other.protocols),
            ("send-proxy", self.proxy_protocol == other.proxy_protocol),
        ];
        let differ = is_equal.into_iter().filter(|(_, is_equal)| !is_equal);
        differ.map(|(keyword, _)| keyword).collect()
    }
}

/// A server that gets connections.
struct Server<'a> {
    line: &'a Line,
    name: &'a str,
    backend: Backend,
    settings: ServerSettings,
}

/// Sets `to` and everything about backends.
pub(super) fn read(part: &HaproxySection, config: &Config, section: &mut Section) {
    if part.is_disabled() {
        let what = format!(
            "{} {} is disabled, so its clients were refused: remove this route to refuse them",
            part.kind, part.name
        );
        section.add_to_do(&part.position, &what);
    }
    let servers = servers(part, config, section);
    let Some((first, others)) = servers.split_first() else {
        balance(part, section);
        return;
    };
    let all: Vec<Backend> = servers
        .iter()
        .map(|server| server.backend.clone())
        .collect();
    section.set("to", backends(&all));
    for other in others {
        compare(first, other, section);
    }
    let settings = &first.settings;
    if section.has("pass_through") {
        report_second_tls(&servers, section);
    } else if settings.has_tls {
        tls(settings, &part.position, section);
    }
    if let Some(version) = settings.proxy_protocol {
        section.set_text("proxy_protocol", version);
    }
    balance(part, section);
    if servers.iter().any(|server| server.settings.is_checked) {
        let is_by_tls = |server: &Server<'_>| server.settings.is_checked_by_tls;
        let by_tls = settings.has_tls || servers.iter().any(is_by_tls);
        check(part, if by_tls { "tls" } else { "connect" }, section);
        for server in servers.iter().filter(|server| !server.settings.is_checked) {
            let what = format!("server {} without check", server.name);
            let why = "all backends of a route are checked";
            section.leave_out(&server.line.position, &what, why);
        }
    }
}

/// HAProxy would encrypt the client's TLS once more for these servers.
fn report_second_tls(servers: &[Server<'_>], section: &mut Section) {
    let encrypted = servers.iter().filter(|server| server.settings.has_tls);
    for Server { line, name, .. } in encrypted {
        let what = format!("server {name} with ssl");
        let why = "the client's TLS is passed on as it is, without a second one around it";
        section.leave_out(&line.position, &what, why);
    }
}

fn servers<'a>(
    part: &'a HaproxySection,
    config: &Config,
    section: &mut Section,
) -> Vec<Server<'a>> {
    let mut servers = Vec::new();
    for (kind, at) in [("server", 2), ("server-template", 3)] {
        for line in part.all(kind) {
            let mut server = Server {
                line,
                name: line.word(1),
                backend: Backend {
                    address: address(line.word(at)),
                    ..Backend::default()
                },
                settings: ServerSettings::default(),
            };
            let defaults = part.all("default-server").map(|line| (line, 1));
            let mut is_used = true;
            for (line, behind) in defaults.chain([(line, at + 1)]) {
                let all = line.behind(behind);
                let Server {
                    backend, settings, ..
                } = &mut server;
                is_used &= words(line, all, config, backend, settings, section);
            }
            if is_used {
                servers.push(server);
            }
        }
    }
    servers
}

/// Names settings in which a server differs from the first one, whose settings the route has.
fn compare(first: &Server<'_>, other: &Server<'_>, section: &mut Section) {
    let differences = first.settings.differences(&other.settings);
    if !differences.is_empty() {
        let what = format!(
            "servers {} and {} differ in {}, but all backends of a route have the same settings, here those of {}: \
             configure the servers alike, or remove one from `to`",
            first.name,
            other.name,
            differences.join(", "),
            first.name
        );
        section.add_to_do(&other.line.position, &what);
    }
}

/// A revocation list for a server's certificate. `all`: the server's words, the last of which count.
fn crl_file(file: &str, all: &[String], position: &Position, section: &mut Section) {
    let verify = all.iter().rposition(|word| word == "verify");
    let how = verify.and_then(|at| all.get(at + 1));
    if how.is_some_and(|how| how == "none") {
        section.leave_out(
            position,
            &format!("crl-file {file}"),
            "no certificate was verified",
        );
    } else {
        section.add_to_do(position, &format!("crl-file {file}: {REVOKED_SERVERS}"));
    }
}

/// Returns `false` if the server is not used.
fn words(
    line: &Line,
    all: &[String],
    config: &Config,
    one: &mut Backend,
    settings: &mut ServerSettings,
    section: &mut Section,
) -> bool {
    let position = &line.position;
    let mut is_used = true;
    let mut rest = all.iter();
    while let Some(word) = rest.next() {
        if settings.switch(word) {
            continue;
        }
        let mut value = || rest.next().map_or("", String::as_str);
        match word.as_str() {
            "weight" => match value() {
                "0" => {
                    section.leave_out(
                        position,
                        &line.shown(),
                        "its weight is 0, so it gets no connections",
                    );
                    is_used = false;
                }
                n => one.weight = n.parse().ok(),
            },
            "maxconn" => one.max_connections = value().parse().ok().filter(|n| *n > 0),
            "backup" => one.is_backup = true,
            "disabled" => {
                section.leave_out(position, &line.shown(), "it is disabled");
                is_used = false;
            }
            "slowstart" => section.time("slow_start", time(value(), 1)),
            "inter" => section.time("check_every", time(value(), 1)),
            "rise" => number("check_rise", value(), section),
            "fall" => number("check_fall", value(), section),
            "error-limit" => number("backend_failures", value(), section),
            "verify" => settings.is_verified = value() == "required",
            "ca-file" => settings.ca = Some(config.path("ca-base", value())),
            "sni" => sni(value(), position, settings, section),
            "verifyhost" => settings.name = Some(value().to_owned()),
            "crt" => settings.certificate = Some(config.path("crt-base", value())),
            "alpn" => settings.protocols = Some(value().to_owned()),
            "source" => source(value(), position, section),
            "port" | "addr" | "check-sni" | "check-alpn" | "check-proto" | "agent-port"
            | "agent-addr" | "agent-inter" | "agent-send" | "minconn" | "maxqueue" | "track"
            | "socks4" | "namespace" | "redir" => {
                let shown = format!("{word} {}", value());
                section.leave_out(position, &shown, "no equivalent");
            }
            "ciphers" | "ciphersuites" | "ssl-min-ver" | "ssl-max-ver" => {
                let shown = format!("{word} {}", value());
                section.leave_out(position, &shown, BACKEND_VERSIONS);
            }
            "crl-file" => crl_file(value(), all, position, section),
            "cookie" | "proxy-v2-options" | "fastinter" | "downinter" | "id" | "observe"
            | "on-error" | "on-marked-down" | "on-marked-up" | "resolvers" | "resolve-prefer"
            | "resolve-net" | "resolve-opts" | "proto" | "tcp-ut" | "pool-max-conn"
            | "pool-purge-delay" | "pool-low-conn" | "max-reuse" | "log-proto" | "ws"
            | "curves" => drop(value()),
            "init-addr" => {
                let shown = format!("init-addr {}", value());
                let why = "a name that cannot be looked up at the start is an error";
                section.leave_out(position, &shown, why);
            }
            "check-send-proxy" | "enabled" | "ssl-reuse" | "no-ssl-reuse" | "stick"
            | "non-stick" | "tfo" | "no-tls-tickets" | "allow-0rtt" => {}
            _ => section.leave_out(position, word, "no equivalent"),
        }
    }
    is_used
}

fn number(name: &'static str, text: &str, section: &mut Section) {
    if let Ok(n) = text.parse::<u32>() {
        section.set(name, n.to_string());
    }
}

fn source(text: &str, position: &Position, section: &mut Section) {
    match text.parse::<std::net::IpAddr>() {
        Ok(ip) => section.set_text("source_addresses", &ip.to_string()),
        Err(_) => section.leave_out(position, "source", "`source_addresses` takes IP addresses"),
    }
}

/// Converts `sni`: `str(app.example)`, or a fetch.
fn sni(value: &str, position: &Position, settings: &mut ServerSettings, section: &mut Section) {
    match value
        .strip_prefix("str(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        Some(name) => settings.name = Some(name.to_owned()),
        None => section.leave_out(
            position,
            &format!("sni {value}"),
            "`backend_name` is one name for all backends; without it, each backend's own host is used",
        ),
    }
}

fn tls(settings: &ServerSettings, position: &Position, section: &mut Section) {
    section.set("backend_tls", "true");
    match &settings.ca {
        Some(file) if file.ends_with("@system-ca") => {}
        Some(file) => section.set_text("backend_ca", file),
        None if settings.is_verified => {}
        None => section.add_to_do(position, BACKENDS_ARE_VERIFIED),
    }
    if let Some(name) = &settings.name {
        section.set_text("backend_name", name);
    }
    if let Some(file) = &settings.certificate {
        let one = Certificate::whole(file.clone());
        section.set("backend_certificates", certificates(&[one]));
    }
    if let Some(list) = &settings.protocols {
        let protocols: Vec<&str> = list.split(',').collect();
        section.set("backend_alpn", quoted_list(&protocols));
    }
}

fn balance(part: &HaproxySection, section: &mut Section) {
    let Some(line) = part.find(&["balance"]) else {
        return;
    };
    match line.word(1).split('(').next().unwrap_or_default() {
        "leastconn" => section.set_text("balance", "least-connections"),
        "source" => section.set_text("balance", "client-hash"),
        "roundrobin" | "static-rr" => {}
        "random" => {
            section.set_text("balance", "least-connections");
            section.leave_out(
                &line.position,
                &line.shown(),
                "the nearest equivalent is least-connections",
            );
        }
        _ => section.leave_out(
            &line.position,
            &line.shown(),
            "no equivalent: backends are used in turn, by weight",
        ),
    }
}

/// Sets `check`: a connection or a handshake, unless an option says more.
fn check(part: &HaproxySection, how: &str, section: &mut Section) {
    section.set_text("check", how);
    section.time(
        "check_timeout",
        part.find(&["timeout", "check"])
            .and_then(|line| time(line.word(2), 1)),
    );
    if let Some(line) = part.find(&["option", "httpchk"]) {
        http_check(part, line, section);
    }
    for line in part.all("option") {
        let kind = line.word(1);
        let is_other = kind.ends_with("-check") && kind != "tcp-check";
        if kind == "ssl-hello-chk" {
            section.set_text("check", "tls");
        } else if is_other || kind == "smtpchk" {
            section.leave_out(&line.position, &line.shown(), "checked only by connecting");
        }
    }
    for line in part
        .all("tcp-check")
        .filter(|line| line.word(1) != "connect")
    {
        section.leave_out(&line.position, &line.shown(), "checked only by connecting");
    }
}

/// Converts `option httpchk METHOD PATH`, `http-check send` and `http-check expect status`.
fn http_check(part: &HaproxySection, line: &Line, section: &mut Section) {
    let send = part.find(&["http-check", "send"]);
    let settings = |name: &str| {
        let send = send?;
        let at = send.words.iter().position(|word| word == name)?;
        send.words.get(at + 1).map(String::as_str)
    };
    let (method, path) = match (line.word(2), line.word(3)) {
        ("", _) => ("OPTIONS", "/"),
        (path, "") => ("OPTIONS", path),
        (method, path) => (method, path),
    };
    let (method, path) = (
        settings("meth").unwrap_or(method),
        settings("uri").unwrap_or(path),
    );
    section.set_text("check", &format!("GET {path}"));
    if method != "GET" {
        section.leave_out(
            &line.position,
            &line.shown(),
            &format!("checked with GET, not with {method}"),
        );
    }
    if let Some(host) = settings("hdr") {
        let position = send.map_or(&line.position, |line| &line.position);
        section.leave_out(
            position,
            &format!("hdr {host}"),
            "the Host header is the backend's own address",
        );
    }
    match part.find(&["http-check", "expect"]) {
        Some(expect) if expect.word(2) == "status" && !expect.word(3).contains(',') => {
            section.set_text("check_status", expect.word(3))
        }
        Some(expect) => section.leave_out(
            &expect.position,
            &expect.shown(),
            "only the status is checked: `check_status`",
        ),
        None => {}
    }
}

/// Converts `host:port`, `ipv4@host:port`, `unix@/path`, `/path` or `::1:80`.
fn address(text: &str) -> String {
    if text.starts_with('/') {
        return format!("unix:{text}");
    }
    let (family, text) = text.split_once('@').unwrap_or(("", text));
    if family == "unix" {
        return format!("unix:{text}");
    }
    match text.rsplit_once(':') {
        Some((host, port)) if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{port}")
        }
        _ => text.to_owned(),
    }
}
