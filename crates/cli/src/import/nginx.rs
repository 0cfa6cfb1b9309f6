//! nginx.conf and what it includes: `name words… ;` and `name words… { … }`.
//!
//! Servers with a `listen … ssl` are carried over, of `stream` as they are; of `http` only where
//! the bytes go, because what is done with requests is done by the server behind us.

use super::draft::{Draft, Section, certificates, list, quoted, quoted_list, suite, versions};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Files that are included, in all.
const INCLUDES_MAX: usize = 200;
/// Blocks in blocks.
const DEPTH_MAX: usize = 20;

#[derive(Clone, Debug)]
struct Directive {
    line: usize,
    words: Vec<String>,
    block: Vec<Directive>,
}

impl Directive {
    fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    fn word(&self, n: usize) -> &str {
        self.words.get(n).map_or("", String::as_str)
    }

    fn shown(&self) -> String {
        self.words.join(" ")
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Directive> {
        self.block.iter().filter(move |one| one.name() == name)
    }

    fn find(&self, name: &str) -> Option<&Directive> {
        self.block.iter().rev().find(|one| one.name() == name)
    }
}

pub(super) fn read(text: &str, folder: &Path) -> Draft {
    let mut draft = Draft::default();
    let mut reader = Reader {
        folder: folder.to_owned(),
        left: INCLUDES_MAX,
        missing: Vec::new(),
    };
    let whole = Directive {
        line: 0,
        words: Vec::new(),
        block: reader.parse(text, 0),
    };
    for (line, what) in &reader.missing {
        draft.note(*line, what, "could not be read");
    }
    if let Some(workers) = whole
        .find("worker_processes")
        .filter(|one| one.word(1) != "auto")
    {
        draft.set("workers", workers.word(1));
    }
    if let Some(user) = whole.find("user") {
        draft.set("user", quoted(user.word(1)));
        if !user.word(2).is_empty() {
            draft.set("group", quoted(user.word(2)));
        }
    }
    for kind in ["stream", "http"] {
        for context in whole.all(kind) {
            let mut upstreams = HashMap::new();
            for upstream in context.all("upstream") {
                upstreams.insert(upstream.word(1).to_owned(), upstream);
            }
            for server in context.all("server") {
                read_server(kind, context, server, &upstreams, &mut draft);
            }
        }
    }
    draft
}

fn read_server(
    kind: &str,
    context: &Directive,
    server: &Directive,
    upstreams: &HashMap<String, &Directive>,
    draft: &mut Draft,
) {
    let listens: Vec<&Directive> = server
        .all("listen")
        .filter(|listen| listen.words.iter().any(|word| word == "ssl"))
        .collect();
    if listens.is_empty() {
        return;
    }
    // A directive of the context holds for its servers.
    let found = |name: &str| server.find(name).or_else(|| context.find(name));
    let names: Vec<&str> = server.find("server_name").map_or(Vec::new(), |names| {
        names.words.iter().skip(1).map(String::as_str).collect()
    });
    let mut section = Section::new(false, format!("{kind} server {}", names.join(" ")));
    let addresses: Vec<String> = listens
        .iter()
        .map(|one| quoted(&listen_address(one.word(1))))
        .collect();
    section.set("listen", list(&addresses));
    if listens
        .iter()
        .any(|one| one.words.iter().any(|word| word == "proxy_protocol"))
    {
        let trusted: Vec<&str> = server
            .all("set_real_ip_from")
            .map(|one| one.word(1))
            .collect();
        if trusted.is_empty() {
            section.note(
                listens[0].line,
                &listens[0].shown(),
                "set accept_proxy_from to the networks of your proxies",
            );
        } else {
            section.set("accept_proxy_from", quoted_list(&trusted));
        }
    }
    backend(kind, server, upstreams, &mut section);
    show(server, &found, &mut section);
    crypto(&found, &mut section);
    for (name, option) in [
        ("proxy_connect_timeout", "backend_connect_timeout"),
        ("ssl_handshake_timeout", "handshake_timeout"),
    ] {
        if let Some(time) = found(name).and_then(|one| time(one.word(1))) {
            draft.set(option, quoted(&time));
        }
    }
    if kind == "stream" {
        // Its default is ten minutes; ours is never.
        let idle = found("proxy_timeout").map_or("10m", |one| one.word(1));
        if let Some(idle) = time(idle) {
            draft.set("idle_timeout", quoted(&idle));
        }
        if found("proxy_protocol").is_some_and(|one| one.word(1) == "on") {
            section.set("proxy_protocol", quoted("v1"));
        }
    }
    networks(server, &mut section);
    left_out(kind, server, &mut section);
    if section.has("to") {
        draft.sections.push(section);
    } else {
        draft.note(server.line, "server", "it passes its connections to nobody");
    }
}

/// The certificates of a server, or of the context around it.
fn show<'a>(
    server: &'a Directive,
    found: &impl Fn(&str) -> Option<&'a Directive>,
    section: &mut Section,
) {
    let pairs: Vec<(String, Option<String>)> = server
        .all("ssl_certificate")
        .zip(server.all("ssl_certificate_key"))
        .map(|(cert, key)| (cert.word(1).to_owned(), Some(key.word(1).to_owned())))
        .collect();
    match (
        pairs.is_empty(),
        found("ssl_certificate"),
        found("ssl_certificate_key"),
    ) {
        (false, ..) => section.set("certificates", certificates(&pairs)),
        (true, Some(cert), Some(key)) => {
            let pair = (cert.word(1).to_owned(), Some(key.word(1).to_owned()));
            section.set("certificates", certificates(&[pair]));
        }
        _ => section.note(
            server.line,
            "ssl_certificate",
            "MISSING: add certificates = [{ cert = \"…\", key = \"…\" }]",
        ),
    }
}

fn backend(
    kind: &str,
    server: &Directive,
    upstreams: &HashMap<String, &Directive>,
    section: &mut Section,
) {
    let pass = match kind {
        "stream" => server.find("proxy_pass"),
        _ => server
            .all("location")
            .find(|location| location.word(1) == "/")
            .and_then(|location| location.find("proxy_pass")),
    };
    let Some(pass) = pass else {
        if kind == "http" {
            // It serves by itself: let it, in the clear, behind us.
            section.set("to", quoted("127.0.0.1:8080"));
            section.note(
                server.line,
                "server",
                "nginx answers by itself: let it listen on 127.0.0.1:8080 without ssl",
            );
        }
        return;
    };
    let target = pass.word(1).trim_start_matches("http://");
    if target.starts_with("https://") {
        section.note(
            pass.line,
            &pass.shown(),
            "TLS to the backend: see [[originate]]",
        );
    }
    let target = target.trim_start_matches("https://");
    let (target, port) = match kind {
        "http" => (target.split('/').next().unwrap_or_default(), "80"),
        _ => (target, ""),
    };
    match upstreams.get(target) {
        Some(upstream) => read_upstream(upstream, port, section),
        None => section.set("to", quoted(&backend_address(pass.word(1), target, port))),
    }
}

fn read_upstream(upstream: &Directive, port: &str, section: &mut Section) {
    let mut all = Vec::new();
    for server in upstream.all("server") {
        let address = quoted(&backend_address(server.word(1), server.word(1), port));
        let mut more = String::new();
        for word in server.words.iter().skip(2) {
            match word.split_once('=') {
                Some(("weight", n)) => more.push_str(&format!(", weight = {n}")),
                Some(("max_conns", n)) if n != "0" => {
                    more.push_str(&format!(", max_connections = {n}"));
                }
                Some(("max_fails", n)) if n != "0" => section.set("backend_failures", n),
                Some(("fail_timeout", text)) => {
                    if let Some(time) = time(text) {
                        section.set("backend_pause", quoted(&time));
                    }
                }
                Some(("slow_start", text)) => {
                    if let Some(time) = time(text) {
                        section.set("slow_start", quoted(&time));
                    }
                }
                None if word == "backup" => more.push_str(", backup = true"),
                None if word == "down" => more.push_str("down"),
                _ => section.note(
                    server.line,
                    &server.shown(),
                    &format!("{word}: no counterpart"),
                ),
            }
        }
        if more.contains("down") {
            section.note(server.line, &server.shown(), "it is down");
        } else if more.is_empty() {
            all.push(address);
        } else {
            all.push(format!("{{ address = {address}{more} }}"));
        }
    }
    if !all.is_empty() {
        section.set("to", list(&all));
    }
    if upstream.find("least_conn").is_some() {
        section.set("balance", quoted("least-connections"));
    }
    let by_client = |one: &Directive| one.word(1).contains("remote_addr");
    if upstream.find("ip_hash").is_some() || upstream.find("hash").is_some_and(by_client) {
        section.set("balance", quoted("client-hash"));
    }
}

fn crypto<'a>(found: &impl Fn(&str) -> Option<&'a Directive>, section: &mut Section) {
    if let Some(protocols) = found("ssl_protocols") {
        let words = protocols.words.iter().skip(1).map(String::as_str);
        match versions(words) {
            Some((min, max)) => {
                section.set("min_version", quoted(min));
                section.set("max_version", quoted(max));
            }
            None => section.note(
                protocols.line,
                &protocols.shown(),
                "none of these is spoken here",
            ),
        }
    }
    if let Some(ciphers) = found("ssl_ciphers") {
        let known = ciphers.word(1).split(':').filter_map(suite).count();
        section.note(
            ciphers.line,
            &ciphers.shown(),
            &format!("{known} of these are known here, where all have forward secrecy; see `suites` for fewer"),
        );
    }
    if let Some(alpn) = found("ssl_alpn") {
        let names: Vec<&String> = alpn.words.iter().skip(1).collect();
        section.set("alpn", quoted_list(&names));
    }
}

fn networks(server: &Directive, section: &mut Section) {
    for (name, option) in [("allow", "allow"), ("deny", "deny")] {
        let listed: Vec<&str> = server.all(name).map(|one| one.word(1)).collect();
        // `deny all` behind some `allow` is what our `allow` means.
        let listed: Vec<&str> = listed.into_iter().filter(|word| *word != "all").collect();
        if !listed.is_empty() {
            section.set(option, quoted_list(&listed));
        }
    }
}

fn left_out(kind: &str, server: &Directive, section: &mut Section) {
    for one in &server.block {
        let why = match one.name() {
            "ssl_client_certificate" | "ssl_verify_client" | "ssl_crl" => {
                "clients are not asked for certificates here"
            }
            "ssl_stapling" | "ssl_stapling_file" => "no OCSP response is sent",
            "proxy_ssl" | "proxy_ssl_verify" => "TLS to the backend: see [[originate]]",
            "ssl_preread" => "names are not passed through",
            "location" | "return" | "rewrite" | "add_header" | "root" | "index"
                if kind == "http" =>
            {
                "stays with nginx, or the server behind"
            }
            "limit_conn" => "see connections_per_client",
            _ => continue,
        };
        section.note(one.line, &one.shown(), why);
    }
}

/// `443`, `*:443`, `[::]:443`, `127.0.0.1:443`.
fn listen_address(text: &str) -> String {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return format!("0.0.0.0:{text}");
    }
    match text.strip_prefix("*:") {
        Some(port) => format!("0.0.0.0:{port}"),
        None => text.to_owned(),
    }
}

fn backend_address(whole: &str, target: &str, port: &str) -> String {
    if let Some(path) = whole.trim_start_matches("http://").strip_prefix("unix:") {
        // Behind a path of the file system http has a colon and a path of its own.
        return format!("unix:{}", path.split(':').next().unwrap_or(path));
    }
    let has_port = target.rsplit_once(':').is_some_and(|(host, port)| {
        !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(':')
    });
    if has_port || port.is_empty() {
        target.to_owned()
    } else {
        format!("{target}:{port}")
    }
}

/// nginx's times: `10`, `60s`, `10m`, `1h`, `500ms`; without a unit they are seconds.
fn time(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match text.strip_prefix(digits)? {
        "" | "s" => Some(format!("{number}s")),
        unit @ ("ms" | "m" | "h" | "d") => Some(format!("{number}{unit}")),
        _ => None,
    }
}

struct Reader {
    folder: PathBuf,
    left: usize,
    missing: Vec<(usize, String)>,
}

impl Reader {
    fn parse(&mut self, text: &str, depth: usize) -> Vec<Directive> {
        let tokens = tokens(text);
        let mut at = 0;
        self.block(&tokens, &mut at, depth)
    }

    fn block(&mut self, tokens: &[(usize, Token)], at: &mut usize, depth: usize) -> Vec<Directive> {
        let mut block = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut line = 0;
        while let Some((number, token)) = tokens.get(*at) {
            *at += 1;
            match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        line = *number;
                    }
                    words.push(word.clone());
                }
                Token::Semicolon => {
                    let words = std::mem::take(&mut words);
                    if words.first().is_some_and(|name| name == "include") {
                        block.extend(self.include(
                            line,
                            words.get(1).map_or("", String::as_str),
                            depth,
                        ));
                    } else if !words.is_empty() {
                        block.push(Directive {
                            line,
                            words,
                            block: Vec::new(),
                        });
                    }
                }
                Token::Open if depth < DEPTH_MAX => {
                    let inner = self.block(tokens, at, depth + 1);
                    block.push(Directive {
                        line,
                        words: std::mem::take(&mut words),
                        block: inner,
                    });
                }
                Token::Open => words.clear(),
                Token::Close => return block,
            }
        }
        block
    }

    /// A file, or all that fit `folder/*.conf`.
    fn include(&mut self, line: usize, pattern: &str, depth: usize) -> Vec<Directive> {
        let path = self.folder.join(pattern);
        let mut files = Vec::new();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        match (
            name.as_deref().and_then(|name| name.split_once('*')),
            path.parent(),
        ) {
            (Some((start, end)), Some(folder)) => {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                files.extend(entries.map(|entry| entry.path()).filter(|file| {
                    file.file_name().is_some_and(|name| {
                        let name = name.to_string_lossy();
                        name.starts_with(start) && name.ends_with(end) && !name.starts_with('.')
                    })
                }));
                files.sort();
            }
            _ => files.push(path),
        }
        let mut all = Vec::new();
        for file in files {
            if self.left == 0 || depth >= DEPTH_MAX {
                self.missing.push((line, file.display().to_string()));
                continue;
            }
            self.left -= 1;
            match super::read(&file) {
                Ok(text) => all.extend(self.parse(&text, depth + 1)),
                Err(_) => self.missing.push((line, file.display().to_string())),
            }
        }
        all
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
}

fn tokens(text: &str) -> Vec<(usize, Token)> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let special = match c {
            ';' => Some(Token::Semicolon),
            '{' => Some(Token::Open),
            '}' => Some(Token::Close),
            _ => None,
        };
        if special.is_some() || c.is_whitespace() || (c == '#' && word.is_none()) {
            all.extend(word.take().map(|word| (line, Token::Word(word))));
            all.extend(special.map(|token| (line, token)));
            if c == '#' {
                while chars.next_if(|&c| c != '\n').is_some() {}
            }
            line += usize::from(c == '\n');
            continue;
        }
        let word = word.get_or_insert_default();
        match c {
            '"' | '\'' if word.is_empty() => {
                while let Some(inner) = chars.next_if(|&inner| inner != c) {
                    line += usize::from(inner == '\n');
                    word.push(inner);
                }
                chars.next();
            }
            '\\' => word.extend(chars.next()),
            // A variable: its braces are not a block's.
            '$' if chars.peek() == Some(&'{') => {
                word.push('$');
                while let Some(inner) = chars.next_if(|&inner| inner != '}' && inner != '\n') {
                    word.push(inner);
                }
                word.extend(chars.next_if_eq(&'}'));
            }
            c => word.push(c),
        }
    }
    all.extend(word.map(|word| (line, Token::Word(word))));
    all
}
