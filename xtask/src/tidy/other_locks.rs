//! A workspace beside this one that uses our crates must know what they use: its builds refuse to change `Cargo.lock`.

use super::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Package;

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let locks = tree
        .iter()
        .filter(|(path, _)| path.ends_with("/Cargo.lock"));
    let mut findings = Vec::new();
    for (path, lock) in locks {
        for (line, name, locked) in entries(&lock.text) {
            let Some(package) = packages.iter().find(|package| package.name == name) else {
                continue;
            };
            let used = package.dependencies.iter().filter(|of| !of.for_tests_only);
            for missing in used.filter(|of| !locked.contains(&of.name.as_str())) {
                let message = format!(
                    "`{name}` uses `{}` now: run `cargo metadata` beside this file",
                    missing.name
                );
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// Each package of a lock file: its line, its name, and the names of its dependencies.
fn entries(lock: &str) -> Vec<(usize, &str, Vec<&str>)> {
    let mut entries: Vec<(usize, &str, Vec<&str>)> = Vec::new();
    for (number, line) in lock.lines().enumerate() {
        let quoted = line.split('"').nth(1).unwrap_or_default();
        if line.starts_with("name = ") {
            entries.push((number + 1, quoted, Vec::new()));
        } else if line.starts_with(" \"")
            && let Some((.., dependencies)) = entries.last_mut()
        {
            // A version follows the name if the file has several.
            dependencies.extend(quoted.split(' ').next());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::package;

    #[test]
    fn a_new_dependency_belongs_into_the_other_lock_file() {
        let lock = "[[package]]\nname = \"engine\"\ndependencies = [\n \"base64 0.22.1\",\n \"rustls\",\n]\n";
        let found = |path: &str, dependencies: &[(&str, bool)]| {
            let tree = Tree::of(&[(path, lock)]);
            let engine = package("engine", dependencies);
            let lines = check(&tree, &[engine])
                .into_iter()
                .map(|finding| finding.line);
            lines.collect::<Vec<_>>()
        };
        let known = [("base64", false), ("rustls", false), ("proptest", true)];
        assert!(found("bindings/Cargo.lock", &known).is_empty());
        assert_eq!(found("bindings/Cargo.lock", &[("glob", false)]), [2]);
        assert!(found("Cargo.lock", &[("glob", false)]).is_empty());
        assert!(found("lab/Cargo.lock", &[]).is_empty());
    }
}
