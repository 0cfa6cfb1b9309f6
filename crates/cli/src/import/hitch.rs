//! hitch.conf: `key = value`, and blocks in braces (hitch.conf(5)).

use super::draft::{Draft, Section, certificates, list, quoted, quoted_list, versions};

/// A value: a text, or a block of more.
#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Block(Vec<Entry>),
}

#[derive(Clone, Debug)]
struct Entry {
    line: usize,
    key: String,
    value: Value,
}

impl Entry {
    fn text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            Value::Block(_) => "",
        }
    }

    fn shown(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("{} = {text}", self.key),
            Value::Block(_) => format!("{} = {{ … }}", self.key),
        }
    }

    fn of_block(&self, key: &str) -> Option<&str> {
        let Value::Block(entries) = &self.value else {
            return None;
        };
        let found = entries.iter().find(|entry| entry.key == key)?;
        Some(found.text())
    }
}

pub(super) fn read(text: &str) -> Draft {
    let mut draft = Draft::default();
    let entries = parse(text, &mut draft);
    let mut route = Section::new(false, "the whole of it: hitch has one backend");
    let mut listen = Vec::new();
    let mut pems = Vec::new();
    for entry in &entries {
        match entry.key.as_str() {
            "frontend" => frontend(entry, &mut listen, &mut pems),
            "pem-file" => pem(entry, &mut pems),
            _ => option(entry, &mut route, &mut draft),
        }
    }
    if !route.has("to") {
        return draft;
    }
    if listen.is_empty() {
        listen.push(quoted(":8443"));
    }
    route.set("listen", list(&listen));
    if pems.is_empty() {
        route.note(
            0,
            "pem-file",
            "MISSING: add certificates = [{ cert = \"…\", key = \"…\" }]",
        );
    } else {
        // hitch shows the last one to clients that ask for nobody in particular; here it is the first.
        pems.reverse();
        route.set("certificates", certificates(&pems));
    }
    draft.sections.push(route);
    draft
}

fn frontend(entry: &Entry, listen: &mut Vec<String>, pems: &mut Vec<(String, Option<String>)>) {
    match &entry.value {
        Value::Text(text) => {
            // [HOST]:PORT, with an optional +PEM behind it.
            let (address, file) = text.split_once('+').unwrap_or((text, ""));
            listen.push(quoted(&address_of(address)));
            if !file.is_empty() {
                pems.push((file.to_owned(), None));
            }
        }
        Value::Block(inner) => {
            let host = entry.of_block("host").unwrap_or("*");
            let port = entry.of_block("port").unwrap_or("8443");
            listen.push(quoted(&address_of(&format!("[{host}]:{port}"))));
            inner
                .iter()
                .filter(|entry| entry.key == "pem-file")
                .for_each(|entry| pem(entry, pems));
        }
    }
}

fn pem(entry: &Entry, pems: &mut Vec<(String, Option<String>)>) {
    match &entry.value {
        Value::Text(file) => pems.push((file.clone(), None)),
        Value::Block(_) => {
            if let Some(cert) = entry.of_block("cert") {
                let key = entry.of_block("private-key").map(str::to_owned);
                pems.push((cert.to_owned(), key));
            }
        }
    }
}

/// `[127.0.0.1]:80` and `[*]:443` as we write them.
fn address_of(text: &str) -> String {
    let Some((host, port)) = text.rsplit_once(':') else {
        return text.to_owned();
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host {
        "" | "*" => format!(":{port}"),
        host if host.contains(':') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    }
}

fn option(entry: &Entry, route: &mut Section, draft: &mut Draft) {
    let text = entry.text();
    let on = matches!(text, "on" | "yes" | "true");
    match entry.key.as_str() {
        "backend" if text.starts_with('/') => route.set("to", quoted(&format!("unix:{text}"))),
        "backend" => route.set("to", quoted(&address_of(text))),
        "workers" if text != "auto" => draft.set("workers", text),
        "backlog" => draft.set("backlog", text),
        "keepalive" => draft.set("keepalive_idle", quoted(&format!("{text}s"))),
        "backend-connect-timeout" => {
            draft.set("backend_connect_timeout", quoted(&format!("{text}s")));
        }
        "ssl-handshake-timeout" => draft.set("handshake_timeout", quoted(&format!("{text}s"))),
        "alpn-protos" => {
            let names: Vec<&str> = text.split(',').map(str::trim).collect();
            route.set("alpn", quoted_list(&names));
        }
        "write-proxy-v1" if on => route.set("proxy_protocol", quoted("v1")),
        "write-proxy-v2" | "write-proxy" if on => route.set("proxy_protocol", quoted("v2")),
        "tls-protos" => match versions(text.split_whitespace()) {
            Some((min, max)) => {
                route.set("min_version", quoted(min));
                route.set("max_version", quoted(max));
            }
            None => route.note(entry.line, &entry.shown(), "none of these is spoken here"),
        },
        _ => no_option(entry, on, route, draft),
    }
}

/// What has another form here, or none.
fn no_option(entry: &Entry, on: bool, route: &mut Section, draft: &mut Draft) {
    match entry.key.as_str() {
        "write-ip" if on => route.note(
            entry.line,
            &entry.shown(),
            "there is proxy_protocol = \"v1\" or \"v2\" instead",
        ),
        "proxy-proxy" if on => route.note(
            entry.line,
            &entry.shown(),
            "set accept_proxy_from to the networks of your proxies, and proxy_protocol = \"v2\"",
        ),
        "ciphers" | "ciphersuites" => route.note(
            entry.line,
            &entry.shown(),
            "all suites here are AEAD with forward secrecy; see `suites` for fewer",
        ),
        "client-verify" | "client-verify-ca" => {
            route.note(
                entry.line,
                &entry.shown(),
                "clients are not asked for certificates here",
            );
        }
        "sni-nomatch-abort" if on => {
            route.note(
                entry.line,
                &entry.shown(),
                "the first certificate is shown instead",
            );
        }
        "pem-dir" | "pem-dir-glob" => {
            route.note(
                entry.line,
                &entry.shown(),
                "list its files in `certificates`",
            );
        }
        // What has no counterpart because nothing is lost without it.
        "workers"
        | "daemon"
        | "quiet"
        | "prefer-server-ciphers"
        | "write-ip"
        | "proxy-proxy"
        | "write-proxy-v1"
        | "write-proxy-v2"
        | "write-proxy"
        | "sni-nomatch-abort"
        | "ssl"
        | "tls"
        | "ring-slots"
        | "ring-data-len" => {}
        "user" => draft.set("user", quoted(entry.text())),
        "group" => draft.set("group", quoted(entry.text())),
        _ => draft.note(entry.line, &entry.shown(), "no counterpart"),
    }
}

fn parse(text: &str, draft: &mut Draft) -> Vec<Entry> {
    let mut stack: Vec<(usize, String, Vec<Entry>)> = Vec::new();
    let mut entries = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let number = n + 1;
        let mut rest = without_comment(line).trim();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('}') {
                if let Some((line, key, outer)) = stack.pop() {
                    let inner = std::mem::replace(&mut entries, outer);
                    entries.push(Entry {
                        line,
                        key,
                        value: Value::Block(inner),
                    });
                }
                rest = after.trim_start();
                continue;
            }
            let Some((key, value)) = rest.split_once('=') else {
                draft.note(number, rest, "not understood");
                break;
            };
            let (key, value) = (key.trim().to_owned(), value.trim_start());
            if let Some(after) = value.strip_prefix('{') {
                stack.push((number, key, std::mem::take(&mut entries)));
                rest = after.trim_start();
                continue;
            }
            let (text, after) = word(value);
            entries.push(Entry {
                line: number,
                key,
                value: Value::Text(text.to_owned()),
            });
            rest = after.trim_start();
        }
    }
    for (line, key, _) in stack {
        draft.note(line, &key, "its brace is not closed");
    }
    entries
}

/// A value, in quotes or to the end of the line or block.
fn word(text: &str) -> (&str, &str) {
    if let Some(inner) = text.strip_prefix('"') {
        return inner.split_once('"').unwrap_or((inner, ""));
    }
    match text.find('}') {
        Some(at) => (text[..at].trim(), &text[at..]),
        None => (text.trim(), ""),
    }
}

fn without_comment(line: &str) -> &str {
    let mut quotes = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quotes = !quotes,
            '#' if !quotes => return &line[..at],
            _ => {}
        }
    }
    line
}
