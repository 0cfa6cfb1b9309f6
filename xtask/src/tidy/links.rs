//! The targets of links in documents exist: files, headings, `make` targets.

use super::finding::Finding;
use crate::lex;
use crate::tree::Tree;
use crate::workspace::Package;

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in tree.markdown() {
        let prose = prose(&file.text);
        for (at, target) in targets(&prose) {
            if let Some(message) = complaint(tree, path, target) {
                findings.push(Finding::new(path, lex::line_of(&prose, at), message));
            }
        }
        for (number, line) in file.text.lines().enumerate() {
            for name in make_targets(line).filter(|name| !has_make_target(tree, name)) {
                findings.push(Finding::new(
                    path,
                    number + 1,
                    format!("there is no `make {name}`"),
                ));
            }
        }
    }
    findings
}

/// Returns the text with code blanked; links in code are not links.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let mut in_span = false;
        prose.extend(line.chars().map(|c| {
            in_span ^= c == '`';
            if c != '\n' && (fenced || fence || in_span) {
                ' '
            } else {
                c
            }
        }));
    }
    prose
}

/// Returns the targets of `[text](target)` and `[name]: target`.
fn targets(prose: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (marker, close) in [("](", ')'), ("]: ", '\n')] {
        for (at, _) in prose.match_indices(marker) {
            let rest = &prose[at + marker.len()..];
            let target = rest.split(close).next().unwrap_or_default();
            found.push((at, target.split_whitespace().next().unwrap_or_default()));
        }
    }
    found
}

fn complaint(tree: &Tree, document: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some("an empty link".to_string());
    }
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target
        .split_once('#')
        .map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() {
        document.to_string()
    } else {
        match resolve(document, file) {
            Some(path) => path,
            None => return Some(format!("`{target}` leads out of the repository")),
        }
    };
    if !tree.holds(&path) {
        return Some(format!("`{target}` does not exist"));
    }
    let has_heading = |heading: &str| {
        tree.get(&path)
            .is_none_or(|file| anchors(&file.text).any(|known| known == heading))
    };
    match heading {
        Some(heading) if path.ends_with(".md") && !has_heading(heading) => {
            Some(format!("`{path}` has no heading `#{heading}`"))
        }
        _ => None,
    }
}

/// Returns the path of a link's target. `None`: it is outside the repository.
fn resolve(document: &str, target: &str) -> Option<String> {
    let directory = document
        .rsplit_once('/')
        .map_or("", |(directory, _)| directory);
    let mut parts: Vec<&str> = directory
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the anchors that the usual renderers give to headings.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
}

/// Returns the names in `make name`, where it is written as a command.
fn make_targets(line: &str) -> impl Iterator<Item = &str> {
    let spans = line
        .split('`')
        .skip(1)
        .step_by(2)
        .chain(line.starts_with("make ").then_some(line));
    spans.filter_map(|span| {
        let name = span.strip_prefix("make ")?.split_whitespace().next()?;
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            .then_some(name)
    })
}

fn has_make_target(tree: &Tree, name: &str) -> bool {
    let rule = format!("{name}:");
    tree.get("Makefile")
        .is_some_and(|makefile| makefile.text.lines().any(|line| line.starts_with(&rule)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(readme: &str) -> Vec<String> {
        let files = [
            ("README.md", readme),
            ("docs/a.md", "# The `first` part: why?\n"),
            ("Makefile", "test: build\n"),
        ];
        check(&Tree::of(&files), &[])
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn accepts_valid_links() {
        let readme = "# Top\n[a](docs/a.md) [b](docs) [c](https://x/y) [d](#top) [e](docs/a.md#the-first-part-why)\n\
            `[f](gone.md)`\n```\n[g](gone.md)\n```\n[h]: docs/a.md\n`make test`";
        assert_eq!(found(readme), Vec::<String>::new());
    }

    #[test]
    fn finds_broken_links() {
        assert_eq!(found("[a](docs/b.md)"), ["`docs/b.md` does not exist"]);
        assert_eq!(found("[a](../x)"), ["`../x` leads out of the repository"]);
        assert_eq!(found("[a](#gone)"), ["`README.md` has no heading `#gone`"]);
        assert_eq!(found("[a]()"), ["an empty link"]);
        assert_eq!(found("[a]: gone.md\n"), ["`gone.md` does not exist"]);
        assert_eq!(found("```\nmake tset\n```\n"), ["there is no `make tset`"]);
    }
}
