//! `unsafe` is allowed in `reactor`, the interface to the operating system, and at the borders to C and Java (`keyfiles` calls AWS-LC),
//! and in one block of `x25519`; every other crate root forbids it, or denies it if its macros need it.

use super::finding::Finding;
use crate::lex;
use crate::tree::Tree;
use crate::workspace::Package;

const HOMES_OF_UNSAFE: [&str; 4] = [
    "crates/gateway/reactor/",
    "crates/tls/capi/",
    "bindings/java/native/",
    "bindings/keyfiles/",
];
/// Files with one block of `unsafe`, and what it is for. Their crates deny it elsewhere.
const HOMES_OF_ONE_BLOCK: [(&str, &str); 1] = [(
    "crates/tls/x25519/src/lib.rs",
    "calls a function for CPUs with AVX-512 IFMA after asking the CPU, and clears its registers",
)];
const ATTRIBUTE: &str = "#![forbid(unsafe_code)]";
/// Crates whose macros write `unsafe`, with an `allow` that `forbid` refuses. They deny it for their own code.
const UNSAFE_IN_MACROS: [&str; 1] = ["bindings/node/"];
const WEAKER_ATTRIBUTE: &str = "#![deny(unsafe_code)]";

pub(super) fn unsafe_code(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in tree.rust().filter(|(path, _)| !is_home_of_unsafe(path)) {
        let blocks = usize::from(has_one_block(path));
        for at in lex::words(&file.code, "unsafe").skip(blocks) {
            findings.push(Finding::new(
                path,
                lex::line_of(&file.code, at),
                "`unsafe` outside reactor and the borders to C and Java",
            ));
        }
    }
    findings
}

pub(super) fn forbid_attribute(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let members = packages.iter().flat_map(|package| &package.targets);
    let roots =
        members.filter(|target| matches!(target.kind.as_str(), "lib" | "bin" | "proc-macro"));
    let outside = tree
        .rust()
        .map(|(path, _)| path)
        .filter(|path| is_root_by_name(path));
    let mut paths: Vec<&str> = roots
        .map(|target| target.path.as_str())
        .chain(outside)
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths.retain(|path| !is_home_of_unsafe(path));
    let lacks = |path: &&str| {
        tree.get(path)
            .is_some_and(|file| !file.code.contains(attribute(path)))
    };
    paths
        .into_iter()
        .filter(lacks)
        .map(|path| Finding::new(path, 1, format!("must say `{}`", attribute(path))))
        .collect()
}

/// The attribute that a crate root needs.
fn attribute(path: &str) -> &'static str {
    let is_weaker = UNSAFE_IN_MACROS.iter().any(|home| path.starts_with(home));
    if is_weaker || has_one_block(path) {
        WEAKER_ATTRIBUTE
    } else {
        ATTRIBUTE
    }
}

fn is_home_of_unsafe(path: &str) -> bool {
    HOMES_OF_UNSAFE.iter().any(|home| path.starts_with(home))
}

fn has_one_block(path: &str) -> bool {
    HOMES_OF_ONE_BLOCK.iter().any(|(home, _)| *home == path)
}

/// Packages outside the workspace are not in Cargo's metadata.
fn is_root_by_name(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::direction::tests::package;

    #[test]
    fn finds_unsafe_in_code_only() {
        let tree = Tree::of(&[
            ("crates/gateway/reactor/src/lib.rs", "unsafe { x() }"),
            ("crates/tls/capi/src/boundary.rs", "unsafe { x() }"),
            (
                "crates/tls/record/src/lib.rs",
                "// unsafe\n#![forbid(unsafe_code)]\nlet a = \"unsafe\";",
            ),
            (
                "crates/gateway/dataplane/src/a.rs",
                "\nfn a() { unsafe { x() } }",
            ),
            (
                "crates/tls/x25519/src/lib.rs",
                "unsafe { x() }\n\nunsafe { y() }",
            ),
            ("crates/tls/x25519/src/field.rs", "unsafe { x() }"),
        ]);
        let mut found: Vec<(String, usize)> = unsafe_code(&tree, &[])
            .into_iter()
            .map(|finding| (finding.path, finding.line))
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                ("crates/gateway/dataplane/src/a.rs".to_owned(), 2),
                ("crates/tls/x25519/src/field.rs".to_owned(), 1),
                ("crates/tls/x25519/src/lib.rs".to_owned(), 3),
            ]
        );
    }

    #[test]
    fn finds_a_crate_that_does_not_forbid_it() {
        let tree = Tree::of(&[
            ("crates/gateway/reactor/src/lib.rs", ""),
            ("crates/tls/record/src/lib.rs", "#![forbid(unsafe_code)]"),
            (
                "crates/gateway/dataplane/src/lib.rs",
                "// #![forbid(unsafe_code)]",
            ),
            ("crates/cli/src/bin/extra.rs", ""),
            ("lab/x/src/main.rs", ""),
            ("bindings/node/src/lib.rs", "#![deny(unsafe_code)]"),
            ("bindings/python/src/lib.rs", "#![deny(unsafe_code)]"),
        ]);
        let mut cli = package("dormouse", &[]);
        cli.targets[0].path = "crates/cli/src/bin/extra.rs".to_string();
        let found = forbid_attribute(&tree, &[cli]);
        let paths: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "bindings/python/src/lib.rs",
                "crates/cli/src/bin/extra.rs",
                "crates/gateway/dataplane/src/lib.rs",
                "lab/x/src/main.rs"
            ]
        );
    }
}
