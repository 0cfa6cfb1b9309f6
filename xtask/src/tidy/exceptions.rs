//! `exceptions.txt`: one line each, `rule | path | part of the message | reason`.

use super::finding::Finding;
use crate::tree::Tree;

const LIST: &str = "xtask/exceptions.txt";

/// Removes excused findings, and adds a finding for every line of the list that excuses nothing.
pub(super) fn apply(tree: &Tree, rules: &[&str], mut findings: Vec<Finding>) -> Vec<Finding> {
    let Some(list) = tree.get(LIST) else {
        return findings;
    };
    let mut wrong = Vec::new();
    for (number, line) in list.text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let before = findings.len();
        let complaint = match parse(line) {
            Some([rule, path, part, _]) if rules.contains(&rule) => {
                findings.retain(|found| {
                    !(found.rule == rule && found.path == path && found.message.contains(part))
                });
                (findings.len() == before).then_some("excuses nothing: remove the line")
            }
            Some([..]) => Some("there is no such rule"),
            None => {
                Some("must be `rule | path | part of the message | reason`, none of them empty")
            }
        };
        if let Some(complaint) = complaint {
            wrong.push(Finding {
                rule: "exceptions",
                ..Finding::new(LIST, number + 1, complaint)
            });
        }
    }
    findings.append(&mut wrong);
    findings
}

fn parse(line: &str) -> Option<[&str; 4]> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let fields: [&str; 4] = fields.try_into().ok()?;
    fields
        .iter()
        .all(|field| !field.is_empty())
        .then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(list: &str) -> Vec<String> {
        let tree = Tree::of(&[(LIST, list)]);
        let finding = Finding {
            rule: "length",
            ..Finding::new("a.rs", 3, "`f` has 90 lines")
        };
        apply(&tree, &["length"], vec![finding])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_exception_needs_a_reason() {
        assert!(after("# why\nlength | a.rs | `f` | one table\n").is_empty());
        assert_eq!(after("length | a.rs | `f` | \n").len(), 2);
        assert_eq!(after("length | b.rs | `f` | one table\n").len(), 2);
        assert_eq!(after("lenght | a.rs | `f` | one table\n").len(), 2);
    }
}
