//! Log messages: each is a constant, its fields are not Rust debug output, and docs/guide/logs.md lists it
//! with its levels and fields.
//!
//! The calls are `tracing::error!`, `warn!` and `info!` outside of tests. The page lists a message in a row of
//! a table with this header:
//!
//! ```text
//! | message | level | fields | meaning and remedy |
//! ```

use super::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Package;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

const PAGE: &str = "docs/guide/logs.md";
const HEADER: &str = "| message | level | fields | ";
const LEVELS: [&str; 3] = ["error", "warn", "info"];

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut logged: BTreeMap<String, Entry> = BTreeMap::new();
    let sources = tree
        .rust()
        .filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"));
    for (path, file) in sources.filter(|(_, file)| file.code.contains("tracing::")) {
        let Ok(syntax) = syn::parse_file(&file.text) else {
            continue;
        };
        let mut events = Events::default();
        events.visit_file(&syntax);
        for event in events.list {
            let line = event.line;
            match event.message {
                Ok(message) => {
                    let entry = logged
                        .entry(message)
                        .or_insert_with(|| Entry::new(path, line));
                    entry.levels.insert(event.level);
                    entry.fields.extend(event.fields);
                }
                Err(why) => findings.push(Finding::new(path, line, why)),
            }
        }
    }
    let Some(page) = tree.get(PAGE) else {
        findings.push(Finding::new(PAGE, 1, "the page of log messages is missing"));
        return findings;
    };
    findings.extend(compare(&mut logged, &page.text));
    let missing = logged.into_iter().map(|(message, entry)| {
        let what = format!("`{message}` is not listed in {PAGE}");
        Finding::new(&entry.path, entry.line, what)
    });
    findings.extend(missing);
    findings
}

/// Compares the rows of the page with the code, and removes the listed messages from `logged`.
fn compare(logged: &mut BTreeMap<String, Entry>, page: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, message, entry) in rows(page) {
        let mut find = |what: String| findings.push(Finding::new(PAGE, line, what));
        match logged.remove(&message) {
            None => find(format!(
                "no code logs `{message}`, or the page lists it twice"
            )),
            Some(code) => {
                if code.levels != entry.levels {
                    find(format!(
                        "`{message}` has the level {}",
                        listed(&code.levels)
                    ));
                }
                if code.fields != entry.fields {
                    find(format!(
                        "`{message}` has the fields {}",
                        listed(&code.fields)
                    ));
                }
            }
        }
    }
    findings
}

fn listed(words: &BTreeSet<String>) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.join(", ")
}

/// A message, with the levels and fields of all its calls.
struct Entry {
    path: String,
    line: usize,
    levels: BTreeSet<String>,
    fields: BTreeSet<String>,
}

impl Entry {
    fn new(path: &str, line: usize) -> Entry {
        Entry {
            path: path.to_string(),
            line,
            levels: BTreeSet::new(),
            fields: BTreeSet::new(),
        }
    }
}

/// The messages that the page lists, each with its line.
fn rows(page: &str) -> Vec<(usize, String, Entry)> {
    let mut rows = Vec::new();
    let mut is_table = false;
    for (number, line) in page.lines().enumerate() {
        is_table = line.starts_with(HEADER) || (is_table && line.starts_with('|'));
        let mut cells = line.split('|').skip(1);
        let (Some(message), Some(levels), Some(fields)) =
            (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        let message = message.trim();
        if !is_table || !message.starts_with('`') {
            continue;
        }
        let words = |cell: &str| -> BTreeSet<String> {
            let words = cell.split(',').map(|word| word.trim().trim_matches('`'));
            let words = words.filter(|word| !word.is_empty());
            words.map(str::to_lowercase).collect()
        };
        let mut entry = Entry::new(PAGE, number + 1);
        (entry.levels, entry.fields) = (words(levels), words(fields));
        rows.push((number + 1, message.trim_matches('`').to_string(), entry));
    }
    rows
}

/// A call of a log macro.
struct Event {
    line: usize,
    level: String,
    /// The error is what is wrong with the call.
    message: Result<String, &'static str>,
    fields: BTreeSet<String>,
}

/// The calls of a file, outside of tests.
#[derive(Default)]
struct Events {
    list: Vec<Event>,
}

impl<'ast> Visit<'ast> for Events {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = module.attrs.iter().any(|attribute| {
            let condition = attribute.parse_args::<syn::Path>();
            attribute.path().is_ident("cfg") && condition.is_ok_and(|path| path.is_ident("test"))
        });
        if !is_test {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let segments = call.path.segments.iter();
        let path: Vec<String> = segments.map(|segment| segment.ident.to_string()).collect();
        if let [library, level] = path.as_slice()
            && library == "tracing"
        {
            let line = call.path.segments[0].ident.span().start().line;
            self.note(level, line, &call.tokens);
        }
        self.scan(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

impl Events {
    fn note(&mut self, level: &str, line: usize, arguments: &TokenStream) {
        if LEVELS.contains(&level) {
            let (message, fields) = read(arguments);
            self.list.push(Event {
                line,
                level: level.to_string(),
                message,
                fields,
            });
        }
    }

    /// Finds calls in the tokens of another macro, which syn does not parse. In a definition the level may be a
    /// parameter (`tracing::$level!`); it counts as `info`.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for at in 0..tokens.len() {
            if let TokenTree::Group(group) = &tokens[at] {
                self.scan(group.stream());
            }
            let TokenTree::Ident(library) = &tokens[at] else {
                continue;
            };
            let (sign, rest) = match tokens[at + 1..] {
                [ref a, ref b, ref rest @ ..] if is_punct(a, ':') && is_punct(b, ':') => match rest
                {
                    [dollar, rest @ ..] if is_punct(dollar, '$') => (Some(()), rest),
                    rest => (None, rest),
                },
                _ => continue,
            };
            if let [
                TokenTree::Ident(level),
                mark,
                TokenTree::Group(arguments),
                ..,
            ] = rest
                && library == "tracing"
                && is_punct(mark, '!')
            {
                let level = sign.map_or_else(|| level.to_string(), |()| "info".to_string());
                self.note(&level, library.span().start().line, &arguments.stream());
            }
        }
    }
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// The message and the field names of a call.
fn read(tokens: &TokenStream) -> (Result<String, &'static str>, BTreeSet<String>) {
    let mut fields = BTreeSet::new();
    let mut message = None;
    for argument in arguments(tokens) {
        if message.is_some() {
            return (
                Err("a log message is a constant: put data into fields"),
                fields,
            );
        }
        if let Some(text) = literal(&argument) {
            message = Some(text);
            continue;
        }
        let (name, is_debug) = field(&argument);
        if is_debug {
            return (
                Err("a log field is not Rust debug output: give it words"),
                fields,
            );
        }
        fields.insert(name);
    }
    let message = match message {
        None => Err("a log line needs a message: a constant text"),
        Some(text) if text.contains(['{', '}']) => {
            Err("a log message is a constant: put data into fields")
        }
        Some(text) => Ok(text),
    };
    (message, fields)
}

fn arguments(tokens: &TokenStream) -> Vec<Vec<TokenTree>> {
    let mut all = vec![Vec::new()];
    for token in tokens.clone() {
        match (&token, all.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => all.push(Vec::new()),
            (_, Some(last)) => last.push(token),
            (_, None) => {}
        }
    }
    all.retain(|argument| !argument.is_empty());
    all
}

/// The text of an argument that is one string.
fn literal(argument: &[TokenTree]) -> Option<String> {
    let [TokenTree::Literal(literal)] = argument else {
        return None;
    };
    let text: syn::LitStr = syn::parse_str(&literal.to_string()).ok()?;
    Some(text.value())
}

/// The name of a field, and whether it is shown by `Debug`: `name`, `%name`, `a.b = value`, `name = ?value`.
fn field(argument: &[TokenTree]) -> (String, bool) {
    let is = |token: &TokenTree, sign: char| matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign);
    let end = argument.iter().position(|token| is(token, '='));
    let (name, value) = argument.split_at(end.unwrap_or(argument.len()));
    let is_debug = name.first().is_some_and(|token| is_punct(token, '?'))
        || value.get(1).is_some_and(|token| is_punct(token, '?'));
    let name = name
        .iter()
        .filter(|token| !is_punct(token, '%') && !is_punct(token, '?'));
    let name: String = name.map(ToString::to_string).collect();
    (name.trim_start_matches("r#").to_string(), is_debug)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "| message | level | fields | meaning and remedy |\n|---|---|---|---|\n";

    fn found(code: &str, rows: &str) -> Vec<String> {
        let page = format!("# Log messages\n\n{ROW}{rows}\n| `other` | table |\n");
        let tree = Tree::of(&[("crates/x/src/a.rs", code), (PAGE, &page)]);
        let findings = check(&tree, &[]).into_iter();
        findings
            .map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.message))
            .collect()
    }

    #[test]
    fn a_listed_message_is_tidy() {
        let code = "fn a() {\n tracing::warn!(route = x.name(), %error, r#type = 1, \"it \\\n   failed\");\n\
                    tracing::error!(\"it failed\");\n tracing::debug!(\"{error:?}\");\n}\n\
                    #[cfg(test)]\nmod tests { fn a() { tracing::info!(\"{x}\"); } }";
        let row = "| `it failed` | WARN, ERROR | `error`, `route`, `type` | Mend it. |\n";
        assert!(found(code, row).is_empty(), "{:?}", found(code, row));
    }

    #[test]
    fn calls_inside_of_macros_count() {
        let code = "fn a() { macro_rules! line { ($level:ident) => { tracing::$level!(route, \"done\") } }\n\
                    other!(x, tracing::error!(\"gone\")); }";
        let rows = "| `done` | INFO | `route` | |\n| `gone` | ERROR | | |\n";
        assert!(found(code, rows).is_empty(), "{:?}", found(code, rows));
    }

    #[test]
    fn each_difference_is_found() {
        let code = "fn a() { tracing::warn!(route, \"it failed\"); }";
        let one = |row: &str| {
            let found = found(code, row);
            assert_eq!(found.len(), 1, "{found:?}");
            found.concat()
        };
        assert!(one("").contains("is not listed"));
        assert!(one("| `it failed` | INFO | `route` | |\n").contains("has the level warn"));
        assert!(one("| `it failed` | WARN | | |\n").contains("has the fields route"));
        let twice = "| `it failed` | WARN | `route` | |\n| `gone` | WARN | | |\n";
        assert!(one(twice).starts_with("docs/guide/logs.md:6: no code logs `gone`"));
    }

    #[test]
    fn messages_with_data_and_debug_output_are_found() {
        for arguments in [
            "\"{why}\"",
            "\"failed: {}\", why",
            "%error",
            "why = ?error, \"failed\"",
            "?error, \"failed\"",
            "\"failed\", error",
        ] {
            let code = format!("fn a() {{ tracing::info!({arguments}); }}");
            let found = found(&code, "");
            assert_eq!(found.len(), 1, "{arguments}: {found:?}");
            assert!(
                found[0].starts_with("crates/x/src/a.rs:1: a log "),
                "{found:?}"
            );
        }
    }
}
