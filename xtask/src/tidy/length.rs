//! A function fits a screen; a file has one subject; a page that promises a length keeps it.

use super::finding::Finding;
use crate::lex;
use crate::tree::Tree;
use crate::workspace::Package;

const FUNCTION_LINES_MAX: usize = 80;
/// A function that is one `match` is a table, which is read entry by entry.
const TABLE_LINES_MAX: usize = 140;
const FILE_LINES_MAX: usize = 700;

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in tree.rust() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            let message = format!(
                "{lines} lines, but at most {FILE_LINES_MAX} are allowed: what is its second subject?"
            );
            findings.push(Finding::new(path, 1, message));
        }
        for function in functions(&file.code) {
            let most = if function.is_table {
                TABLE_LINES_MAX
            } else {
                FUNCTION_LINES_MAX
            };
            if function.lines > most {
                let message = format!(
                    "`{}` has {} lines, but at most {FUNCTION_LINES_MAX} are allowed",
                    function.name, function.lines
                );
                findings.push(Finding::new(path, function.line, message));
            }
        }
    }
    findings.extend(
        tree.markdown()
            .filter_map(|(path, file)| long_page(path, &file.text)),
    );
    findings
}

/// A page states its limit itself: "at most 2,800 words".
fn long_page(path: &str, text: &str) -> Option<Finding> {
    let (before, _) = text.split_once(" words, which `cargo xtask tidy` checks")?;
    let promised = before.rsplit("at most ").next()?.replace(',', "");
    let words_max: usize = promised.parse().ok()?;
    let words = text.split_whitespace().count();
    (words > words_max).then(|| {
        let message = format!("{words} words, but the page promises at most {words_max}");
        Finding::new(path, 1, message)
    })
}

struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
    is_table: bool,
}

fn is_one_match(body: &str) -> bool {
    let body = body.trim();
    let open = lex::body_start(body, 0);
    body.starts_with("match ")
        && open.is_some_and(|open| lex::matching_brace(body, open) == body.len())
}

/// Returns functions with a body, nested ones too.
fn functions(code: &str) -> impl Iterator<Item = Function<'_>> {
    lex::words(code, "fn").filter_map(|at| {
        let after = code[at + 2..].trim_start();
        let length = after.bytes().take_while(|byte| lex::is_word(*byte)).count();
        if length == 0 {
            return None; // a function pointer's type
        }
        let end = lex::item_end(code, at);
        let lines = 1 + code[at..end].bytes().filter(|byte| *byte == b'\n').count();
        let body = lex::body_start(code, at).and_then(|open| code.get(open + 1..end - 1));
        Some(Function {
            name: &after[..length],
            line: lex::line_of(code, at),
            lines,
            is_table: body.is_some_and(is_one_match),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(lines: usize) -> String {
        format!(
            "\nfn long(a: [u8; 4], f: fn(u8)) where T: X {{\n{}}}\nfn short() {{}}\n",
            "    a();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn finds_a_function_longer_than_a_screen() {
        let fits = Tree::of(&[("a.rs", &body(FUNCTION_LINES_MAX))]);
        assert!(check(&fits, &[]).is_empty());
        let long = Tree::of(&[("a.rs", &body(FUNCTION_LINES_MAX + 1))]);
        let found = check(&long, &[]);
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert!(found[0].message.contains("`long` has 81 lines"));
    }

    #[test]
    fn a_table_may_be_longer() {
        let table = |entries: usize, after: &str| {
            let entries = "        A::B => c,\n".repeat(entries);
            Tree::of(&[(
                "a.rs",
                &format!("fn f() {{\n    match a {{\n{entries}    }}\n{after}}}\n"),
            )])
        };
        assert!(check(&table(TABLE_LINES_MAX - 4, ""), &[]).is_empty());
        assert_eq!(check(&table(TABLE_LINES_MAX - 3, ""), &[]).len(), 1);
        assert_eq!(
            check(&table(FUNCTION_LINES_MAX, "    d();\n"), &[]).len(),
            1
        );
    }

    #[test]
    fn finds_a_file_with_too_many_lines() {
        assert!(check(&Tree::of(&[("a.rs", &"\n".repeat(FILE_LINES_MAX))]), &[]).is_empty());
        assert_eq!(
            check(
                &Tree::of(&[("a.rs", &"\n".repeat(FILE_LINES_MAX + 1))]),
                &[]
            )
            .len(),
            1
        );
    }

    #[test]
    fn a_page_keeps_the_length_that_it_promises() {
        let page = |words: usize| {
            let promise =
                "At most 1,000 words: at most 1,000 words, which `cargo xtask tidy` checks.\n";
            let missing = words - promise.split_whitespace().count();
            Tree::of(&[("a.md", &format!("{promise}{}", "word ".repeat(missing)))])
        };
        assert!(check(&page(1_000), &[]).is_empty());
        let found = check(&page(1_001), &[]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].message.contains("1001 words"),
            "{}",
            found[0].message
        );
    }
}
