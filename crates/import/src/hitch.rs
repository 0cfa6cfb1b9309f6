//! hitch.conf: `key = value`, and blocks in braces (hitch.conf(5)).

use crate::advice::{NO_WRITE_IP, OTHER_PROTOCOLS, PROXY_NETWORKS};
use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::section::Section;
use crate::toml::{Certificate, certificates, list, quoted, quoted_list};
use crate::value::is_on;

/// The backend of a configuration that names none.
const DEFAULT_BACKEND: &str = "[127.0.0.1]:8000";

/// A value: a text, or a block of more.
#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Block(Vec<HitchSetting>),
}

#[derive(Clone, Debug)]
struct HitchSetting {
    position: Position,
    key: String,
    value: Value,
}

impl HitchSetting {
    fn text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            Value::Block(_) => "",
        }
    }

    fn block(&self) -> &[HitchSetting] {
        match &self.value {
            Value::Text(_) => &[],
            Value::Block(entries) => entries,
        }
    }

    fn shown(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("{} = {text}", self.key),
            Value::Block(_) => format!("{} = {{ … }}", self.key),
        }
    }

    fn of_block(&self, key: &str) -> Option<&str> {
        find(self.block(), key).map(HitchSetting::text)
    }
}

/// Returns the last entry with this key: it wins.
fn find<'a>(entries: &'a [HitchSetting], key: &str) -> Option<&'a HitchSetting> {
    entries.iter().rev().find(|entry| entry.key == key)
}

pub(super) fn read(text: &str, position: &Position) -> Result<Draft, ImportError> {
    let mut draft = Draft::default();
    let entries = parse(text, position, &mut draft)?;
    let of_tls = ["backend", "frontend", "pem-file", "pem-dir"];
    if !of_tls.iter().any(|key| find(&entries, key).is_some()) {
        return Ok(draft);
    }
    let backend = find(&entries, "backend").map_or(DEFAULT_BACKEND, HitchSetting::text);
    let mut base = Section::new(false, "all frontends without settings of their own");
    base.set_text("to", &backend_address(backend));
    for entry in &entries {
        program(entry, &mut base, &mut draft);
    }
    if find(&entries, "proxy-client-cert").is_some_and(|one| is_on(one.text())) {
        base.set_text("proxy_protocol", "v2-certificate");
    }
    // Frontends without settings of their own become one route; every other frontend becomes its
    // own route.
    let mut listen = Vec::new();
    let mut routes = Vec::new();
    for entry in entries.iter().filter(|entry| entry.key == "frontend") {
        let (address, own) = frontend(entry);
        if own.is_empty() {
            listen.push(quoted(&address));
            continue;
        }
        let mut route = base.clone();
        route.title = format!("frontend {address}");
        route.set_text("listen", &address);
        // Its own settings take precedence.
        tls(&[&own[..], &entries[..]], &mut route);
        for one in own.iter().filter(|one| !is_of_frontend(&one.key)) {
            route.leave_out(&one.position, &one.shown(), "no equivalent");
        }
        routes.push(route);
    }
    if listen.is_empty() && routes.is_empty() {
        listen.push(quoted("0.0.0.0:8443"));
    }
    if !listen.is_empty() {
        base.set("listen", list(&listen));
        tls(&[&entries[..]], &mut base);
        draft.sections.push(base);
    }
    draft.sections.append(&mut routes);
    Ok(draft)
}

/// Returns whether a frontend's own setting is converted, or needs no remark.
fn is_of_frontend(key: &str) -> bool {
    matches!(
        key,
        "pem-file"
            | "pem-dir"
            | "pem-dir-glob"
            | "sni-nomatch-abort"
            | "match-global-certs"
            | "tls-protos"
            | "ciphers"
            | "ciphersuites"
            | "ecdh-curve"
            | "client-verify"
            | "client-verify-ca"
            | "prefer-server-ciphers"
            | "ssl"
            | "tls"
    )
}

/// Returns a frontend's address and its own settings.
fn frontend(entry: &HitchSetting) -> (String, Vec<HitchSetting>) {
    match &entry.value {
        Value::Text(text) => {
            // `[HOST]:PORT`, with an optional `+PEM`.
            let (address, file) = text.split_once('+').unwrap_or((text, ""));
            let pem = HitchSetting {
                position: entry.position.clone(),
                key: "pem-file".to_owned(),
                value: Value::Text(file.to_owned()),
            };
            let own = if file.is_empty() {
                Vec::new()
            } else {
                vec![pem]
            };
            (listen_address(address), own)
        }
        Value::Block(inner) => {
            let host = entry.of_block("host").unwrap_or("*");
            let port = entry.of_block("port").unwrap_or("8443");
            let own = inner
                .iter()
                .filter(|one| !matches!(one.key.as_str(), "host" | "port"));
            (
                listen_address(&format!("[{host}]:{port}")),
                own.cloned().collect(),
            )
        }
    }
}

/// Converts everything about TLS. A setting of an earlier level takes precedence over a later one.
fn tls(levels: &[&[HitchSetting]], route: &mut Section) {
    let found = |key: &str| levels.iter().find_map(|entries| find(entries, key));
    let mut pems = Vec::new();
    for entries in levels {
        let mut of_level: Vec<Certificate> = Vec::new();
        for entry in entries.iter() {
            match entry.key.as_str() {
                "pem-file" => of_level.extend(pem(entry)),
                "pem-dir" => of_level.insert(0, Certificate::whole(entry.text())),
                _ => {}
            }
        }
        // For clients without a server name, hitch uses the last certificate, and Dormouse the
        // first. A directory counts only if there is nothing else.
        of_level.reverse();
        // hitch accepts a file twice; the second one adds nothing.
        for pem in of_level {
            if !pems.iter().any(|one: &Certificate| one.cert == pem.cert) {
                pems.push(pem);
            }
        }
        // A frontend's own certificates replace those of all frontends.
        if !pems.is_empty() && !found("match-global-certs").is_some_and(|one| is_on(one.text())) {
            break;
        }
    }
    if !pems.is_empty() {
        route.set("certificates", certificates(&pems));
    }
    if let Some(one) = found("pem-dir-glob").filter(|one| !matches!(one.text(), "*.pem" | "*")) {
        route.leave_out(
            &one.position,
            &one.shown(),
            "every NAME.pem in a directory is used",
        );
    }
    if found("sni-nomatch-abort").is_some_and(|one| is_on(one.text())) {
        route.set_text("unknown_name", "refuse");
    }
    if let Some(one) = found("tls-protos") {
        route.versions(&one.position, &one.shown(), one.text().split_whitespace());
    }
    let (tls12, tls13) = (found("ciphers"), found("ciphersuites"));
    if let Some(one) = tls12.or(tls13) {
        route.suites(
            &one.position,
            &one.shown(),
            tls12.map(HitchSetting::text),
            tls13.map(HitchSetting::text),
        );
    }
    if let Some(one) = found("ecdh-curve") {
        route.groups(&one.position, &one.shown(), one.text());
    }
    let how = found("client-verify").map_or("none", HitchSetting::text);
    if matches!(how, "optional" | "required") {
        route.clients(how, found("client-verify-ca").map(HitchSetting::text), &[]);
    }
}

fn pem(entry: &HitchSetting) -> Option<Certificate> {
    match &entry.value {
        Value::Text(file) => Some(Certificate::whole(file)),
        Value::Block(_) => {
            let cert = entry.of_block("cert")?;
            Some(Certificate {
                cert: cert.to_owned(),
                key: entry.of_block("private-key").map(str::to_owned),
                ocsp: entry.of_block("ocsp-resp-file").map(str::to_owned),
            })
        }
    }
}

/// Converts `[127.0.0.1]:80` and `[*]:443`.
fn listen_address(text: &str) -> String {
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

fn backend_address(text: &str) -> String {
    match text.starts_with('/') {
        true => format!("unix:{text}"),
        false => listen_address(text),
    }
}

/// Converts options of all frontends.
fn program(entry: &HitchSetting, route: &mut Section, draft: &mut Draft) {
    let (text, shown, position) = (entry.text(), entry.shown(), &entry.position);
    let on = is_on(text);
    let seconds = format!("{text}s");
    match entry.key.as_str() {
        "workers" if text != "auto" => draft.number("workers", text, position, &shown),
        "backlog" => draft.number("backlog", text, position, &shown),
        "keepalive" => draft.set_text("keepalive_idle", &seconds),
        "backend-connect-timeout" => draft.set_text("backend_connect_timeout", &seconds),
        "ssl-handshake-timeout" => draft.set_text("handshake_timeout", &seconds),
        "backend-refresh" if text != "0" => draft.set_text("resolve_every", &seconds),
        "alpn-protos" => {
            let names = text.split(',').map(str::trim);
            let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
            route.set("alpn", quoted_list(&names));
            draft.leave_out(position, &shown, OTHER_PROTOCOLS);
        }
        "write-proxy-v1" if on => route.set_text("proxy_protocol", "v1"),
        "write-proxy-v2" | "write-proxy" if on => route.set_text("proxy_protocol", "v2"),
        "proxy-proxy" if on => {
            route.set_text("proxy_protocol", "v2");
            route.add_to_do(position, PROXY_NETWORKS);
        }
        "write-ip" if on => route.add_to_do(position, NO_WRITE_IP),
        "user" => draft.set_text("user", text),
        "group" => draft.set_text("group", text),
        "log-level" if text == "0" => draft.set_text("log_level", "error"),
        _ => without_equivalent(entry, draft),
    }
}

/// Handles settings that have another form in Dormouse, or none.
fn without_equivalent(entry: &HitchSetting, draft: &mut Draft) {
    let why = match entry.key.as_str() {
        "tcp-fastopen" if !is_on(entry.text()) => return,
        "ocsp-dir" if entry.text().is_empty() => {
            draft.set("ocsp_fetch", "false");
            return;
        }
        "chroot" => "workers confine themselves (`sandbox`)",
        "syslog" | "syslog-facility" | "log-filename" if entry.text() != "off" => {
            "the log goes to standard error, or with log_to = \"syslog\" to syslog"
        }
        "tcp-fastopen" | "ssl-engine" => "no equivalent",
        // These need no remark, or have been read already.
        key if is_of_frontend(key) => return,
        "frontend"
        | "backend"
        | "workers"
        | "daemon"
        | "quiet"
        | "log-level"
        | "write-ip"
        | "proxy-proxy"
        | "write-proxy-v1"
        | "write-proxy-v2"
        | "write-proxy"
        | "proxy-tlv"
        | "proxy-client-cert"
        | "ring-slots"
        | "ring-data-len"
        | "backend-refresh"
        | "syslog"
        | "syslog-facility"
        | "log-filename"
        | "pidfile"
        | "ocsp-dir"
        | "ocsp-connect-tmo"
        | "ocsp-resp-tmo"
        | "ocsp-refresh-interval"
        | "ocsp-verify-staple" => return,
        _ => "no equivalent",
    };
    draft.leave_out(&entry.position, &entry.shown(), why);
}

fn parse(
    text: &str,
    position: &Position,
    draft: &mut Draft,
) -> Result<Vec<HitchSetting>, ImportError> {
    let mut stack: Vec<(usize, String, Vec<HitchSetting>)> = Vec::new();
    let mut entries = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let number = n + 1;
        let fault = |what: &str, help: &str| ImportError::new(position, number, what, help);
        let mut rest = without_comment(line).trim();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('}') {
                let Some((line, key, outer)) = stack.pop() else {
                    return Err(fault(
                        "this `}` has no `{`",
                        "remove it, or add the missing `{`",
                    ));
                };
                let inner = std::mem::replace(&mut entries, outer);
                entries.push(HitchSetting {
                    position: position.at(line),
                    key,
                    value: Value::Block(inner),
                });
                rest = after.trim_start();
                continue;
            }
            let Some((key, value)) = rest.split_once('=') else {
                draft.leave_out(&position.at(number), rest, "this is not `key = value`");
                break;
            };
            let (key, value) = (key.trim().to_owned(), value.trim_start());
            if let Some(after) = value.strip_prefix('{') {
                if stack.len() >= 10 {
                    return Err(fault(
                        "blocks are nested more than 10 deep here",
                        "hitch nests them one deep at most",
                    ));
                }
                stack.push((number, key, std::mem::take(&mut entries)));
                rest = after.trim_start();
                continue;
            }
            let Some((text, after)) = word(value) else {
                return Err(fault(
                    "the \" in this line is not closed",
                    "add the missing quote",
                ));
            };
            entries.push(HitchSetting {
                position: position.at(number),
                key,
                value: Value::Text(text.to_owned()),
            });
            rest = after.trim_start();
        }
    }
    match stack.first() {
        Some((line, ..)) => Err(ImportError::new(
            position,
            *line,
            "the `{` in this line is not closed",
            "add the missing `}`",
        )),
        None => Ok(entries),
    }
}

/// Splits off a value, in quotes or up to the end of the line or block, or to the next key in it.
fn word(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('"') {
        return inner.split_once('"');
    }
    let (line, behind) = text.split_at(text.find('}').unwrap_or(text.len()));
    let key = line.split_once('=').map(|(before, _)| before.trim_end());
    let key = key.and_then(|before| before.rfind(char::is_whitespace));
    Some(match key {
        Some(at) => (line[..at].trim(), &text[at..]),
        None => (line.trim(), behind),
    })
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
