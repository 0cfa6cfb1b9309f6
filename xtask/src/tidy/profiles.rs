//! What a release build leaves unoptimised. The profile of the packages inherits each such line, and its optimiser, which takes
//! all crates together, crashes at what was not optimised before: so it names the same crates with a level of its own.

use super::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Package;

const MANIFEST: &str = "Cargo.toml";
const RELEASE: &str = "[profile.release.package]";
const RELEASE_LTO: &str = "[profile.release-lto.package]";

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let manifest = tree.iter().find(|(path, _)| *path == MANIFEST);
    let text = manifest.map_or("", |(_, file)| file.text.as_str());
    let named: Vec<&str> = crates(text, RELEASE_LTO)
        .filter(|(.., level)| *level != "0")
        .map(|(_, name, _)| name)
        .collect();
    crates(text, RELEASE)
        .filter(|(_, name, level)| *level == "0" && !named.contains(name))
        .map(|(line, name, _)| {
            let why = format!("`{name}` has level 0 here, and no other in {RELEASE_LTO}");
            Finding::new(MANIFEST, line, why)
        })
        .collect()
}

/// The crates of one section: line, name, and level without quotation marks.
fn crates<'a>(text: &'a str, section: &'a str) -> impl Iterator<Item = (usize, &'a str, &'a str)> {
    let lines = text.lines().enumerate();
    let inside = lines.skip_while(move |(_, line)| *line != section).skip(1);
    let inside = inside.take_while(|(_, line)| !line.starts_with('['));
    inside.filter_map(|(at, line)| {
        let (name, rest) = line.split_once(" = { opt-level = ")?;
        let level = rest.trim_end_matches(" }").trim_matches('"');
        Some((at + 1, name, level))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_release_leaves_unoptimised_the_packages_name_too() {
        let lines = |release: &str, lto: &str| {
            let text = format!(
                "{RELEASE}\n{release}\n{RELEASE_LTO}\n{lto}\n[other]\na = {{ opt-level = 1 }}\n"
            );
            let tree = Tree::of(&[(MANIFEST, &text)]);
            let found = check(&tree, &[]).into_iter().map(|finding| finding.line);
            found.collect::<Vec<_>>()
        };
        let zero = "# Why.\na = { opt-level = 0 }\nb = { opt-level = 3 }";
        assert_eq!(lines(zero, ""), [3]);
        assert_eq!(lines(zero, "a = { opt-level = 0 }"), [3]);
        assert!(lines(zero, "a = { opt-level = \"s\" }").is_empty());
        assert!(lines("b = { opt-level = 3 }", "").is_empty());
    }
}
