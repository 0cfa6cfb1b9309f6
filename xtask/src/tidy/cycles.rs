//! No import cycle between the files of a crate: whatever a file needs can be read without the file
//! itself.

use super::finding::Finding;
use crate::imports::{self, Graph};
use crate::tree::Tree;
use crate::workspace::Package;
use std::fmt::Write;

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        match imports::read(tree, package) {
            Ok(graphs) => findings.extend(graphs.iter().flat_map(of_graph)),
            Err(error) => findings.push(Finding::new("Cargo.toml", 1, error)),
        }
    }
    findings
}

fn of_graph(graph: &Graph) -> Vec<Finding> {
    let components = graph.components();
    let finding = |component: &_| {
        let cycle = graph.shortest_cycle(component);
        let first = cycle.first()?;
        let mut message = format!("{} files import each other in a cycle:", component.len());
        for arrow in &cycle {
            let _ = write!(message, " {}:{} ->", arrow.from, arrow.line());
        }
        let _ = write!(message, " {}", first.from);
        Some(Finding::new(first.from, first.line(), message))
    };
    components.iter().filter_map(finding).collect()
}

/// Returns all cycles of the crate `name`, or of every crate: their files, their imports, and what
/// to cut.
pub(crate) fn report(
    tree: &Tree,
    packages: &[Package],
    name: Option<&str>,
) -> Result<String, String> {
    let mut text = String::new();
    for package in packages {
        if name.is_some_and(|name| name != package.name) {
            continue;
        }
        let graphs = imports::read(tree, package)?;
        let components: usize = graphs.iter().map(|graph| graph.components().len()).sum();
        let _ = writeln!(text, "{}: {components} import cycles", package.name);
        for graph in &graphs {
            report_graph(&mut text, graph);
        }
    }
    Ok(text)
}

fn report_graph(text: &mut String, graph: &Graph) {
    for component in graph.components() {
        let _ = writeln!(text, "\n  {} files:", component.len());
        for arrow in graph.arrows(&component) {
            let names: Vec<String> = arrow
                .names
                .iter()
                .map(|(name, line)| format!("{name}:{line}"))
                .collect();
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
            let _ = writeln!(
                text,
                "    {}:{} -> {}  ({} names)",
                arrow.from,
                arrow.line(),
                arrow.to,
                arrow.names.len()
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
                .ends_with("a/src/b.rs:1 -> a/src/c.rs:2 -> a/src/b.rs")
        );
        assert!(check(&Tree::of(&CIRCLE[..2]), &[package("b", &[])]).is_empty());
    }

    #[test]
    fn the_report_names_what_to_cut() {
        let text = report(&Tree::of(&CIRCLE), &[package("a", &[])], Some("a")).expect("valid");
        assert!(
            text.starts_with("a: 1 import cycles\n\n  2 files:\n"),
            "{text}"
        );
        assert!(text.contains("no cycle without:\n    a/src/"), "{text}");
    }
}
