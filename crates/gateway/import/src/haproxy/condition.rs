//! Conditions: `if is_chat or { req.ssl_sni -i a.example }`.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;

use super::syntax::{HaproxySection, Line};
use crate::error::Position;
use crate::origin::Origins;
use crate::source::read_named;

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

/// A condition, and the lines that it consists of: the rule, and the `acl` lines that it names.
pub(super) struct Tests {
    pub(super) ways: Option<Condition>,
    pub(super) from: Origins,
}

/// The `acl` lines of a section, by their names.
pub(super) struct Acls<'a> {
    by_name: HashMap<&'a str, Vec<&'a Line>>,
    files: &'a Files,
}

impl<'a> Acls<'a> {
    pub(super) fn of(part: &'a HaproxySection, files: &'a Files) -> Acls<'a> {
        let mut by_name: HashMap<&str, Vec<&Line>> = HashMap::new();
        for line in part.all("acl") {
            by_name.entry(line.word(1)).or_default().push(line);
        }
        Acls { by_name, files }
    }
}

/// Files of values, which several tests may name.
pub(super) struct Files {
    /// The folder that relative paths start from.
    pub(super) folder: PathBuf,
    /// How many more values tests may have, all together, and how many more bytes may be read for them.
    left: Cell<usize>,
    bytes_left: Cell<usize>,
}

impl Files {
    pub(super) fn new(folder: PathBuf) -> Files {
        Files {
            folder,
            left: Cell::new(VALUES_MAX),
            bytes_left: Cell::new(BYTES_MAX),
        }
    }

    /// Returns the text of a file; `None` if it cannot be read, or all of them are too long together.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let path = self.folder.join(name);
        let position = Position::included(&path.display().to_string());
        let left = Some(self.bytes_left.get()).filter(|left| *left > 0)?;
        let text = read_named(&path, &position).ok()?;
        self.bytes_left.set(left.saturating_sub(text.len()));
        Some(text)
    }

    /// Returns the values of a file, one a line.
    fn values(&self, name: &str) -> Option<Vec<String>> {
        let text = self.text(name)?;
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Some(lines.map(str::to_owned).collect())
    }

    /// Counts values of a test. Returns `false` if there are too many.
    fn take(&self, count: usize) -> bool {
        let left = self.left.get().checked_sub(count);
        self.left.set(left.unwrap_or_default());
        left.is_some()
    }
}

/// Maximum number of values that all tests have together: a list of the configuration holds 1000 items.
const VALUES_MAX: usize = 200_000;
const BYTES_MAX: usize = 16 << 20;

/// Returns the condition of a line, after `if` or `unless`, if it has any.
pub(super) fn condition(line: &Line, acls: &Acls<'_>) -> Tests {
    let from = Origins::from(line.origin);
    let words = &line.words;
    let start = words
        .iter()
        .position(|word| word == "if" || word == "unless");
    let Some(start) = start else {
        return Tests { ways: None, from };
    };
    let mut reader = Reader { acls, from };
    let all = reader.ways(words.get(start + 1..).unwrap_or_default());
    let from = reader.from;
    if words.get(start).is_some_and(|word| word == "if") {
        return Tests {
            ways: Some(all),
            from,
        };
    }
    // One test can be negated; the negation of several tests is not supported.
    let ways = match all.as_slice() {
        [way] if way.len() == 1 => vec![way.iter().map(|test| test.clone().opposite()).collect()],
        _ => vec![vec![Test::Other("unless".to_owned())]],
    };
    Tests {
        ways: Some(ways),
        from,
    }
}

/// Reads conditions.
struct Reader<'a> {
    acls: &'a Acls<'a>,
    from: Origins,
}

impl Reader<'_> {
    fn ways(&mut self, mut rest: &[String]) -> Condition {
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
                    test(inner, self.acls.files)
                }
                name => {
                    let bare = name.trim_start_matches('!');
                    is_negated ^= (name.len() - bare.len()) % 2 == 1;
                    self.named(bare)
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

    /// Returns the test that `acl` lines name. Several lines of one name are alternatives.
    fn named(&mut self, name: &str) -> Test {
        if name == "TRUE" {
            return Test::Tls;
        }
        let lines = self.acls.by_name.get(name).map_or(&[][..], Vec::as_slice);
        if !self.acls.files.take(lines.len()) {
            return Test::Other(format!("acl {name}"));
        }
        self.from
            .add(lines.iter().map(|line| line.origin).collect::<Origins>());
        let mut tests = lines
            .iter()
            .map(|line| test(line.behind(2), self.acls.files));
        let other = || Test::Other(format!("acl {name}"));
        let Some(first) = tests.next() else {
            return other();
        };
        tests.fold(first, |all, next| match (all, next) {
            (Test::Name(a), Test::Name(b)) => Test::Name(joined(a, b)),
            (Test::Protocol(a), Test::Protocol(b)) => Test::Protocol(joined(a, b)),
            (Test::Source(a), Test::Source(b)) => Test::Source(joined(a, b)),
            _ => other(),
        })
    }
}

fn joined(mut all: Vec<String>, more: Vec<String>) -> Vec<String> {
    all.extend(more);
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

/// Returns the names with this end: the end itself is one, unless it begins with a dot.
fn names_with(end: &str) -> impl Iterator<Item = String> {
    let (whole, rest) = match end.strip_prefix('.') {
        Some(rest) => (None, rest),
        None => (Some(end.to_owned()), end),
    };
    whole.into_iter().chain([format!("*.{rest}")])
}

/// Parses a test: `req.ssl_sni -i a.example b.example`, `ssl_fc_alpn h2`, `src 10.0.0.0/8 -f FILE`.
fn test(words: &[String], files: &Files) -> Test {
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
                let Some(more) = files.values(rest.next().map_or("", String::as_str)) else {
                    return other();
                };
                values.extend(more);
            }
            word if word.starts_with('-') => return other(),
            word => values.push(word.to_owned()),
        }
    }
    if !files.take(values.len()) {
        return other();
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
