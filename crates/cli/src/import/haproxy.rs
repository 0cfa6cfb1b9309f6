//! haproxy.cfg: sections of lines of words.

use super::draft::{Draft, Section, certificates, list, quoted, quoted_list};
use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
struct Part {
    line: usize,
    kind: String,
    name: String,
    lines: Vec<(usize, Vec<String>)>,
}

impl Part {
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a (usize, Vec<String>)> {
        self.lines
            .iter()
            .filter(move |(_, words)| words.first().is_some_and(|word| word == name))
    }

    /// The words behind this one.
    fn find(&self, name: &str) -> Option<&[String]> {
        let is_it = |words: &[String]| words.first().is_some_and(|word| word == name);
        let mut found = self.lines.iter().rev();
        let (_, words) = found.find(|(_, words)| is_it(words))?;
        words.get(1..)
    }
}

pub(super) fn read(text: &str) -> Draft {
    let mut draft = Draft::default();
    let parts = parse(text);
    let mut global = Part::default();
    let mut defaults = Part::default();
    let mut backends = HashMap::new();
    for part in &parts {
        match part.kind.as_str() {
            "global" => global = part.clone(),
            "backend" => drop(backends.insert(part.name.clone(), part)),
            _ => {}
        }
    }
    program(&global, &mut draft);
    for part in &parts {
        match part.kind.as_str() {
            // They hold until the next ones.
            "defaults" => {
                defaults = part.clone();
                timeouts(part, &mut draft);
            }
            "frontend" | "listen" => frontend(part, &global, &defaults, &backends, &mut draft),
            _ => {}
        }
    }
    draft
}

fn parse(text: &str) -> Vec<Part> {
    const KINDS: [&str; 11] = [
        "global",
        "defaults",
        "frontend",
        "backend",
        "listen",
        "userlist",
        "peers",
        "resolvers",
        "mailers",
        "program",
        "cache",
    ];
    let mut parts: Vec<Part> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let words = words(line);
        let Some(first) = words.first() else { continue };
        if KINDS.contains(&first.as_str()) {
            parts.push(Part {
                line: n + 1,
                kind: first.clone(),
                name: words.get(1).cloned().unwrap_or_default(),
                lines: Vec::new(),
            });
        } else if let Some(part) = parts.last_mut() {
            part.lines.push((n + 1, words));
        }
    }
    parts
}

fn words(line: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') => break,
            (None, c) if c.is_whitespace() => all.extend(word.take()),
            (_, '\\') => word.get_or_insert_default().extend(chars.next()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

fn program(global: &Part, draft: &mut Draft) {
    for (line, words) in &global.lines {
        let shown = words.join(" ");
        let value = words.get(1).map_or("", String::as_str);
        match words.first().map_or("", String::as_str) {
            "nbthread" => draft.set("workers", value),
            "maxconn" => draft.set("max_connections", value),
            "user" => draft.set("user", quoted(value)),
            "group" => draft.set("group", quoted(value)),
            "chroot" => draft.note(*line, &shown, "no counterpart"),
            "stats" => draft.note(*line, &shown, "see `admin` and `dormouse status`"),
            "ssl-default-bind-ciphers" | "ssl-default-bind-ciphersuites" => draft.note(
                *line,
                &shown,
                "all suites here are AEAD with forward secrecy; see `suites` for fewer",
            ),
            "ssl-default-bind-options" if shown.contains("no-tls-tickets") => {
                draft.set("tickets", "0");
            }
            _ => {}
        }
    }
}

fn timeouts(part: &Part, draft: &mut Draft) {
    for (_, words) in part.all("timeout") {
        let (Some(kind), Some(time)) = (words.get(1), words.get(2).and_then(|text| time(text)))
        else {
            continue;
        };
        match kind.as_str() {
            "connect" => draft.set("backend_connect_timeout", quoted(&time)),
            "client" | "server" => draft.set("idle_timeout", quoted(&time)),
            _ => {}
        }
    }
}

fn frontend(
    part: &Part,
    global: &Part,
    defaults: &Part,
    backends: &HashMap<String, &Part>,
    draft: &mut Draft,
) {
    let binds: Vec<&(usize, Vec<String>)> = part
        .all("bind")
        .filter(|(_, words)| words.iter().any(|word| word == "ssl"))
        .collect();
    for (line, words) in binds {
        let title = format!(
            "{} {}, bind {}",
            part.kind,
            part.name,
            words.get(1).map_or("", String::as_str)
        );
        let mut section = Section::new(false, title);
        bind(*line, words, global, &mut section);
        let target = part.find("default_backend").or(part.find("use_backend"));
        let backend = match target.and_then(|words| words.first()) {
            Some(name) => backends.get(name).copied(),
            None => Some(part),
        };
        match backend {
            Some(backend) => servers(backend, defaults, &mut section),
            None => section.note(part.line, &part.name, "its default_backend is not there"),
        }
        let mode = part.find("mode").or(defaults.find("mode"));
        if mode
            .and_then(|words| words.first())
            .is_some_and(|mode| mode == "http")
        {
            section.note(
                part.line,
                "mode http",
                "what is done with requests stays with HAProxy, or the server behind",
            );
        }
        for (line, words) in &part.lines {
            let why = match words.first().map_or("", String::as_str) {
                "use_backend" | "acl" => "one backend per route; rules on requests stay behind",
                "http-request" | "http-response" | "redirect" | "tcp-request" => "stays behind",
                _ => continue,
            };
            section.note(*line, &words.join(" "), why);
        }
        timeouts(part, draft);
        if section.has("to") {
            draft.sections.push(section);
        } else {
            draft.note(
                part.line,
                &format!("{} {}", part.kind, part.name),
                "it has no server",
            );
        }
    }
}

fn bind(line: usize, words: &[String], global: &Part, section: &mut Section) {
    let addresses: Vec<String> = words
        .get(1)
        .map_or("", String::as_str)
        .split(',')
        .map(|one| quoted(&bind_address(one)))
        .collect();
    section.set("listen", list(&addresses));
    let base = global.find("crt-base").and_then(|words| words.first());
    let mut pems = Vec::new();
    let mut rest = words.iter().skip(2);
    while let Some(word) = rest.next() {
        let mut value = || rest.next().map_or("", String::as_str);
        match word.as_str() {
            "ssl" | "tfo" | "defer-accept" | "prefer-client-ciphers" | "v4v6" => {}
            "crt" => {
                let file = value();
                let file = match base {
                    Some(base) if !file.starts_with('/') => format!("{base}/{file}"),
                    _ => file.to_owned(),
                };
                if file.ends_with('/') {
                    section.note(line, &file, "a directory: list its files in `certificates`");
                } else {
                    pems.push((file, None));
                }
            }
            "alpn" => {
                let names: Vec<&str> = value().split(',').collect();
                section.set("alpn", quoted_list(&names));
            }
            "ssl-min-ver" => version(line, "min_version", value(), section),
            "ssl-max-ver" => version(line, "max_version", value(), section),
            "accept-proxy" => section.note(
                line,
                "accept-proxy",
                "set accept_proxy_from to the networks of your proxies",
            ),
            "ciphers" | "ciphersuites" | "curves" => {
                let shown = format!("{word} {}", value());
                section.note(line, &shown, "see `suites` and `groups`");
            }
            "ca-file" | "verify" | "crl-file" => {
                let shown = format!("{word} {}", value());
                section.note(line, &shown, "clients are not asked for certificates here");
            }
            "name" | "id" | "nice" | "process" | "thread" | "maxconn" | "backlog" | "mss" => {
                value();
            }
            "strict-sni" => section.note(line, word, "the first certificate is shown instead"),
            _ => section.note(line, word, "no counterpart"),
        }
    }
    if pems.is_empty() {
        section.note(
            line,
            "crt",
            "MISSING: add certificates = [{ cert = \"…\", key = \"…\" }]",
        );
    } else {
        section.set("certificates", certificates(&pems));
    }
}

fn version(line: usize, option: &'static str, text: &str, section: &mut Section) {
    match text {
        "TLSv1.2" => section.set(option, quoted("1.2")),
        "TLSv1.3" => section.set(option, quoted("1.3")),
        _ => section.note(line, text, "TLS 1.2 is the oldest here"),
    }
}

fn servers(backend: &Part, defaults: &Part, section: &mut Section) {
    let mut all = Vec::new();
    for (line, words) in backend.all("server") {
        let address = words.get(2).map_or("", String::as_str);
        let mut more = String::new();
        let mut rest = words.iter().skip(3);
        while let Some(word) = rest.next() {
            match word.as_str() {
                "weight" => {
                    if let Some(n) = rest.next().filter(|n| *n != "0") {
                        more.push_str(&format!(", weight = {n}"));
                    }
                }
                "maxconn" => {
                    if let Some(n) = rest.next().filter(|n| *n != "0") {
                        more.push_str(&format!(", max_connections = {n}"));
                    }
                }
                "backup" => more.push_str(", backup = true"),
                "send-proxy" => section.set("proxy_protocol", quoted("v1")),
                "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                    section.set("proxy_protocol", quoted("v2"));
                }
                "slowstart" => {
                    if let Some(time) = rest.next().and_then(|text| time(text)) {
                        section.set("slow_start", quoted(&time));
                    }
                }
                "check" => section.note(
                    *line,
                    "check",
                    "backends are judged by their connections (backend_failures)",
                ),
                "inter" | "rise" | "fall" | "port" | "cookie" | "fastinter" | "downinter" => {
                    rest.next();
                }
                "ssl" => section.note(*line, "ssl", "TLS to the backend: see [[originate]]"),
                other => section.note(*line, other, "no counterpart"),
            }
        }
        let address = quoted(&server_address(address));
        all.push(if more.is_empty() {
            address
        } else {
            format!("{{ address = {address}{more} }}")
        });
    }
    if all.is_empty() {
        return;
    }
    section.set("to", list(&all));
    let balance = backend.find("balance").or(defaults.find("balance"));
    match balance.and_then(|words| words.first()).map(String::as_str) {
        Some("leastconn") => section.set("balance", quoted("least-connections")),
        Some("source") => section.set("balance", quoted("client-hash")),
        _ => {}
    }
}

/// `*:443`, `:443`, `ipv4@1.2.3.4:443`, `:::443`.
fn bind_address(text: &str) -> String {
    let text = text.rsplit_once('@').map_or(text, |(_, address)| address);
    match text.rsplit_once(':') {
        Some(("" | "*", port)) => format!("0.0.0.0:{port}"),
        Some(("::", port)) => format!("[::]:{port}"),
        _ => text.to_owned(),
    }
}

fn server_address(text: &str) -> String {
    if text.starts_with('/') {
        return format!("unix:{text}");
    }
    match text.split_once('@') {
        Some(("unix", path)) => format!("unix:{path}"),
        Some((_, address)) => address.to_owned(),
        None => text.to_owned(),
    }
}

/// HAProxy's times: without a unit they are milliseconds.
fn time(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match text.strip_prefix(digits)? {
        "" | "ms" => Some(format!("{number}ms")),
        unit @ ("s" | "m" | "h" | "d") => Some(format!("{number}{unit}")),
        _ => None,
    }
}
