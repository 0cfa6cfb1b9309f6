//! Sections of lines of words, and conditions: `if is_chat or { req.ssl_sni -i a.example }`.

use std::path::Path;

use crate::error::{ImportError, Position};
use crate::source::read;

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) position: Position,
    pub(super) words: Vec<String>,
}

impl Line {
    pub(super) fn word(&self, n: usize) -> &str {
        self.words.get(n).map_or("", String::as_str)
    }

    pub(super) fn shown(&self) -> String {
        self.words.join(" ")
    }

    /// Returns the words after the first `n`.
    pub(super) fn behind(&self, n: usize) -> &[String] {
        self.words.get(n..).unwrap_or_default()
    }

    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|there| there == word)
    }
}

/// A section, which begins with the lines of its `defaults`.
#[derive(Clone, Debug)]
pub(super) struct HaproxySection {
    pub(super) position: Position,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) lines: Vec<Line>,
}

impl HaproxySection {
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Line> {
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
}

pub(super) fn parse(text: &str, position: &Position) -> Result<Vec<HaproxySection>, ImportError> {
    const KINDS: [&str; 17] = [
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
        "fcgi-app",
        "crt-store",
        "traces",
    ];
    // Conditional blocks (`.if`) may begin above the first section.
    let mut parts = vec![HaproxySection {
        position: position.clone(),
        kind: String::new(),
        name: String::new(),
        lines: Vec::new(),
    }];
    for (n, line) in text.lines().enumerate() {
        let position = position.at(n + 1);
        let words = words(line, &position)?;
        let Some(first) = words.first() else { continue };
        if KINDS.contains(&first.as_str()) {
            let mut part = HaproxySection {
                kind: first.clone(),
                name: words.get(1).cloned().unwrap_or_default(),
                lines: Vec::new(),
                position,
            };
            let is_proxy = matches!(first.as_str(), "frontend" | "backend" | "listen");
            let inherits = first == "defaults" && words.iter().any(|word| word == "from");
            if is_proxy || inherits {
                part.lines = defaults_of(&parts, &words);
            }
            parts.push(part);
            continue;
        }
        match parts.last_mut() {
            Some(part) if !part.kind.is_empty() || first.starts_with('.') => {
                part.lines.push(Line { position, words });
            }
            _ => {
                return Err(ImportError::new(
                    &position,
                    n + 1,
                    "this line is in no section",
                    "the first line of haproxy.cfg begins a section, such as `global`",
                ));
            }
        }
    }
    Ok(parts)
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
    parts
        .iter()
        .rev()
        .find(is_it)
        .map_or(Vec::new(), |part| part.lines.clone())
}

fn words(line: &str, position: &Position) -> Result<Vec<String>, ImportError> {
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
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
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

/// A test of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// The server name is one of these.
    Name(Vec<String>),
    /// The protocol is one of these.
    Protocol(Vec<String>),
    /// The client's address is in one of these networks.
    Source(Vec<String>),
    /// The connection uses TLS, which is always true in Dormouse.
    Tls,
    /// The connection does not use TLS.
    Not(Box<Test>),
    /// A test that Dormouse does not have.
    Other(String),
}

/// A condition: alternatives, each a list of tests that must all match.
pub(super) type Condition = Vec<Vec<Test>>;

/// Returns the condition after `if` or `unless`. `None`: there is none.
pub(super) fn condition(
    words: &[String],
    part: &HaproxySection,
    folder: &Path,
) -> Option<Condition> {
    let start = words
        .iter()
        .position(|word| word == "if" || word == "unless")?;
    let all = ways(words.get(start + 1..).unwrap_or_default(), part, folder);
    if words.get(start).is_some_and(|word| word == "if") {
        return Some(all);
    }
    // One test can be negated; the negation of several tests is not supported.
    Some(match all.as_slice() {
        [way] if way.len() == 1 => vec![way.iter().map(|test| test.clone().opposite()).collect()],
        _ => vec![vec![Test::Other("unless".to_owned())]],
    })
}

fn ways(mut rest: &[String], part: &HaproxySection, folder: &Path) -> Condition {
    let mut all = vec![Vec::new()];
    let mut is_negated = false;
    while let Some((word, behind)) = rest.split_first() {
        rest = behind;
        let test = match word.as_str() {
            "or" | "||" => {
                all.push(Vec::new());
                continue;
            }
            "!" => {
                is_negated = !is_negated;
                continue;
            }
            "{" | "!{" => {
                is_negated ^= word.starts_with('!');
                let end = rest
                    .iter()
                    .position(|word| word == "}")
                    .unwrap_or(rest.len());
                let (inner, behind) = rest.split_at(end);
                rest = behind.get(1..).unwrap_or_default();
                test(inner, folder)
            }
            name => {
                let bare = name.trim_start_matches('!');
                is_negated ^= (name.len() - bare.len()) % 2 == 1;
                named(bare, part, folder)
            }
        };
        let test = match std::mem::take(&mut is_negated) {
            true => test.opposite(),
            false => test,
        };
        if let Some(last) = all.last_mut() {
            last.push(test);
        }
    }
    all
}

impl Test {
    fn opposite(self) -> Test {
        match self {
            Test::Not(test) => *test,
            test => Test::Not(Box::new(test)),
        }
    }

    fn is_about_source(&self) -> bool {
        match self {
            Test::Source(_) => true,
            Test::Not(test) => test.is_about_source(),
            _ => false,
        }
    }

    /// Returns whether it compares a counter whose name has one of these ends, such as `sc0_conn_rate`. A name in a
    /// certificate may have these letters, too.
    fn is_about_counter(&self, ends: &[&str]) -> bool {
        match self {
            Test::Other(text) => {
                let fetch = text.split(' ').next().unwrap_or_default();
                let mut names = fetch.split(',').filter_map(|part| part.split('(').next());
                let is_it = |name: &str| ends.iter().any(|end| name.ends_with(end));
                names.any(is_it)
            }
            Test::Not(test) => test.is_about_counter(ends),
            _ => false,
        }
    }
}

/// Returns whether the condition tests the client's address.
pub(super) fn tests_source(condition: &Condition) -> bool {
    condition.iter().flatten().any(Test::is_about_source)
}

/// Returns whether the condition matches only clients for which a counter with one of these ends has some value.
pub(super) fn tests_counter(condition: &Condition, ends: &[&str]) -> bool {
    let mut ways = condition.iter();
    ways.all(|way| way.iter().any(|test| test.is_about_counter(ends)))
}

/// Returns whether the condition is true, or false, for all clients with TLS. `None`: that depends on the client.
pub(super) fn is_met(condition: Option<&Condition>) -> Option<bool> {
    let Some(ways) = condition else {
        return Some(true);
    };
    let is_false = |test: &Test| matches!(test, Test::Not(test) if **test == Test::Tls);
    if ways
        .iter()
        .any(|way| way.iter().all(|test| *test == Test::Tls))
    {
        Some(true)
    } else if ways.iter().all(|way| way.iter().any(is_false)) {
        Some(false)
    } else {
        None
    }
}

/// Returns the test that `acl` lines name. Several lines of one name are alternatives.
fn named(name: &str, part: &HaproxySection, folder: &Path) -> Test {
    if name == "TRUE" {
        return Test::Tls;
    }
    let lines = part.all("acl").filter(|line| line.word(1) == name);
    let mut tests = lines.map(|line| test(line.behind(2), folder));
    let other = || Test::Other(format!("acl {name}"));
    let Some(first) = tests.next() else {
        return other();
    };
    tests.fold(first, |all, next| match (all, next) {
        (Test::Name(a), Test::Name(b)) => Test::Name([a, b].concat()),
        (Test::Protocol(a), Test::Protocol(b)) => Test::Protocol([a, b].concat()),
        (Test::Source(a), Test::Source(b)) => Test::Source([a, b].concat()),
        _ => other(),
    })
}

/// Returns the names with this end: the end itself is one, unless it begins with a dot.
fn names_with(end: &str) -> impl Iterator<Item = String> {
    let (whole, rest) = match end.strip_prefix('.') {
        Some(rest) => (None, rest),
        None => (Some(end.to_owned()), end),
    };
    whole.into_iter().chain([format!("*.{rest}")])
}

/// Parses a test: `req.ssl_sni -i a.example b.example`, `ssl_fc_alpn h2`, `src 10.0.0.0/8 -f FILE`.
fn test(words: &[String], folder: &Path) -> Test {
    let other = || Test::Other(words.join(" "));
    let Some((fetch, rest)) = words.split_first() else {
        return other();
    };
    // Names and protocols are compared in lower case anyway. Any other converter makes another value of it.
    let base = fetch.strip_suffix(",lower").unwrap_or(fetch);
    let (base, mut by_end) = match base.strip_suffix("_end").or(base.strip_suffix("_dom")) {
        Some(base) => (base, true),
        None => (base, false),
    };
    let mut values: Vec<String> = Vec::new();
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" | "--" | "-n" => {}
            "-m" => match rest.next().map(String::as_str) {
                Some("str" | "ip") => {}
                Some("end" | "dom") => by_end = true,
                _ => return other(),
            },
            "-f" => {
                let path = folder.join(rest.next().map_or("", String::as_str));
                let position = Position::included(&path.display().to_string());
                let Ok(text) = read(&path, &position) else {
                    return other();
                };
                let lines = text
                    .lines()
                    .map(str::trim)
                    .filter(|line| !line.is_empty() && !line.starts_with('#'));
                values.extend(lines.map(str::to_owned));
            }
            word if word.starts_with('-') => return other(),
            word => values.push(word.to_owned()),
        }
    }
    match base {
        "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni" if by_end => {
            Test::Name(values.iter().flat_map(|end| names_with(end)).collect())
        }
        "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni" if !values.is_empty() => Test::Name(values),
        "req.ssl_alpn" | "ssl_fc_alpn" if !values.is_empty() && !by_end => Test::Protocol(values),
        "src" if !values.is_empty() && !by_end => Test::Source(values),
        "req_ssl_hello_type" | "req.ssl_hello_type" if values == ["1"] => Test::Tls,
        // Any version. Others can be told only from the ClientHello of TLS that passes through.
        "req_ssl_ver" | "req.ssl_ver" if values == ["gt", "0"] => Test::Tls,
        "ssl_fc" | "always_true" if values.is_empty() => Test::Tls,
        _ => other(),
    }
}
