//! No import cycle in a crate, neither between files nor between folders: whatever a file or a folder
//! needs can be read without that file or folder itself.
//!
//! A folder counts as one part among the files and folders beside it, with everything in it. Its own
//! `mod.rs` is a part beside its children: either presents them or serves them, not both.

use super::finding::Finding;
use crate::imports::{self, Graph};
use crate::tree::Tree;
use crate::workspace::Package;
use std::fmt::Write;

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = of_graph(&imports::read_scripts(tree));
    for package in packages {
        match imports::read(tree, package) {
            Ok(graphs) => findings.extend(graphs.iter().flat_map(of_graph)),
            Err(error) => findings.push(Finding::new("Cargo.toml", 1, error)),
        }
    }
    findings
}

fn of_graph(graph: &Graph) -> Vec<Finding> {
    let folders = graph.by_folder();
    folders.values().flat_map(of_folder).collect()
}

fn of_folder(graph: &Graph) -> Vec<Finding> {
    let components = graph.components();
    let finding = |component: &_| {
        let cycle = graph.shortest_cycle(component);
        let first = cycle.first()?;
        let mut message = format!("{} parts import each other in a cycle:", component.len());
        for arrow in &cycle {
            let _ = write!(message, " {} ({}) ->", arrow.from, arrow.place());
        }
        let _ = write!(message, " {}", first.from);
        let place = first.place();
        Some(Finding::new(&place.file, place.line, message))
    };
    components.iter().filter_map(finding).collect()
}

/// Returns all cycles of the crate `name`, or of every crate and of the bindings' scripts: their
/// parts, their imports, and what to cut.
pub(crate) fn report(
    tree: &Tree,
    packages: &[Package],
    name: Option<&str>,
) -> Result<String, String> {
    let mut text = String::new();
    for package in packages {
        if name.is_none_or(|name| name == package.name) {
            report_graphs(&mut text, &package.name, &imports::read(tree, package)?);
        }
    }
    if name.is_none() {
        report_graphs(
            &mut text,
            "scripts of the bindings",
            &[imports::read_scripts(tree)],
        );
    }
    Ok(text)
}

fn report_graphs(text: &mut String, name: &str, graphs: &[Graph]) {
    let folders: Vec<Graph> = graphs
        .iter()
        .flat_map(|graph| graph.by_folder().into_values())
        .collect();
    let components: usize = folders.iter().map(|graph| graph.components().len()).sum();
    let _ = writeln!(text, "{name}: {components} import cycles");
    for graph in &folders {
        report_folder(text, graph);
    }
}

fn report_folder(text: &mut String, graph: &Graph) {
    for component in graph.components() {
        let _ = writeln!(text, "\n  {} parts:", component.len());
        for arrow in graph.arrows(&component) {
            let names = arrow
                .names
                .iter()
                .map(|(name, place)| format!("{name} ({place})"));
            let names: Vec<String> = names.collect();
            let _ = writeln!(
                text,
                "    {} -> {}  {}",
                arrow.from,
                arrow.to,
                names.join(" ")
            );
        }
        let _ = writeln!(text, "  no cycle without:");
        for arrow in graph.cuts(&component) {
            let (from, to, names) = (arrow.from, arrow.to, arrow.names.len());
            let _ = writeln!(
                text,
                "    {from} -> {to}  ({}; {names} names)",
                arrow.place()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::package;

    const CIRCLE: [(&str, &str); 3] = [
        ("a/src/lib.rs", "mod b; mod c;"),
        ("a/src/b.rs", "use crate::c::C;\npub struct B;"),
        ("a/src/c.rs", "pub struct C;\nuse crate::b::B;"),
    ];

    #[test]
    fn finds_a_cycle_with_its_imports() {
        let found = check(&Tree::of(&CIRCLE), &[package("a", &[])]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .to_string()
                .ends_with("a/src/b.rs (a/src/b.rs:1) -> a/src/c.rs (a/src/c.rs:2) -> a/src/b.rs")
        );
        assert!(check(&Tree::of(&CIRCLE[..2]), &[package("b", &[])]).is_empty());
    }

    #[test]
    fn finds_a_cycle_of_folders_without_a_cycle_of_files() {
        let found = check(
            &Tree::of(&[
                ("a/src/lib.rs", "mod b; mod c;"),
                ("a/src/b/mod.rs", "mod x; mod y;"),
                ("a/src/b/x.rs", "use crate::c::C;"),
                ("a/src/b/y.rs", "pub struct Y;"),
                ("a/src/c.rs", "pub struct C;\nuse crate::b::y::Y;"),
            ]),
            &[package("a", &[])],
        );
        assert_eq!(found.len(), 1);
        let text = found[0].to_string();
        assert!(
            text.ends_with("a/src/b (a/src/b/x.rs:1) -> a/src/c.rs (a/src/c.rs:2) -> a/src/b"),
            "{text}"
        );
    }

    #[test]
    fn finds_a_folder_that_needs_its_own_parent() {
        let found = check(
            &Tree::of(&[
                ("a/src/lib.rs", "mod b;"),
                ("a/src/b.rs", "mod c;\npub struct B;\nuse c::d::run;"),
                ("a/src/b/c/mod.rs", "pub mod d; mod e;"),
                ("a/src/b/c/d.rs", "pub fn run() {}"),
                ("a/src/b/c/e.rs", "use crate::b::B;"),
            ]),
            &[package("a", &[])],
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("2 parts"), "{}", found[0]);
    }

    #[test]
    fn finds_a_cycle_of_scripts() {
        let found = check(
            &Tree::of(&[
                ("bindings/n/a.js", "require('./b')"),
                ("bindings/n/b.js", "function f() { require('./a') }"),
            ]),
            &[],
        );
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn the_report_names_what_to_cut() {
        let text = report(&Tree::of(&CIRCLE), &[package("a", &[])], Some("a")).expect("valid");
        assert!(
            text.starts_with("a: 1 import cycles\n\n  2 parts:\n"),
            "{text}"
        );
        assert!(text.contains("no cycle without:\n    a/src/"), "{text}");
    }
}
