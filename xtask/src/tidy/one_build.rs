//! Code that only a debug build has, or only a release: no lint and no test would see one of them. `if cfg!(…)` is seen in
//! both, and costs nothing.

use super::finding::Finding;
use crate::lex;
use crate::tree::Tree;
use crate::workspace::Package;

/// What differs between the two.
const DIFFERENCE: &str = "debug_assertions";

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let shipped = |path: &str| path.contains("/src/") && !path.contains("/tests");
    for (path, file) in tree.rust().filter(|(path, _)| shipped(path)) {
        let code = lex::without_tests(&file.code);
        let attributes = lex::words(&code, DIFFERENCE).filter(|at| {
            let start = code[..*at].rfind("cfg");
            !start.is_some_and(|start| code[start..].starts_with("cfg!"))
        });
        findings.extend(attributes.map(|at| {
            let why = format!("`cfg({DIFFERENCE})`: write `if cfg!({DIFFERENCE})`");
            Finding::new(path, lex::line_of(&code, at), why)
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_one_build_is_found_outside_of_tests() {
        let shipped = "#[cfg(not(debug_assertions))]\nfn a() {}\nfn b() -> bool { cfg!(debug_assertions) }\n\
            #[cfg(any(test, debug_assertions))]\nfn c() {}\n";
        let tree = Tree::of(&[
            ("crates/tls/record/src/a.rs", shipped),
            ("crates/tls/record/src/a/tests.rs", shipped),
            ("crates/tls/record/tests/b.rs", shipped),
        ]);
        let found = check(&tree, &[]);
        let lines: Vec<_> = found.iter().map(|of| (of.path.as_str(), of.line)).collect();
        let path = "crates/tls/record/src/a.rs";
        assert_eq!(lines, [(path, 1), (path, 4)]);
    }
}
