//! haproxy.cfg, as sections of words.

use super::{Demanded, Demands};

type Words = Vec<String>;

#[derive(Clone)]
struct Part {
    kind: String,
    name: String,
    lines: Vec<Words>,
}

impl Part {
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Words> {
        self.lines.iter().filter(move |words| words[0] == name)
    }

    fn is_http(&self) -> bool {
        let mode = self.lines.iter().rev().find(|words| words[0] == "mode");
        mode.is_some_and(|words| words[1] == "http")
    }

    /// Returns whether a rule refuses some clients with TLS.
    fn refuses(&self) -> bool {
        self.all("tcp-request").any(|words| {
            let what = words.get(2).map_or("", String::as_str);
            let is_about_tls = words.iter().any(|word| word.contains("hello_type"));
            matches!(what, "reject" | "silent-drop") && !is_about_tls
        })
    }
}

/// Returns the sections; each proxy begins with the lines of its `defaults`.
fn read(text: &str) -> Vec<Part> {
    let (mut parts, mut defaults): (Vec<Part>, Vec<Part>) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let cut = line.split(" #").next().unwrap_or_default();
        let words = cut
            .split_whitespace()
            .map(|word| word.trim_matches('"').to_owned());
        let words: Words = words.collect();
        let Some(first) = words.first().filter(|first| !first.starts_with(['#', '.'])) else {
            continue;
        };
        if line.starts_with([' ', '\t']) {
            let open = match parts.last() {
                Some(part) if part.kind == "defaults" => defaults.last_mut(),
                _ => parts.last_mut(),
            };
            open.expect("an open section").lines.push(words);
            continue;
        }
        let from = words
            .iter()
            .position(|word| word == "from")
            .and_then(|at| words.get(at + 1));
        let mut bases = defaults.iter().rev();
        let base = bases.find(|one| from.is_none_or(|from| one.name == *from));
        let inherits =
            from.is_some() || ["frontend", "backend", "listen"].contains(&first.as_str());
        let part = Part {
            kind: first.clone(),
            name: words.get(1).cloned().unwrap_or_default(),
            lines: base
                .filter(|_| inherits)
                .map(|one| one.lines.clone())
                .unwrap_or_default(),
        };
        if part.kind == "defaults" {
            defaults.push(part.clone());
        }
        parts.push(part);
    }
    parts
}

pub(super) fn demands(text: &str) -> Demands {
    let parts = read(text);
    let is_frontend = |part: &&Part| ["frontend", "listen"].contains(&part.kind.as_str());
    let mut demands = Demands::new();
    for part in parts.iter().filter(is_frontend) {
        if part.all("disabled").next().is_some() {
            continue;
        }
        let names: Vec<&String> = (part.all("use_backend").chain(part.all("default_backend")))
            .map(|words| &words[1])
            .collect();
        let is_backend = |one: &&Part| {
            ["backend", "listen"].contains(&one.kind.as_str()) && names.contains(&&one.name)
        };
        let backends: Vec<&Part> = parts.iter().filter(is_backend).chain([part]).collect();
        for bind in part.all("bind") {
            let has_tls = bind.iter().any(|word| word == "ssl");
            if !has_tls && (part.is_http() || bind[1].starts_with("quic")) {
                continue;
            }
            let mut these = Demanded::default();
            of_bind(bind, &mut these);
            these.when(part.refuses(), "refuses some clients");
            if !part.is_http() {
                backends
                    .iter()
                    .for_each(|backend| of_servers(backend, &mut these));
            }
            these.at(&bind[1], &mut demands);
        }
    }
    demands
}

fn of_bind(bind: &Words, these: &mut Demanded) {
    let has = |word: &str| bind.iter().any(|one| one == word);
    let verifies = bind.windows(2).any(|pair| pair == ["verify", "required"]);
    if has("ssl") {
        these.when(verifies, "requires a certificate");
        these.when(verifies && has("crl-file"), "checks revocation");
        these.when(has("strict-sni"), "refuses unknown names");
    }
    these.when(
        has("accept-proxy") || has("accept-netscaler-cip"),
        "expects a header",
    );
}

fn of_servers(backend: &Part, these: &mut Demanded) {
    let kinds = ["server", "server-template", "default-server"];
    for server in kinds.iter().flat_map(|kind| backend.all(kind)) {
        let has = |word: &str| server.iter().any(|one| one == word);
        let (has_tls, is_off) = (
            has("ssl") && !has("no-ssl"),
            server.windows(2).any(|pair| pair == ["verify", "none"]),
        );
        these.when(has_tls, "uses TLS to a backend");
        these.when(
            server.iter().any(|one| one.starts_with("send-proxy")),
            "sends a header",
        );
        these.when(
            has("crl-file") && has("ssl") && !is_off,
            "checks revocation of servers",
        );
    }
}
