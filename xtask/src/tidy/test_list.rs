//! The README of `interop` lists the modules of its tests: all of them, and no others.

use super::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Package;

const README: &str = "interop/README.md";

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let listed = tree.get(README).map(|readme| listed(&readme.text));
    let listed = listed.unwrap_or_default();
    let is_listed = |path: &str| {
        let mut entries = listed.iter();
        entries.any(|entry| entry == path || entry.ends_with('/') && path.starts_with(entry))
    };
    let is_root = |path: &str| path.ends_with("/mod.rs") || path.ends_with("/main.rs");
    let modules = tree.rust().map(|(path, _)| path);
    let modules = modules.filter(|path| path.starts_with("interop/tests/") && !is_root(path));
    let missing = modules.filter(|path| !is_listed(path));
    let missing = missing.map(|path| format!("`{path}` is not listed"));
    let gone = listed.iter().filter(|entry| !tree.holds(entry));
    let gone = gone.map(|entry| format!("`{entry}` does not exist"));
    let all = missing.chain(gone);
    all.map(|message| Finding::new(README, 1, message))
        .collect()
}

/// The files in the tables. A subject whose row has no modules is a folder.
fn listed(readme: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folder = String::new();
    for line in readme.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let modules = match cells[..] {
            ["", subject, modules, _, ""] => {
                if let Some(subject) = subject.split('`').nth(1) {
                    folder = format!("interop/tests/interop/{subject}/");
                }
                modules
            }
            ["", modules, _, ""] => {
                folder = "interop/tests/alone/".to_string();
                modules
            }
            _ => continue,
        };
        if modules.is_empty() {
            found.push(folder.clone());
        }
        let names = modules.split('`').skip(1).step_by(2);
        found.extend(names.map(|name| format!("{folder}{name}.rs")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_modules_that_are_not_listed_and_entries_without_a_module() {
        let readme = "| subject | module | what is tested |\n|---|---|---|\n\
            | `clients` | `curl`, `gone` | a |\n| | `openssl` | b |\n| `audit` | | c |\n\n\
            | module | what is tested |\n|---|---|\n| `memory` | d |\n";
        let tree = Tree::of(&[
            (README, readme),
            ("interop/tests/interop/main.rs", ""),
            ("interop/tests/interop/clients/mod.rs", ""),
            ("interop/tests/interop/clients/curl.rs", ""),
            ("interop/tests/interop/clients/openssl.rs", ""),
            ("interop/tests/interop/clients/new.rs", ""),
            ("interop/tests/interop/audit/page.rs", ""),
            ("interop/tests/alone/memory.rs", ""),
            ("interop/tests/alone/new.rs", ""),
        ]);
        let found: Vec<String> = check(&tree, &[])
            .into_iter()
            .map(|found| found.message)
            .collect();
        let expected = [
            "`interop/tests/alone/new.rs` is not listed",
            "`interop/tests/interop/clients/new.rs` is not listed",
            "`interop/tests/interop/clients/gone.rs` does not exist",
        ];
        assert_eq!(found, expected);
    }
}
