//! Sections of lines of words.

use crate::error::{ImportError, Position};
use crate::origin::{Ledger, Origin, Origins};

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) origin: Origin,
    pub(super) words: Vec<String>,
    /// The origin of each word, if each has a meaning of its own.
    parts: Vec<Origin>,
}

impl Line {
    pub(super) fn word(&self, n: usize) -> &str {
        self.words.get(n).map_or("", String::as_str)
    }

    /// Returns the words after the first `n`.
    pub(super) fn behind(&self, n: usize) -> &[String] {
        self.words.get(n..).unwrap_or_default()
    }

    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|there| there == word)
    }

    fn part(&self, n: usize) -> Origin {
        self.parts.get(n).copied().unwrap_or(self.origin)
    }

    pub(super) fn origins(&self) -> impl Iterator<Item = Origin> {
        [self.origin].into_iter().chain(self.parts.iter().copied())
    }

    /// Reads the words after those that the line itself stands for.
    pub(super) fn keywords(&self) -> Keywords<'_> {
        let at = own_words(&self.words);
        Keywords { line: self, at }
    }
}

/// The words of a line, each keyword with its values.
pub(super) struct Keywords<'a> {
    line: &'a Line,
    at: usize,
}

/// A keyword that has been read, with the origins of all its words.
pub(super) struct Keyword<'a> {
    pub(super) word: &'a str,
    pub(super) from: Origins,
}

impl<'a> Keywords<'a> {
    pub(super) fn next(&mut self) -> Option<Keyword<'a>> {
        let word = self.line.words.get(self.at)?;
        let from = self.line.part(self.at).into();
        self.at += 1;
        Some(Keyword { word, from })
    }

    /// Returns whether this word stands further behind.
    pub(super) fn come_to(&self, word: &str) -> bool {
        let rest = self.line.words.get(self.at..).unwrap_or_default();
        rest.iter().any(|one| one == word)
    }

    /// Reads the value of a keyword.
    pub(super) fn value(&mut self, keyword: &mut Keyword<'a>) -> &'a str {
        match self.next() {
            Some(value) => {
                keyword.from.add(value.from);
                value.word
            }
            None => "",
        }
    }
}

/// Returns the number of words at the beginning that have no meaning without each other. `None`: all.
fn words_of_their_own(first: &str) -> Option<usize> {
    Some(match first {
        "bind" => 2,
        "server" => 3,
        "server-template" => 4,
        "default-server"
        | "ssl-default-bind-options"
        | "ssl-default-server-options"
        | "ssl-f-use"
        | "load" => 1,
        _ => return None,
    })
}

fn own_words(words: &[String]) -> usize {
    let first = words.first().map_or("", String::as_str);
    words_of_their_own(first).unwrap_or(words.len())
}

/// Enters a line, and its words if each has a meaning of its own.
pub(super) fn enter(
    words: Vec<String>,
    own: usize,
    position: &Position,
    ledger: &mut Ledger,
) -> Result<Line, ImportError> {
    let (first, more) = words.split_at(own.min(words.len()));
    let origin = ledger.enter(position, first.join(" "))?;
    let mut parts = Vec::new();
    if !more.is_empty() {
        parts.resize(first.len(), origin);
        for word in more {
            parts.push(ledger.enter_word(position, word)?);
        }
    }
    Ok(Line {
        origin,
        words,
        parts,
    })
}

/// A section, which begins with the lines of its `defaults`.
#[derive(Clone, Debug)]
pub(super) struct HaproxySection {
    pub(super) origin: Origin,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) lines: Vec<Line>,
}

impl HaproxySection {
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.word(0) == name)
    }

    /// Returns the last line that begins with these words.
    pub(super) fn find(&self, name: &[&str]) -> Option<&Line> {
        let is_it = |line: &&Line| {
            name.iter()
                .enumerate()
                .all(|(n, word)| line.word(n) == *word)
        };
        self.lines.iter().rev().find(is_it)
    }

    /// Returns whether it gets no connections: the last line about it counts.
    pub(super) fn is_disabled(&self) -> bool {
        let mut lines = self.lines.iter().rev().map(|line| line.word(0));
        lines.find(|word| matches!(*word, "disabled" | "enabled")) == Some("disabled")
    }

    pub(super) fn is_http(&self) -> bool {
        self.find(&["mode"])
            .is_some_and(|line| line.word(1) == "http")
    }

    /// Returns everything that belongs to it.
    pub(super) fn origins(&self) -> Vec<Origin> {
        let lines = self.lines.iter().flat_map(Line::origins);
        [self.origin].into_iter().chain(lines).collect()
    }
}

const KINDS: [&str; 20] = [
    "acme",
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
    "http-errors",
    "ring",
    "log-forward",
    "log-profile",
    "fcgi-app",
    "crt-store",
    "traces",
    "healthcheck",
];

pub(super) fn parse(
    text: &str,
    position: &Position,
    ledger: &mut Ledger,
) -> Result<Vec<HaproxySection>, ImportError> {
    let mut parts: Vec<HaproxySection> = Vec::new();
    // Conditional blocks (`.if`) may begin above the first section.
    let mut above: Vec<Line> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let position = position.at(n + 1);
        let words = words(line, &position)?;
        let Some(first) = words.first() else { continue };
        if KINDS.contains(&first.as_str()) {
            let origin = ledger.enter(&position, words.join(" "))?;
            let mut part = section(origin, &words, &parts);
            ledger.inherit(&position, part.lines.len())?;
            part.lines.append(&mut above);
            parts.push(part);
            continue;
        }
        if parts.is_empty() && !first.starts_with('.') {
            let help = "the first line of haproxy.cfg begins a section, such as `global`";
            let what = "this line is in no section";
            return Err(ImportError::new(&position, n + 1, what, help));
        }
        let own = own_words(&words);
        let line = enter(words, own, &position, ledger)?;
        match parts.last_mut() {
            Some(part) => {
                ledger.is_head(part.origin);
                part.lines.push(line);
            }
            None => above.push(line),
        }
    }
    Ok(parts)
}

/// Returns a section with the lines of its `defaults`.
fn section(origin: Origin, words: &[String], parts: &[HaproxySection]) -> HaproxySection {
    let word = |n: usize| words.get(n).cloned().unwrap_or_default();
    let kind = word(0);
    let is_proxy = matches!(&*kind, "frontend" | "backend" | "listen");
    let inherits = kind == "defaults" && words.iter().any(|word| word == "from");
    let mut lines = match is_proxy || inherits {
        true => defaults_of(parts, words),
        false => Vec::new(),
    };
    lines.retain(|line| applies_to(line, &kind));
    HaproxySection {
        origin,
        name: word(1),
        lines,
        kind,
    }
}

/// Returns whether a line of `defaults` has a meaning in a section of this kind.
fn applies_to(line: &Line, kind: &str) -> bool {
    const FRONTENDS: [&str; 18] = [
        "backlog",
        "capture",
        "default_backend",
        "maxconn",
        "monitor-uri",
        "rate-limit",
        "unique-id-format",
        "unique-id-header",
        "tcp-request connection",
        "tcp-request session",
        "option httplog",
        "option tcplog",
        "option dontlognull",
        "option clitcpka",
        "clitimeout",
        "timeout client",
        "timeout client-fin",
        "timeout client-hs",
    ];
    const BACKENDS: [&str; 31] = [
        "balance",
        "cookie",
        "default-server",
        "dispatch",
        "fullconn",
        "hash-type",
        "hash-balance-factor",
        "http-check",
        "http-reuse",
        "http-send-name-header",
        "load-server-state-from-file",
        "persist",
        "retries",
        "retry-on",
        "source",
        "stick",
        "tcp-check",
        "use-server",
        "option redispatch",
        "option srvtcpka",
        "option allbackups",
        "option abortonclose",
        "option httpchk",
        "option prefer-last-server",
        "contimeout",
        "srvtimeout",
        "timeout check",
        "timeout connect",
        "timeout queue",
        "timeout server",
        "timeout server-fin",
    ];
    let both = format!("{} {}", line.word(0), line.word(1));
    let is_of = |all: &[&str]| {
        all.iter()
            .any(|name| *name == line.word(0) || *name == both)
    };
    match kind {
        "frontend" => !is_of(&BACKENDS),
        "backend" => !is_of(&FRONTENDS),
        _ => true,
    }
}

/// Returns the defaults of a new section: those above it, or those it names with `from`.
fn defaults_of(parts: &[HaproxySection], words: &[String]) -> Vec<Line> {
    let from = words
        .iter()
        .position(|word| word == "from")
        .and_then(|at| words.get(at + 1));
    let is_it = |part: &&HaproxySection| {
        part.kind == "defaults" && from.is_none_or(|name| part.name == *name)
    };
    let found = parts.iter().rev().find(is_it);
    let lines = found.into_iter().flat_map(|part| &part.lines);
    lines
        .filter(|line| !line.word(0).starts_with('.'))
        .cloned()
        .collect()
}

/// Splits a line. A variable of the environment, which counts only in double quotes, is written as `${NAME}`.
fn words(line: &str, position: &Position) -> Result<Vec<String>, ImportError> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
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
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some('"'), '$') if chars.peek() != Some(&'{') => {
                let part_of_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
                let name: String = std::iter::from_fn(|| chars.next_if(part_of_name)).collect();
                let text = if name.is_empty() {
                    "$".to_owned()
                } else {
                    format!("${{{name}}}")
                };
                word.get_or_insert_default().push_str(&text);
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(quote) = quote {
        let what = format!("the {quote} in this line is not closed");
        return Err(ImportError::new(
            position,
            position.line,
            what,
            "add the missing quote",
        ));
    }
    all.extend(word);
    Ok(all)
}
