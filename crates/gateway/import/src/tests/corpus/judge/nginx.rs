//! nginx.conf, as a list of directives with the blocks around each.

use std::collections::BTreeSet;

use super::{Demanded, Demands};

/// A directive: its words, the names of the blocks around it, and the number of its `server`.
struct Found {
    words: Vec<String>,
    around: Vec<String>,
    server: usize,
}

type Text<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn read(text: &str) -> Vec<Found> {
    let mut all = Vec::new();
    let (mut around, mut words): (Vec<(String, usize)>, Vec<String>) = (Vec::new(), Vec::new());
    let mut blocks = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ';' => {
                let server = around.iter().rev().find(|(name, _)| name == "server");
                all.push(Found {
                    words: std::mem::take(&mut words),
                    around: around.iter().map(|(name, _)| name.clone()).collect(),
                    server: server.map_or(0, |(_, number)| *number),
                });
            }
            '{' if words.iter().any(|word| word.ends_with("_by_lua_block")) => {
                skip_code(&mut chars);
                words.clear();
            }
            '{' => {
                blocks += 1;
                around.push((words.first().cloned().unwrap_or_default(), blocks));
                words.clear();
            }
            '}' => drop(around.pop()),
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            c if c.is_whitespace() => {}
            c => words.push(word(c, &mut chars)),
        }
    }
    all
}

/// Reads a word, which begins with this character.
fn word(first: char, chars: &mut Text<'_>) -> String {
    let mut word = String::new();
    if matches!(first, '"' | '\'') {
        word.extend(std::iter::from_fn(|| chars.next_if(|c| *c != first)));
        chars.next();
        return word;
    }
    word.push(first);
    while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !";{}".contains(*c)) {
        word.push(c);
        if c == '$' && chars.peek() == Some(&'{') {
            word.extend(std::iter::from_fn(|| chars.next_if(|c| *c != '}')));
            word.extend(chars.next());
        }
    }
    word
}

/// The corpus closes Lua code in the line where it begins, or at the beginning of one.
fn skip_code(chars: &mut Text<'_>) {
    let mut line: String = std::iter::from_fn(|| chars.next_if(|c| *c != '\n')).collect();
    while !line.trim().ends_with('}') || line.contains("--") || line.contains('"') {
        chars.next();
        line = std::iter::from_fn(|| chars.next_if(|c| *c != '\n')).collect();
        if line.is_empty() && chars.peek().is_none() {
            return;
        }
    }
}

/// A server, with what its context says for it.
struct Server<'a> {
    kind: &'a str,
    own: Vec<&'a Found>,
    all: &'a [Found],
}

impl Server<'_> {
    fn find(&self, name: &str) -> Option<String> {
        let is_inner = |one: &&Found| {
            one.around
                .iter()
                .any(|name| name == "location" || name == "if")
        };
        let is_it =
            |one: &&Found| one.words.first().is_some_and(|word| word == name) && !is_inner(one);
        let is_around = |one: &&Found| one.around.len() == 1 && one.around[0] == self.kind;
        let own = self.own.iter().rev().copied().find(|one| is_it(one));
        let found = own.or_else(|| self.all.iter().rev().filter(is_around).find(is_it));
        found.map(|one| one.words.get(1).cloned().unwrap_or_default().to_lowercase())
    }

    fn is_on(&self, name: &str) -> bool {
        self.find(name).is_some_and(|value| value == "on")
    }

    /// Returns whether a `listen` of this address has this word, in any server.
    fn listens_with(&self, address: &str, word: &str) -> bool {
        let is_same = |one: &&Found| {
            let is_listen =
                one.words[0] == "listen" && one.words.get(1).is_some_and(|one| one == address);
            is_listen && one.around.first().is_some_and(|name| name == self.kind)
        };
        let mut same = self.all.iter().filter(is_same);
        same.any(|one| one.words.iter().any(|there| there == word))
    }

    fn demands(&self, listen: &[String], demands: &mut Demands) {
        let has = |word: &str| listen.iter().any(|one| one == word);
        let address = listen.get(1).map_or("", String::as_str);
        let speaks_tls = self.listens_with(address, "ssl") || self.is_on("ssl");
        let (preread, connects) = (self.is_on("ssl_preread"), self.is_on("proxy_ssl"));
        let is_plain = !speaks_tls && (self.kind == "http" || !(preread || connects));
        if has("udp") || has("quic") || is_plain {
            return;
        }
        let mut these = Demanded::default();
        let verifies = speaks_tls && self.find("ssl_verify_client").as_deref() == Some("on");
        these.when(verifies, "requires a certificate");
        these.when(
            verifies && self.find("ssl_crl").is_some(),
            "checks revocation",
        );
        these.when(
            self.listens_with(address, "proxy_protocol"),
            "expects a header",
        );
        these.when(self.find("deny").is_some(), "limits networks");
        if self.kind == "stream" {
            let checks = connects && self.is_on("proxy_ssl_verify");
            these.when(self.is_on("proxy_protocol"), "sends a header");
            these.when(connects, "uses TLS to a backend");
            these.when(checks, "verifies the server");
            these.when(
                checks && self.find("proxy_ssl_crl").is_some(),
                "checks revocation of servers",
            );
            these.when(self.find("js_access").is_some(), "refuses some clients");
        }
        let address = if address.starts_with("unix:") {
            "/"
        } else {
            address
        };
        these.at(address, demands);
    }
}

pub(super) fn demands(text: &str) -> Demands {
    let all = read(text);
    let numbers: BTreeSet<usize> = all
        .iter()
        .map(|one| one.server)
        .filter(|n| *n > 0)
        .collect();
    let mut demands = Demands::new();
    for number in numbers {
        let own: Vec<&Found> = all.iter().filter(|one| one.server == number).collect();
        let Some(kind) = own.first().and_then(|one| one.around.first()) else {
            continue;
        };
        let is_group = own
            .iter()
            .any(|one| one.around.iter().any(|name| name == "upstream"));
        if !["http", "stream"].contains(&kind.as_str()) || is_group {
            continue;
        }
        let server = Server {
            kind,
            own,
            all: &all,
        };
        let listens: Vec<&Found> = server
            .own
            .iter()
            .copied()
            .filter(|one| one.words[0] == "listen")
            .collect();
        for listen in listens {
            server.demands(&listen.words, &mut demands);
        }
    }
    demands
}
