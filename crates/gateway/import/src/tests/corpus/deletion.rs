//! The deletion test: without any one of its settings, the result of a file differs. A setting whose deletion changes
//! nothing has been ignored without a word.

use std::collections::BTreeMap;
use std::ops::Range;

use super::*;

/// A setting of a file, or a word with a meaning of its own.
struct Unit {
    at: Range<usize>,
    /// Its first word, or the word itself.
    name: String,
}

/// Returns the settings of a file, by a reader that shares no code with the importers.
fn units(file: &CorpusFile) -> Vec<Unit> {
    match file.program {
        Program::Nginx => of_nginx(&file.text),
        Program::Haproxy => of_lines(&file.text, of_haproxy),
        Program::Hitch | Program::Stunnel => of_lines(&file.text, |line, at| {
            let is_setting = !line.starts_with([';', '#', '[', '}']) && !line.ends_with('{');
            let name = line.split(['=', ' ']).next().unwrap_or_default().to_owned();
            Vec::from_iter(is_setting.then(|| Unit {
                at: at..at + line.len(),
                name,
            }))
        }),
    }
}

fn of_lines(text: &str, of_line: impl Fn(&str, usize) -> Vec<Unit>) -> Vec<Unit> {
    let mut all = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if !trimmed.is_empty() {
            let indent = line.len() - line.trim_start().len();
            all.extend(of_line(trimmed, at + indent));
        }
        at += line.len();
    }
    all
}

fn of_haproxy(line: &str, at: usize) -> Vec<Unit> {
    const SECTIONS: [&str; 14] = [
        "global",
        "defaults",
        "frontend",
        "backend",
        "listen",
        "userlist",
        "resolvers",
        "peers",
        "program",
        "log-forward",
        "crt-store",
        "acme",
        "ring",
        "cache",
    ];
    let line = line.split(" #").next().unwrap_or_default().trim_end();
    let first = line.split_whitespace().next().unwrap_or_default();
    if first.starts_with('#') || SECTIONS.contains(&first) {
        return Vec::new();
    }
    let whole = Unit {
        at: at..at + line.len(),
        name: first.to_owned(),
    };
    let own = match first {
        "bind" => 2,
        "server" => 3,
        "server-template" => 4,
        "default-server"
        | "ssl-default-bind-options"
        | "ssl-default-server-options"
        | "ssl-f-use"
        | "load" => 1,
        _ => return vec![whole],
    };
    let words = line.split_whitespace().map(|word| {
        let start = word.as_ptr() as usize - line.as_ptr() as usize;
        Unit {
            at: at + start..at + start + word.len(),
            name: word.to_owned(),
        }
    });
    [whole].into_iter().chain(words.skip(own)).collect()
}

/// Directives and blocks, and the words of those whose words have a meaning of their own.
fn of_nginx(text: &str) -> Vec<Unit> {
    let bytes = text.as_bytes();
    let mut all = Vec::new();
    let mut words: Vec<Range<usize>> = Vec::new();
    // Open blocks: where each begins, and its name.
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let name = |words: &[Range<usize>]| text[words[0].clone()].to_owned();
        match bytes[at] {
            b' ' | b'\t' | b'\n' => at += 1,
            b'#' => at += text[at..].find('\n').unwrap_or(text.len() - at),
            b'{' if is_code(text, &words) => {
                let end = end_of_code(text, at);
                all.push(Unit {
                    at: words[0].start..end,
                    name: name(&words),
                });
                words.clear();
                at = end;
            }
            b'{' => {
                open.push((words[0].start, name(&words)));
                words.clear();
                at += 1;
            }
            b'}' => {
                let (start, name) = open.pop().expect("an open block");
                at += 1;
                all.push(Unit {
                    at: start..at,
                    name,
                });
            }
            b';' => {
                all.push(Unit {
                    at: words[0].start..at + 1,
                    name: name(&words),
                });
                if matches!(
                    name(&words).as_str(),
                    "listen" | "server" | "server_name" | "health_check"
                ) {
                    let parts = words.iter().skip(2).cloned();
                    all.extend(parts.map(|at| Unit {
                        name: text[at.clone()].to_owned(),
                        at,
                    }));
                }
                words.clear();
                at += 1;
            }
            quote @ (b'"' | b'\'') => {
                let end = at + 1 + text[at + 1..].find(char::from(quote)).expect("its end");
                words.push(at..end + 1);
                at = end + 1;
            }
            _ => {
                let start = at;
                let mut braces = 0;
                while at < bytes.len() && (braces > 0 || !b" \t\n;{}".contains(&bytes[at]))
                    || text[start..at].ends_with('$')
                {
                    braces += i32::from(bytes[at] == b'{') - i32::from(bytes[at] == b'}');
                    at += 1;
                }
                words.push(start..at);
            }
        }
    }
    all
}

fn is_code(text: &str, words: &[Range<usize>]) -> bool {
    words
        .iter()
        .any(|word| text[word.clone()].ends_with("_by_lua_block"))
}

/// Returns the end of Lua code: the corpus has it at the end of the line where it begins, or in a line of its own.
fn end_of_code(text: &str, start: usize) -> usize {
    let line = text[start..].lines().next().unwrap_or_default().trim_end();
    if line.ends_with('}') {
        return start + line.len();
    }
    let end = text[start..].find("\n    }").expect("its end");
    let brace = text[start + end..].find('}').expect("a brace");
    start + end + brace + 1
}

fn without(text: &str, at: &Range<usize>) -> String {
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
    let middle: String = text[at.clone()].chars().map(blank).collect();
    [&text[..at.start], &middle, &text[at.end..]].concat()
}

/// Returns the settings of a file whose deletion this conversion does not notice.
fn ignored(file: &CorpusFile, convert: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let whole = convert(&file.text).expect("a valid configuration");
    let mut all = Vec::new();
    for unit in units(file) {
        let line = file.text[..unit.at.start].matches('\n').count() + 1;
        let said = || format!("{}:{line}: {}", file.name, &file.text[unit.at.clone()]);
        // A file that is no longer valid differs, too.
        let Some(other) = convert(&without(&file.text, &unit.at)) else {
            continue;
        };
        if whole == other {
            all.push(said());
            continue;
        }
        // Only the comment behind an option differs: it has the same value without this line.
        if without_places(&whole) == without_places(&other) {
            let differs = whole
                .lines()
                .zip(other.lines())
                .find(|(one, other)| one != other);
            let option = differs.and_then(|(one, _)| one.split(' ').next());
            let option = option.unwrap_or_default();
            if !SAME_VALUE.contains(&(&unit.name, option)) {
                all.push(format!(
                    "{} (`{option}` has the same value without it)",
                    said()
                ));
            }
        }
    }
    all
}

/// Settings without which the option that they belong to has the same value in a file of the corpus: another line says
/// the same, or it is the default, which the result has in any case.
const SAME_VALUE: [(&str, &str); 12] = [
    ("CApath", "ca"),
    ("backend", "to"),
    ("cert", "certificates"),
    ("host", "listen"),
    ("requireCert", "ca"),
    ("requireCert", "client_certificates"),
    ("ssl", "backend_tls"),
    ("ssl", "listen"),
    ("ssl_certificate_key", "certificates"),
    ("timeout", "idle_timeout"),
    ("verify", "insecure"),
    ("write-proxy-v2", "proxy_protocol"),
];

#[test]
fn every_setting_of_the_corpus_leaves_a_trace() {
    let mut all = Vec::new();
    let mut count = 0;
    for file in corpus() {
        count += units(&file).len();
        all.extend(ignored(&file, |text| file.unchecked(text)));
    }
    assert!(count > 1500, "{count}");
    assert_eq!(
        all,
        Vec::<String>::new(),
        "{} of {count} settings were ignored",
        all.len()
    );
}

/// Makes the converter ignore each setting in turn, as if it read a file without it: the test above finds that.
#[test]
fn the_deletion_test_finds_a_converter_that_ignores_a_setting() {
    let mut seen: BTreeMap<(&str, String), bool> = BTreeMap::new();
    for file in corpus() {
        for unit in units(&file) {
            let key = (file.program.name(), unit.name.clone());
            if seen.contains_key(&key) {
                continue;
            }
            let all = units(&file);
            let same = all.iter().filter(|other| other.name == unit.name);
            let blind = |text: &str| {
                same.clone()
                    .fold(text.to_owned(), |text, one| without(&text, &one.at))
            };
            let ignores = |text: &str| file.unchecked(&blind(text));
            // Without all settings of that name, this file may be none at all.
            if ignores(&file.text).is_some() {
                seen.insert(key, !ignored_among(&file, &unit, ignores));
            }
        }
    }
    let missed: Vec<_> = seen.iter().filter(|(_, missed)| **missed).collect();
    assert!(seen.len() > 300, "{}", seen.len());
    assert!(missed.is_empty(), "{missed:?}");
}

/// Returns whether the deletion of this setting goes unnoticed.
fn ignored_among(file: &CorpusFile, unit: &Unit, convert: impl Fn(&str) -> Option<String>) -> bool {
    convert(&file.text) == convert(&without(&file.text, &unit.at))
}
