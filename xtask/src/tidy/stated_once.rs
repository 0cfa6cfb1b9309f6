//! A fact of the tables stands in its row only: a figure's title in `audit`, and in `config` what the attributes of an
//! option say (its default, its range, when it applies), from which the reference is made.

use super::finding::Finding;
use crate::lex;
use crate::tree::Tree;
use crate::workspace::Package;

const FIGURES: &str = "crates/instrument/audit/src/model/";
const SHOWN: &str = "crates/instrument/audit/src/";
const OPTIONS: &str = "crates/gateway/config/src/options/";

/// What a doc comment says in place of an attribute.
const OF_ATTRIBUTES: [&str; 6] = [
    "by default",
    "default:",
    "default is",
    "at the next start",
    "needs a restart",
    "must be between",
];

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in tree.rust().filter(|(path, _)| path.starts_with(OPTIONS)) {
        findings.extend(restated_attributes(path, &file.text));
    }
    let rows = tree.rust().filter(|(path, _)| path.starts_with(FIGURES));
    for title in rows.flat_map(|(_, file)| titles(&file.text)) {
        findings.extend(further_places(tree, title));
    }
    findings
}

fn restated_attributes(path: &str, text: &str) -> Vec<Finding> {
    let comments = text.lines().enumerate().filter_map(|(number, line)| {
        let words = line.trim_start().strip_prefix("///")?.to_lowercase();
        let phrase = OF_ATTRIBUTES
            .iter()
            .find(|phrase| words.contains(*phrase))?;
        let message = format!("`{phrase}`: an attribute of the option's row says that");
        Some(Finding::new(path, number + 1, message))
    });
    comments.collect()
}

/// The titles of figures: `field: Type, "title" => words`. One word may mean something else elsewhere, and one that goes
/// on with the row above has no meaning alone.
fn titles(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("\" => ").filter_map(|(end, _)| {
        let (before, title) = text.get(..end)?.rsplit_once('"')?;
        let is_row = before.ends_with(", ") && title.contains(' ');
        (is_row && !title.starts_with('…')).then_some(title)
    })
}

/// All places of a title but its first row.
fn further_places(tree: &Tree, title: &str) -> Vec<Finding> {
    let literal = format!("\"{title}\"");
    let row = format!(", {literal} => ");
    let mut findings = Vec::new();
    let mut is_first_row = true;
    for (path, file) in tree.rust().filter(|(path, _)| path.starts_with(SHOWN)) {
        let shipped = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, _) in shipped.match_indices(&literal) {
            let is_row = shipped
                .get(at.saturating_sub(2)..)
                .is_some_and(|rest| rest.starts_with(&row));
            if is_row && std::mem::take(&mut is_first_row) {
                continue;
            }
            let message = format!(
                "{literal} is the title of a figure: take it from its row (`Figures::title`)"
            );
            findings.push(Finding::new(path, lex::line_of(shipped, at), message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(usize, String)> {
        let findings = check(&Tree::of(files), &[]);
        findings
            .into_iter()
            .map(|found| (found.line, found.message))
            .collect()
    }

    const TABLE: &str = "figures! {\n    a: u64, \"in use now\" => |_, a| bytes(a);\n    b: u64, \"count\" => n;\n}\n";

    #[test]
    fn finds_a_figure_that_is_titled_twice() {
        let table = (&*format!("{FIGURES}memory.rs"), TABLE);
        let with =
            |text: &str| found(&[table, ("crates/instrument/audit/src/report/page.rs", text)]);
        assert!(with("fn f() { show(\"count\", \"in use now and then\") }").is_empty());
        assert!(with("#[cfg(test)]\nmod tests { fn f() { g(\"in use now\") } }").is_empty());
        let twice = with("fn f() {\n    show(\"in use now\")\n}");
        assert_eq!(twice.len(), 1);
        assert!(
            twice[0].0 == 2 && twice[0].1.contains("Figures::title"),
            "{twice:?}"
        );
    }

    #[test]
    fn finds_two_rows_with_one_title() {
        let second = TABLE.replace("a: u64", "c: f64");
        let files = [
            (&*format!("{FIGURES}cpu.rs"), TABLE),
            (&*format!("{FIGURES}memory.rs"), &*second),
        ];
        // Each row finds the second one.
        assert_eq!(found(&files).len(), 2);
    }

    #[test]
    fn finds_an_attribute_that_a_comment_states() {
        let row = |doc: &str| format!("    /// {doc}\n    a: u64 = default \"1\", at start;\n");
        let path = format!("{OPTIONS}route.rs");
        assert!(found(&[(&path, &row("Show the default certificate."))]).is_empty());
        for doc in [
            "How many. By default one.",
            "How many. A change applies at the next start.",
        ] {
            assert_eq!(found(&[(&path, &row(doc))]).len(), 1, "{doc}");
        }
    }
}
