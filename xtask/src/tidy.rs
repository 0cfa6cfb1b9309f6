//! The rules, and the exceptions from them.

mod boundary;
pub(crate) mod cycles;
mod dead_files;
mod direction;
mod exceptions;
mod finding;
pub(crate) mod generated;
mod length;
mod links;
mod log_messages;
mod one_build;
mod other_locks;
mod profiles;
mod stated_once;
mod test_list;
mod unsafety;
mod words;

#[cfg(test)]
pub(crate) use direction::tests::package;

use crate::tree::Tree;
use crate::workspace::{self, Package};
use finding::Finding;
use std::path::Path;

type Rule = fn(&Tree, &[Package]) -> Vec<Finding>;

/// Name and check of every rule. `exceptions.txt` refers to rules by name.
pub(crate) const RULES: [(&str, Rule); 16] = [
    ("unsafe-code", unsafety::unsafe_code),
    ("forbid-unsafe", unsafety::forbid_attribute),
    ("length", length::check),
    ("words", words::check),
    ("direction", direction::check),
    ("cycle", cycles::check),
    ("boundary", boundary::check),
    ("dead-file", dead_files::check),
    ("link", links::check),
    ("log-message", log_messages::check),
    ("generated", generated::check),
    ("other-lock", other_locks::check),
    ("stated-once", stated_once::check),
    ("test-list", test_list::check),
    ("one-build", one_build::check),
    ("profiles", profiles::check),
];

pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let tree = Tree::read(root)?;
    let packages = workspace::read(root)?;
    let mut findings = Vec::new();
    for (name, rule) in RULES {
        findings.extend(rule(&tree, &packages).into_iter().map(|finding| Finding {
            rule: name,
            ..finding
        }));
    }
    let names = RULES.map(|(name, _)| name);
    Ok(exceptions::apply(&tree, &names, findings))
}
