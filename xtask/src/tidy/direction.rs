//! Dependencies between the workspace's crates only point down.

use super::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Package;

const TABLE: &str = "xtask/src/tidy/direction.rs";

/// The dependencies that each crate may have, without `dormouse-`: a crate may use only crates
/// above its own line. A crate that is not listed is a finding, so that its place is decided.
const MAY_USE: &[(&str, &str)] = &[
    // Every message may quote untrusted text.
    ("printable", ""),
    ("record", ""),
    ("reactor", ""),
    ("x25519", ""),
    ("engine", "printable record x25519"),
    ("embed", "record engine"),
    ("capi", "embed"),
    ("tokio", "embed"),
    ("rust", "tokio"),
    ("java", "embed"),
    // A reader of files for Node.js and Python.
    ("keyfiles", "embed"),
    ("node", "embed keyfiles"),
    ("python", "embed keyfiles"),
    ("rest", "reactor"),
    // Their sizes limit the configuration, so they are below it.
    ("tables", "engine reactor"),
    ("config", "printable engine reactor tables"),
    ("handover", "record engine reactor tables config"),
    // Separate from the data path: main and the scout create the same contexts.
    ("routes", "engine reactor tables config handover"),
    (
        "dataplane",
        "printable record engine reactor rest tables config handover routes",
    ),
    (
        "helpers",
        "printable record engine reactor rest tables config handover routes",
    ),
    ("measure", "printable reactor"),
    // `measure`: the process that holds an address.
    (
        "supervisor",
        "engine reactor rest tables config handover routes dataplane helpers measure",
    ),
    ("census", "printable reactor measure"),
    ("bench", "printable record engine reactor measure census"),
    (
        "audit",
        "printable record engine reactor measure census bench",
    ),
    ("import", "printable config"),
    // `check` reads certificates like `serve`.
    (
        "dormouse",
        "supervisor helpers dataplane handover config import audit bench measure engine reactor record printable",
    ),
    ("testkit", "record engine"),
    // Whole connections: all parts of a worker.
    (
        "sim",
        "testkit record engine reactor rest tables config handover routes dataplane",
    ),
    // A target for each parser, wherever it is.
    (
        "fuzz",
        "printable record engine embed capi reactor rest config handover dataplane helpers supervisor measure bench audit import",
    ),
    ("ci-bench", "testkit record engine sim"),
    ("interop", "testkit"),
    ("lab-sick", "record engine reactor"),
    ("lab-resting", "embed reactor rest"),
    ("xtask", ""),
];

/// Packages whose whole name is in the table.
const WITHOUT_PREFIX: [&str; 2] = ["dormouse", "xtask"];

/// What tests may use in addition.
const TESTS_MAY_USE: &str = "testkit";

pub(super) fn check(_: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = upward_lines();
    for package in packages {
        let Some((_, allowed)) = line_of(&package.name) else {
            let message = format!("`{}` has no line in {TABLE}", package.name);
            findings.push(Finding::new("Cargo.toml", 1, message));
            continue;
        };
        for dependency in &package.dependencies {
            let Some((used, _)) = line_of(&dependency.name) else {
                continue;
            };
            let in_tests = dependency.for_tests_only && used == TESTS_MAY_USE;
            if !words(allowed).any(|word| word == used) && !in_tests {
                let message = format!("`{}` must not depend on `{used}`", package.name);
                findings.push(Finding::new("Cargo.toml", 1, message));
            }
        }
    }
    findings
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split_whitespace()
}

fn line_of(package: &str) -> Option<(&'static str, &'static str)> {
    let is_package = |name: &str| match package.strip_prefix("dormouse-") {
        Some(short) => short == name,
        None => package == name && WITHOUT_PREFIX.contains(&package),
    };
    MAY_USE.iter().copied().find(|(name, _)| is_package(name))
}

/// Returns lines of the table that name a crate that is not above them.
fn upward_lines() -> Vec<Finding> {
    let mut above = Vec::new();
    let mut findings = Vec::new();
    for (name, allowed) in MAY_USE {
        for used in words(allowed).filter(|used| !above.contains(used)) {
            let message = format!("`{name}` may use `{used}`, which is not above it");
            findings.push(Finding::new(TABLE, 1, message));
        }
        above.push(*name);
    }
    findings
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::workspace::{Dependency, Target};

    pub(crate) fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, for_tests_only)| Dependency {
                name: (*name).to_string(),
                for_tests_only: *for_tests_only,
            });
        let target = Target {
            kind: "lib".to_string(),
            path: format!("{name}/src/lib.rs"),
        };
        Package {
            name: name.to_string(),
            dependencies: dependencies.collect(),
            targets: vec![target],
        }
    }

    fn found(package: Package) -> usize {
        check(&Tree::of(&[]), &[package]).len()
    }

    #[test]
    fn allows_down_and_finds_up() {
        assert_eq!(
            found(package(
                "dormouse-engine",
                &[("dormouse-record", false), ("rustls", false)]
            )),
            0
        );
        assert_eq!(
            found(package("dormouse-record", &[("dormouse-engine", false)])),
            1
        );
        assert_eq!(
            found(package("dormouse-reactor", &[("dormouse-record", false)])),
            1
        );
        assert_eq!(
            found(package("dormouse-record", &[("dormouse-testkit", true)])),
            0
        );
        assert_eq!(
            found(package("dormouse-record", &[("dormouse-testkit", false)])),
            1
        );
        assert_eq!(found(package("dormouse-new", &[])), 1);
    }
}
