//! haproxy.cfg.
//!
//! Each `bind … ssl` becomes a route, and one more for each backend that is chosen by server name
//! or protocol. So does a bind without `ssl` that chooses by the name in the ClientHello, as a
//! route that passes TLS through. In `mode http`, HAProxy stays as the backend, without TLS, unless
//! it only forwards everything.

mod bind;
mod cases;
mod config;
mod plain;
mod rules;
mod server;
mod syntax;

use std::path::Path;

use crate::advice::{
    BRANCHES, HAPROXY_SEES_NO_TLS, LOG, ONE_LABEL, OTHER_PROTOCOLS, haproxy_stays,
};
use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::section::Section;
use crate::toml::quoted_list;
use crate::value::time;
use cases::{BackendCases, cases};
use config::Config;
use syntax::{HaproxySection, Line};

pub(super) fn read(text: &str, position: &Position, folder: &Path) -> Result<Draft, ImportError> {
    let parts = syntax::parse(text, position)?;
    let global = parts
        .iter()
        .filter(|part| part.kind == "global")
        .flat_map(|part| part.lines.clone());
    let is_backend = |part: &HaproxySection| matches!(part.kind.as_str(), "backend" | "listen");
    let backends = parts
        .iter()
        .enumerate()
        .filter(|(_, part)| is_backend(part));
    let config = Config {
        global: global.collect(),
        backends: backends.map(|(at, part)| (part.name.clone(), at)).collect(),
        folder: std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()),
        parts,
    };
    let mut draft = Draft::default();
    for part in &config.parts {
        if matches!(part.kind.as_str(), "frontend" | "listen") {
            frontend(part, &config, &mut draft);
        }
    }
    if !draft.is_empty() {
        let passes_through = |part: &HaproxySection| !part.is_http() && chooses_by_hello(part);
        plain::read(&config, passes_through, &mut draft);
        let lines = config.parts.iter().flat_map(|part| part.all(".if"));
        for line in lines {
            draft.add_to_do(&line.position, &format!("{}: {BRANCHES}", line.shown()));
        }
        other_services(&config, &mut draft);
        program(&config, &mut draft);
    }
    Ok(draft)
}

/// Names sections that end with HAProxy, and have nothing to do with Dormouse.
fn other_services(config: &Config, draft: &mut Draft) {
    for part in &config.parts {
        let what = match part.kind.as_str() {
            "log-forward" => "keep HAProxy for it, or its addresses will not be served",
            "program" => "HAProxy starts this program: start it in another way",
            _ => continue,
        };
        let title = format!("{} {}", part.kind, part.name);
        draft.add_to_do(&part.position, &format!("{title}: {what}"));
    }
}

fn frontend(part: &HaproxySection, config: &Config, draft: &mut Draft) {
    if part.is_disabled() {
        let what = format!("{} {}", part.kind, part.name);
        return draft.leave_out(&part.position, &what, "it is disabled");
    }
    let cases = cases(part, config);
    let passes_through = !part.is_http() && chooses_by_hello(part);
    for line in part.all("bind") {
        let has_tls = line.has_word("ssl");
        if !has_tls && !passes_through {
            continue;
        }
        let title = format!("{} {}, bind {}", part.kind, part.name, line.word(1));
        let mut base = Section::new(false, title);
        bind::read(line, config, has_tls, &mut base, draft);
        rules::networks(part, config, &mut base);
        times(part, draft);
        if part.is_http() && does_more(part, &cases) {
            let address = draft.address_behind(format!("{} {}", part.kind, part.name));
            stays_behind(line, &address, &mut base);
            other_protocols(line, &mut base);
            let behind = cases.all.iter().filter_map(|case| case.backend);
            let mut lines = behind.chain([part]).flat_map(|part| &part.lines);
            let asks = |line: &&Line| {
                let words = line.words.iter().skip(1);
                ["ssl_fc", "ssl_c_", "ssl_f_"]
                    .iter()
                    .any(|name| words.clone().any(|word| word.contains(name)))
            };
            if let Some(line) = lines.find(asks) {
                base.add_to_do(&line.position, HAPROXY_SEES_NO_TLS);
            }
            draft.sections.push(base);
            continue;
        }
        rules::left_out(part, &mut base);
        for (why, line) in &cases.not_ours {
            base.add_to_do(&line.position, &format!("{}: {why}", line.shown()));
        }
        if cases.all.is_empty() {
            base.add_to_do(&part.position, "it has no backends: add them to `to`");
            draft.sections.push(base.clone());
        }
        for (n, case) in cases.all.iter().enumerate() {
            let mut section = if n == 0 {
                base.clone()
            } else {
                base.without_remarks()
            };
            if !case.names.is_empty() {
                section.set("server_names", quoted_list(&case.names));
                for name in case.names.iter().filter(|name| name.starts_with("*.")) {
                    section.leave_out(&case.position, name, ONE_LABEL);
                }
            }
            if !case.protocols.is_empty() {
                section.set("alpn", quoted_list(&case.protocols));
            }
            match case.backend {
                Some(backend) => {
                    server::read(backend, config, &mut section);
                    rules::left_out_of_backend(backend, part, config, &mut section);
                    times(backend, draft);
                }
                None => section.add_to_do(
                    &case.position,
                    "this backend is not defined: add its servers to `to`",
                ),
            }
            if part.is_http() {
                without_http2(line, case.backend, &mut section);
            }
            if case.protocols.is_empty() {
                other_protocols(line, &mut section);
            }
            draft.sections.push(section);
        }
    }
}

/// Returns whether TLS passes through: a line reads the ClientHello.
fn chooses_by_hello(part: &HaproxySection) -> bool {
    let looks = |word: &String| {
        ["req.ssl_", "req_ssl_"]
            .iter()
            .any(|start| word.starts_with(start) || word.contains(&format!("[{start}")))
    };
    let lines = part
        .lines
        .iter()
        .filter(|line| matches!(line.word(0), "acl" | "use_backend" | "tcp-request"));
    lines.flat_map(|line| &line.words).any(looks)
}

/// Returns whether HAProxy processes requests.
fn does_more(part: &HaproxySection, cases: &BackendCases<'_>) -> bool {
    const DOES: [&str; 13] = [
        "http-request",
        "http-response",
        "http-after-response",
        "redirect",
        "compression",
        "cookie",
        "filter",
        "monitor-uri",
        "capture",
        "stats",
        "unique-id-header",
        "http-send-name-header",
        "use-fcgi-app",
    ];
    // A redirect does not affect clients with TLS.
    let has_plain = part.all("bind").any(|line| !line.has_word("ssl"));
    let is_more = |line: &Line| {
        if has_plain && plain::is_redirect(line) {
            return false;
        }
        match line.word(0) {
            "option" => matches!(line.word(1), "forwardfor" | "forwarded" | "originalto"),
            // `reqdeny`, `rspadd` and such, of HAProxy 1.
            word => DOES.contains(&word) || word.starts_with("req") || word.starts_with("rsp"),
        }
    };
    let parts = cases
        .all
        .iter()
        .filter_map(|case| case.backend)
        .chain([part]);
    !cases.not_ours.is_empty() || parts.flat_map(|part| &part.lines).any(is_more)
}

/// HAProxy continues to process requests, as an unencrypted backend.
fn stays_behind(bind: &Line, address: &str, section: &mut Section) {
    section.set_text("to", address);
    section.set_text("proxy_protocol", "v2");
    section.add_to_do(&bind.position, &haproxy_stays(address));
}

/// Removes HTTP/2 from `alpn`: bytes are passed on unchanged, and HAProxy terminated HTTP/2.
fn without_http2(bind: &Line, backend: Option<&HaproxySection>, section: &mut Section) {
    let speaks_it = |line: &Line| line.words.windows(2).any(|pair| pair == ["proto", "h2"]);
    let knows = backend.is_some_and(|part| part.all("server").all(speaks_it));
    if bind.has_word("alpn")
        && !knows
        && bind
            .words
            .iter()
            .any(|word| word.split(',').any(|name| name == "h2"))
    {
        section.remove("alpn");
        section.leave_out(
            &bind.position,
            "alpn h2",
            "bytes are passed on unchanged: offer it only if the backend supports unencrypted HTTP/2",
        );
    }
}

/// A client that has none of the protocols of `alpn` was served without one.
fn other_protocols(bind: &Line, section: &mut Section) {
    if section.has("alpn") {
        section.leave_out(&bind.position, "alpn", OTHER_PROTOCOLS);
    }
}

/// Options of the program.
fn program(config: &Config, draft: &mut Draft) {
    for line in &config.global {
        let (shown, value) = (line.shown(), line.word(1));
        let why = match line.word(0) {
            "nbthread" => {
                draft.number("workers", value, &line.position, &shown);
                continue;
            }
            "maxconn" => {
                draft.number("max_connections", value, &line.position, &shown);
                continue;
            }
            "user" | "uid" => {
                draft.set_text("user", value);
                continue;
            }
            "group" | "gid" => {
                draft.set_text("group", value);
                continue;
            }
            "hard-stop-after" => {
                draft.longest(
                    "shutdown_grace",
                    time(value, 1).unwrap_or(0),
                    &line.position,
                    &shown,
                );
                continue;
            }
            "tune.ssl.lifetime" => {
                if let Some(seconds) = time(value, 1000).map(|ms| (ms / 1000).clamp(60, 43_200)) {
                    draft.set_text("ticket_lifetime", &format!("{seconds}s"));
                }
                continue;
            }
            "chroot" => "workers confine themselves (`sandbox`)",
            "stats" => "use `admin`, `dormouse status` and `/metrics`",
            "log" | "log-send-hostname" | "log-tag" => LOG,
            "maxsslrate" | "maxconnrate" | "maxsessrate" => {
                "use `handshakes_per_client`, and `max_handshakes` for handshakes in flight"
            }
            "maxsslconn" => "use `max_connections`",
            "ulimit-n" | "fd-hard-limit" => {
                "set it where the program starts: LimitNOFILE= or ulimit -Hn"
            }
            "ssl-server-verify" => "servers' certificates are always verified",
            word if global_needs_no_remark(word) => continue,
            _ => "no equivalent",
        };
        draft.leave_out(&line.position, &shown, why);
    }
}

/// Lines of `global` that are converted elsewhere, or that do not concern Dormouse: HAProxy's memory, processes and
/// files.
fn global_needs_no_remark(word: &str) -> bool {
    let is_converted = matches!(
        word,
        "ca-base"
            | "crt-base"
            | "default-path"
            | "ssl-default-bind-ciphers"
            | "ssl-default-bind-ciphersuites"
            | "ssl-default-bind-curves"
            | "ssl-default-bind-options"
            | "tune.ssl.cachesize"
    );
    let is_haproxys_own = word.starts_with("tune.")
        || word.starts_with('.')
        || word.starts_with("no")
        || word.starts_with("ssl-default-server-")
        || matches!(
            word,
            "busy-polling"
                | "daemon"
                | "description"
                | "expose-experimental-directives"
                | "grace"
                | "localpeer"
                | "master-worker"
                | "node"
                | "pidfile"
                | "presetenv"
                | "quiet"
                | "server-state-base"
                | "server-state-file"
                | "set-dumpable"
                | "setenv"
                | "spread-checks"
                | "ssl-dh-param-file"
                | "thread-groups"
                | "unix-bind"
                | "zero-warning"
        );
    is_converted || is_haproxys_own
}

/// Sets times that apply to the whole program.
fn times(part: &HaproxySection, draft: &mut Draft) {
    // Every connection of Dormouse is a tunnel, for which `tunnel` replaces the other two.
    let has_tunnel = part.find(&["timeout", "tunnel"]).is_some();
    for line in part.all("timeout") {
        let Some(ms) = time(line.word(2), 1) else {
            draft.leave_out(&line.position, &line.shown(), "this is not a time");
            continue;
        };
        match line.word(1) {
            "connect" => {
                draft.longest("backend_connect_timeout", ms, &line.position, &line.shown())
            }
            "tunnel" => draft.longest("idle_timeout", ms, &line.position, &line.shown()),
            "client" | "server" if !has_tunnel => {
                draft.longest("idle_timeout", ms, &line.position, &line.shown())
            }
            _ => {}
        }
    }
}
