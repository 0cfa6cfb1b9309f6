//! Dependencies between our crates point down only.

use super::Finding;
use crate::tree::Tree;
use crate::workspace::Package;

/// What each crate may stand on. A crate that is not listed is a finding: its place must be decided.
const MAY_USE: [(&str, &[&str]); 14] = [
    ("dormouse-record", &[]),
    ("dormouse-engine", &["dormouse-record"]),
    ("dormouse-reactor", &[]),
    (
        "dormouse-gateway",
        &["dormouse-record", "dormouse-engine", "dormouse-reactor"],
    ),
    ("dormouse-measure", &["dormouse-reactor"]),
    (
        "dormouse-bench",
        &[
            "dormouse-record",
            "dormouse-engine",
            "dormouse-reactor",
            "dormouse-measure",
        ],
    ),
    (
        "dormouse-audit",
        &[
            "dormouse-record",
            "dormouse-engine",
            "dormouse-reactor",
            "dormouse-measure",
            "dormouse-bench",
        ],
    ),
    // `check` reads certificates as `serve` does.
    (
        "dormouse",
        &[
            "dormouse-gateway",
            "dormouse-measure",
            "dormouse-bench",
            "dormouse-audit",
            "dormouse-engine",
            "dormouse-reactor",
            "dormouse-record",
        ],
    ),
    ("dormouse-testkit", &["dormouse-record", "dormouse-engine"]),
    (
        "dormouse-sim",
        &["dormouse-testkit", "dormouse-record", "dormouse-engine"],
    ),
    (
        "dormouse-ci-bench",
        &["dormouse-testkit", "dormouse-record", "dormouse-engine"],
    ),
    ("dormouse-interop", &["dormouse-testkit"]),
    (
        "dormouse-lab-sick",
        &["dormouse-record", "dormouse-engine", "dormouse-reactor"],
    ),
    ("xtask", &[]),
];

/// What tests may use besides.
const TESTS_MAY_USE: &str = "dormouse-testkit";

pub(super) fn check(_: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == package.name) else {
            let message = format!(
                "`{}` has no place in the table of xtask/src/tidy/direction.rs",
                package.name
            );
            findings.push(Finding::new("Cargo.toml", 1, message));
            continue;
        };
        for dependency in package
            .dependencies
            .iter()
            .filter(|used| is_ours(&used.name, packages))
        {
            let name = dependency.name.as_str();
            let in_tests = dependency.for_tests_only && name == TESTS_MAY_USE;
            if !allowed.contains(&name) && !in_tests {
                let message = format!("`{}` must not depend on `{name}`", package.name);
                findings.push(Finding::new("Cargo.toml", 1, message));
            }
        }
    }
    findings
}

fn is_ours(name: &str, packages: &[Package]) -> bool {
    name.starts_with("dormouse") || packages.iter().any(|package| package.name == name)
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
    fn down_is_allowed_and_up_is_found() {
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
