//! The rules, and the exceptions from them.

mod boundary;
mod dead_files;
mod direction;
mod exceptions;
pub(crate) mod generated;
mod length;
mod links;
mod unsafety;
mod words;

use crate::tree::Tree;
use crate::workspace::{self, Package};
use std::fmt;
use std::path::Path;

type Rule = fn(&Tree, &[Package]) -> Vec<Finding>;

/// Name and check of every rule. The name is what `exceptions.txt` refers to.
pub(crate) const RULES: [(&str, Rule); 9] = [
    ("unsafe-code", unsafety::unsafe_code),
    ("forbid-unsafe", unsafety::forbid_attribute),
    ("length", length::check),
    ("words", words::check),
    ("direction", direction::check),
    ("boundary", boundary::check),
    ("dead-file", dead_files::check),
    ("link", links::check),
    ("generated", generated::check),
];

/// One thing that is not as it should be.
pub(crate) struct Finding {
    rule: &'static str,
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    /// The rule's name is put in by [`check`].
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            rule: "",
            path: path.to_string(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.message
        )
    }
}

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
    Ok(exceptions::apply(&tree, findings))
}
