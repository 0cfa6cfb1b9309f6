//! A Rust file that no crate reaches is dead.

use super::finding::Finding;
use crate::lex;
use crate::tree::{File, Tree, directory_of, join};
use crate::workspace::Package;
use std::collections::BTreeSet;

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let members = packages
        .iter()
        .flat_map(|package| package.targets.iter().map(|target| target.path.clone()));
    let mut reached = BTreeSet::new();
    for root in members.chain(roots_outside(tree)) {
        let directory = directory_of(&root).to_string();
        reach(tree, root, directory, &mut reached);
    }
    let dead = tree.rust().filter(|(path, _)| !reached.contains(*path));
    dead.map(|(path, _)| Finding::new(path, 1, "no crate reaches this file"))
        .collect()
}

/// Packages outside the workspace (fuzz targets, the lab's peers), with their roots by Cargo's
/// conventions.
fn roots_outside(tree: &Tree) -> impl Iterator<Item = String> {
    let manifests = tree
        .iter()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"));
    manifests.flat_map(|(manifest, file)| {
        let directory = directory_of(manifest).to_string();
        let named = file
            .text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("path = \""));
        let named = named
            .filter_map(|rest| rest.strip_suffix('"'))
            .filter(|path| path.ends_with(".rs"));
        let usual = ["src/main.rs", "src/lib.rs", "build.rs"];
        let all: Vec<String> = named
            .chain(usual)
            .map(|path| format!("{directory}/{path}"))
            .collect();
        all
    })
}

/// Marks `path` and what it declares. `children` is the directory of its modules.
fn reach(tree: &Tree, path: String, children: String, reached: &mut BTreeSet<String>) {
    let Some(file) = tree.get(&path) else {
        return;
    };
    let beside = directory_of(&path).to_string();
    if !reached.insert(path) {
        return;
    }
    for included in includes(file) {
        reach(tree, join(&beside, &included), beside.clone(), reached);
    }
    for module in modules(file) {
        let within = module
            .within
            .iter()
            .fold(children.clone(), |at, name| format!("{at}/{name}"));
        if let Some(named) = module.path {
            let path = join(&beside, &named);
            let children = directory_of(&path).to_string();
            reach(tree, path, children, reached);
            continue;
        }
        let deeper = format!("{within}/{}", module.name);
        reach(tree, format!("{deeper}.rs"), deeper.clone(), reached);
        reach(tree, format!("{deeper}/mod.rs"), deeper, reached);
    }
}

struct Module {
    name: String,
    /// Names of the inline modules around the declaration.
    within: Vec<String>,
    /// From `#[path = "…"]`.
    path: Option<String>,
}

/// Returns declarations of the form `mod name;`.
fn modules(file: &File) -> Vec<Module> {
    let code = &file.code;
    let mut found = Vec::new();
    let mut inline: Vec<(usize, String)> = Vec::new();
    for at in lex::words(code, "mod") {
        let rest = code[at + 3..].trim_start();
        let name: String = rest
            .bytes()
            .take_while(|byte| lex::is_word(*byte))
            .map(char::from)
            .collect();
        inline.retain(|(end, _)| *end > at);
        let after = rest[name.len()..].trim_start();
        if after.starts_with('{') {
            inline.push((lex::item_end(code, at), name));
        } else if after.starts_with(';') && !name.is_empty() {
            let within = inline.iter().map(|(_, name)| name.clone()).collect();
            found.push(Module {
                name,
                within,
                path: path_attribute(&file.text, at),
            });
        }
    }
    found
}

/// Returns the `#[path = "…"]` right before a declaration; literals are blanked in the code, so
/// this reads the text.
fn path_attribute(text: &str, declaration: usize) -> Option<String> {
    let before = text[..declaration].trim_end();
    let before =
        before.trim_end_matches(|c: char| c.is_alphanumeric() || matches!(c, '(' | ')' | ' '));
    let attribute = before.trim_end().strip_suffix("\"]")?;
    let (start, path) = attribute.rsplit_once('"')?;
    start
        .trim_end()
        .ends_with("#[path =")
        .then(|| path.to_string())
}

fn includes(file: &File) -> Vec<String> {
    let calls =
        lex::words(&file.code, "include").filter(|at| file.code[*at..].starts_with("include!("));
    let literals =
        calls.filter_map(|at| file.text[at..].strip_prefix("include!(\"")?.split_once('"'));
    literals.map(|(path, _)| path.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::direction::tests::package;

    #[test]
    fn files_are_reached_as_the_compiler_reaches_them() {
        let tree = Tree::of(&[
            (
                "a/src/lib.rs",
                "pub mod b;\nmod inline { mod c; }\n#[path = \"odd/name.rs\"]\nmod d;\ninclude!(\"e.rs\");",
            ),
            ("a/src/b.rs", "mod f;\n"),
            ("a/src/b/f.rs", ""),
            ("a/src/inline/c/mod.rs", ""),
            ("a/src/odd/name.rs", ""),
            ("a/src/e.rs", ""),
            ("fuzz/Cargo.toml", "[[bin]]\npath = \"targets/one.rs\""),
            ("fuzz/targets/one.rs", ""),
        ]);
        let found = check(&tree, &[package("a", &[])]);
        assert!(found.is_empty(), "{}", found[0]);
    }

    #[test]
    fn finds_an_undeclared_file() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "// mod b;\nmod inline { }"),
            ("a/src/b.rs", ""),
            ("fuzz/two.rs", ""),
        ]);
        let paths: Vec<String> = check(&tree, &[package("a", &[])])
            .into_iter()
            .map(|found| found.path)
            .collect();
        assert_eq!(paths, ["a/src/b.rs", "fuzz/two.rs"]);
    }
}
