//! Words and marks that mean "not finished", output from libraries, and paths of one machine.

use super::finding::Finding;
use crate::lex;
use crate::tree::Tree;
use crate::workspace::Package;

/// Calls that remain from unfinished work.
const UNFINISHED: [&str; 3] = ["todo!", "dbg!", "unimplemented!"];

/// A library returns its messages; `cli` prints them.
const PRINTING: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];
const LIBRARIES: [&str; 3] = ["crates/tls/", "crates/gateway/", "crates/instrument/"];

/// Notes about unfinished work. In two parts, so that this file contains none.
const NOTES: [&str; 3] = [
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X:"),
];

/// Directories of one person's files.
const PLACES: [&str; 2] = [concat!("/ro", "ot/"), concat!("/ho", "me/")];

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in tree.rust() {
        let mut find =
            |code: &str, call: &str, why: &str| {
                let calls = lex::words(code, call.trim_end_matches('!'))
                    .filter(|at| code[*at..].starts_with(call));
                findings.extend(calls.map(|at| {
                    Finding::new(path, lex::line_of(code, at), format!("`{call}`: {why}"))
                }));
            };
        for call in UNFINISHED {
            find(&file.code, call, "not finished");
        }
        if LIBRARIES.iter().any(|library| path.starts_with(library)) && path.contains("/src/") {
            let shipped = lex::without_tests(&file.code);
            for call in PRINTING {
                find(&shipped, call, "only `cli` may print");
            }
        }
    }
    for (path, file) in tree.iter() {
        for (number, line) in file.text.lines().enumerate() {
            for note in NOTES {
                if lex::words(line, note.trim_end_matches(':'))
                    .any(|at| line[at..].starts_with(note))
                {
                    findings.push(Finding::new(
                        path,
                        number + 1,
                        format!("`{note}`: finish it, or say why not"),
                    ));
                }
            }
            if let Some(mark) = placeholder(line).filter(|_| path.ends_with(".md")) {
                let text = format!("`{mark}` stands for a text that is missing");
                findings.push(Finding::new(path, number + 1, text));
            }
            for place in PLACES.iter().filter(|place| line.contains(*place)) {
                findings.push(Finding::new(
                    path,
                    number + 1,
                    format!("`{place}…` is a path on one machine only"),
                ));
            }
        }
    }
    findings
}

/// A mark such as `@RESULT@`, which a script replaces by what it measured.
fn placeholder(line: &str) -> Option<&str> {
    let mark = line.trim();
    let name = mark.strip_prefix('@')?.strip_suffix('@')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase());
    is_name.then_some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_found_where_it_counts() {
        let tree = Tree::of(&[
            ("crates/cli/src/main.rs", "fn a() { println!(); }"),
            (
                "crates/tls/record/src/a.rs",
                "fn a() { println!(\"todo!\"); }\n#[cfg(test)]\nmod tests { fn a() { println!(); } }",
            ),
            (
                "crates/tls/record/src/b.rs",
                "// println!\nfn a() { todo!() }\n",
            ),
            (
                "a.md",
                concat!(
                    "see FIX",
                    "ME\nand TO",
                    "DOS, /usr/ro",
                    "ot/, /ho",
                    "me/x\n@LATENCY@\nuser@example.org\n"
                ),
            ),
        ]);
        let mut found: Vec<String> = check(&tree, &[])
            .iter()
            .map(|f| format!("{}:{}", f.path, f.line))
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                "a.md:1",
                "a.md:2",
                "a.md:2",
                "a.md:3",
                "crates/tls/record/src/a.rs:1",
                "crates/tls/record/src/b.rs:2"
            ]
        );
    }
}
